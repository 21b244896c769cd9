"""Makes the baseline of a panel, and checks that a later asking is of the same panel.

A panel is a fixed sample of questions. The baseline asks the panel several times; each of these
askings is a repeat, or a run of the baseline. The looks are compared with the baseline. The ledger
is the file that records all that happened to the panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.safe_files import write_atomic
from eval_factory.monitor import simulation
from eval_factory.monitor.asking import (
    MonitorOutcome,
    Outcome,
    RunOptions,
    ask,
    unfinished_outcome,
    write_page_and_report,
)
from eval_factory.monitor.course import PanelTests, Rules, power_of
from eval_factory.monitor.ledger import BASELINE, READER_FIELD, Ledger, Line
from eval_factory.monitor.made_elsewhere import refuse_unequal
from eval_factory.monitor.measurement import (
    PanelMeasurement,
    measure,
    reasons_not_to_compare,
    run_entries_of,
    write_values,
)
from eval_factory.monitor.panel import MONITOR_SECTION, PANEL_FILE, Limit, Panel, digest_of
from eval_factory.monitor.report import assumed_findings_lines, limits_out_of_reach, power_lines
from eval_factory.reading import READER_VERSION
from eval_factory.workflows.suite.suite_report import SuiteReport


def asks_for_more_repeats(panel: Panel, baseline: Line, looks: Sequence[Line]) -> bool:
    """Return True if the panel has more repeats than its baseline, and no other difference.

    A baseline may get more runs before the first look.
    """
    if looks:
        return False
    first_repeat = panel.folder / baseline["repeats"][0]["folder"]
    fixed = panel.fixed_settings(panel.identities(first_repeat))
    baseline_fixed = baseline["fixed"]
    if fixed["repeats"] <= baseline_fixed["repeats"]:
        return False
    # Compare all settings but `repeats`.
    return {**fixed, "repeats": 0} == {**baseline_fixed, "repeats": 0}


def make_baseline(
    panel: Panel, ledger: Ledger, options: RunOptions, why: str | None, *, next_step: str
) -> MonitorOutcome:
    """Ask the panel for its baseline, and write the baseline into the ledger.

    `why` is the reason for a new baseline; it is None for the first baseline, and for a baseline
    that gets more runs. `next_step` is the last line for the screen.
    """
    history = ledger.intact_history()
    section = panel.section
    _policy_sha256(panel)  # report a wrong policy before the panel is asked
    limits = panel.limits
    gets_more_runs = why is None and history.baseline is not None
    if gets_more_runs:
        epoch = history.epoch  # the number of the baseline
        why = "more runs before the first look"
    else:
        epoch = history.epoch + 1
        why = why or "first baseline"
    rules = Rules.of(vars(section))
    # A baseline that gets more runs keeps its folders, so its finished runs are not asked again.
    folders = []
    for number in range(1, section.baseline.repeats + 1):
        folders.append(panel.folder / "baseline" / f"{epoch}" / f"{number}")
    target_folders = [folder / panel.target_name for folder in folders]
    if panel.takes_imported_results:
        refuse_unequal(options.imported, panel.names, count=section.baseline.repeats)
    reports = _ask_repeats(panel, folders, rules, options)
    unfinished = unfinished_outcome(reports, panel)
    if unfinished is not None:
        return unfinished
    measurements = [measure(folder, limits) for folder in target_folders]
    _refuse_different_runs(target_folders, limits)
    tests = PanelTests(rules, limits, measurements)
    fixed = panel.fixed_settings(panel.identities(folders[0]))
    write_atomic(panel.folder / PANEL_FILE, to_yaml({MONITOR_SECTION: panel.portable_document}))
    if history.begun is not None:
        ledger.record_not_made(history.begun, "another baseline was started")
    line = ledger.append(
        BASELINE,
        epoch=epoch,
        panel=digest_of(fixed),  # all lines after the baseline repeat this hash
        fixed=fixed,
        why=why,
        target={"name": panel.target_name, "model": panel.model},
        harm_alpha=rules.harm_alpha,
        policy_sha256=_policy_sha256(panel),
        repeats=_write_repeats(panel, folders, measurements),
        # merged into one dict first, because both have the key `statistics`
        **{**asdict(rules), **tests.baseline_entries()},
        **{READER_FIELD: READER_VERSION},
        power=power_of(tests),
    )
    headline = f"baseline made: {counted(len(measurements), 'run')}"
    lines = [headline, *power_lines(line), *limits_out_of_reach(line), next_step]
    return write_page_and_report(ledger, options, Outcome.BASELINE, line, lines)


def _policy_sha256(panel: Panel) -> str | None:
    """Return the SHA-256 of the gate's policy; None if the panel has no plan of change.

    Raises:
        ConfigError: The policy is wrong.
    """
    if panel.section.change is None:
        return None
    return load_policy(panel.policy).sha256


def _ask_repeats(
    panel: Panel, folders: Sequence[Path], rules: Rules, options: RunOptions
) -> list[SuiteReport]:
    """Ask the panel once for each folder, and return the reports; stop at the first failure."""
    reports = []
    for number, folder in enumerate(folders, start=1):
        options.say(f"baseline, run {number} of {len(folders)}")
        report = ask(panel, folder, options, imported_index=number - 1)
        if report is not None:
            reports.append(report)
            if report.exit_code:
                break
        if number == 1 and (report is None or report.status == RunStatus.COMPLETE):
            # Check the limits after the first run: a wrong limit raises before more runs are paid.
            # A baseline needs at least two runs, so the first run is passed twice.
            measurement = measure(folder / panel.target_name, panel.limits)
            PanelTests(rules, panel.limits, [measurement] * 2)
    return reports


def _write_repeats(
    panel: Panel, folders: Sequence[Path], measurements: Sequence[PanelMeasurement]
) -> list[dict[str, Any]]:
    """Write each run's values into its folder, and return the ledger's entries for the runs."""
    entries = []
    for folder, measurement in zip(folders, measurements, strict=True):
        entries.append(
            {
                "folder": folder.relative_to(panel.folder).as_posix(),
                "values": write_values(folder, measurement),  # the SHA-256 of the values' file
                "runs": run_entries_of(folder / panel.target_name, panel.folder, panel.limits),
            }
        )
    return entries


def _refuse_different_runs(folders: Sequence[Path], limits: Sequence[Limit]) -> None:
    """Check that all runs of a baseline are comparable. Raises ConfigError if they are not."""
    problems: list[str] = []
    for folder in folders[1:]:
        problems += reasons_not_to_compare(folders[0], folder, limits)
    if problems:
        hint = (
            "the runs of the baseline differ in their questions or settings: remove the folder of "
            "the baseline, and start again"
        )
        raise ConfigError([*problems, hint])


def refuse_different_panel(panel: Panel, baseline: Line, identities: Mapping[str, str]) -> None:
    """Check that the panel is that of the baseline.

    Raises:
        ConfigError: The panel differs; the message names the differences.
    """
    fixed = panel.fixed_settings(identities)
    baseline_fixed = baseline["fixed"]
    if digest_of(fixed) == baseline["panel"]:
        return
    differences = []
    for key in baseline_fixed.keys() | fixed.keys():
        before = baseline_fixed.get(key)
        after = fixed.get(key)
        if before == after:
            continue
        if key == "runs":
            differences.append(f"the questions or the model, in {_changed_names(before, after)}")
        elif key == "limits":
            differences.append(f"the limits, in {_changed_names(before, after)}")
        else:
            differences.append(f"{key}: {after} (baseline: {before})")
    raise ConfigError(
        f"{panel.file}: is not the panel of the baseline of {baseline['at']} any more; changed: "
        f"{'; '.join(sorted(differences))}\n"
        "  undo the changes; to watch a new version of the model use "
        "'eval-factory monitor change'; or start a new baseline with --new_baseline WHY"
    )


def _changed_names(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Return the keys whose values differ, joined by commas.

    A mapping that is None counts as empty.
    """
    before = before or {}
    after = after or {}
    names = before.keys() | after.keys()
    return ", ".join(sorted(name for name in names if before.get(name) != after.get(name)))


def expected_findings_lines(panel: Panel) -> list[str]:
    """Return lines about the drops that the panel can be expected to find, before it is asked.

    Questions that share a source, such as a note, depend on each other. Before the first answers
    the sources are not known, so each question counts as a source of its own. Each metric counts as
    a share from 0 to 1. There is a line for each assumed flip rate: the share of answers that
    differ between two runs.
    """
    section = panel.section
    alpha = Rules.of(vars(section)).harm_alpha
    units = []
    max_drops = []
    for task in section.tasks:
        number_of_questions = min(task.size, simulation.MAX_SIMULATED_INSTANCES)
        # the number of each question's source, different for each
        units.append(np.arange(number_of_questions))
        max_drops.append(min(float(task.max_drop), 1.0))
    findings_by_flip_rate = simulation.assumed_findings(
        units, max_drops, repeats=section.baseline.repeats, looks=section.looks, alpha=alpha
    )
    # `assumed_findings_lines` takes the findings as mappings, as the ledger has them.
    mappings_by_flip_rate = {}
    for flip_rate, findings in findings_by_flip_rate.items():
        mappings_by_flip_rate[flip_rate] = [asdict(finding) for finding in findings]
    return list(assumed_findings_lines(mappings_by_flip_rate))
