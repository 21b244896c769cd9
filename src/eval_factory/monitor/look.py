"""Makes the baseline, the looks and the changes of a panel.

A panel is a fixed sample of questions. The baseline asks the panel several times; each of these
askings is a repeat, or a run of the baseline. A look asks the panel once more, tests the answers,
and writes a line into the ledger. A change asks the watched model and a new model. The gate's
policy decides whether the new model replaces the watched model.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.analysis.gate import GateResult, evaluate_policy
from eval_factory.analysis.gate_policy import Policy, load_policy
from eval_factory.analysis.gate_report import gate_text
from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus, TextEnum, Verdict
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.rundir import RunDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import screen_lines
from eval_factory.monitor import simulation
from eval_factory.monitor.course import PanelTests, Rules, power_of, replayed_tests
from eval_factory.monitor.ledger import (
    BASELINE,
    BASELINE_AGAIN_FIELD,
    BEGUN,
    CHANGE,
    LOOK,
    NEW_MODEL,
    NOT_MADE,
    NOTE,
    READER_FIELD,
    WATCHED_MODEL,
    History,
    Ledger,
    Line,
    is_older_than,
    reader_version_of,
)
from eval_factory.monitor.made_elsewhere import (
    copy_results,
    identities_of,
    refuse_unequal,
    refuse_unfit,
    result_folders,
)
from eval_factory.monitor.measurement import (
    PanelMeasurement,
    measure,
    reasons_not_to_compare,
    run_entries_of,
    run_folders_of,
    write_values,
)
from eval_factory.monitor.panel import (
    IMPORTED,
    MONITOR_SECTION,
    PANEL_FILE,
    Limit,
    Panel,
    digest_of,
)
from eval_factory.monitor.panel_page import monitor_page
from eval_factory.monitor.report import (
    alarm_words,
    assumed_findings_lines,
    drops_rarely_found,
    limits_out_of_reach,
    limits_table,
    look_lines,
    power_lines,
)
from eval_factory.reading import READER_VERSION
from eval_factory.workflows.read_again import read_by_one_version
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions, SuiteReport

PAGE_FILE = "report.html"


class Outcome(TextEnum):
    """The outcome of `make_baseline_or_look`."""

    BASELINE = "baseline"  # the baseline was made
    IN_CONTROL = "in_control"
    ALARM = "alarm"
    NOT_MADE = "not_made"  # a run is incomplete or not reportable, so it is not evidence
    SUBMITTED = "submitted"  # the runs are Slurm jobs; the same command resumes the look


@dataclass(frozen=True)
class MonitorOutcome:
    """The outcome of one call of `eval-factory monitor`."""

    outcome: str  # an `Outcome`; for a decided change, the gate's verdict
    exit_code: int
    folder: Path
    # the lines for the screen: the outcome, the reason, and the next step
    lines: Sequence[str]
    line: Line | None = None  # the line that was written into the ledger
    head: str = ""  # the hash of the ledger's last line


@dataclass(frozen=True)
class RunOptions:
    """The options for asking a panel."""

    env: Mapping[str, str]
    say: Callable[[str], object]  # prints a line
    # shows the progress of a suite
    progress_view: Callable[[SuiteDir], AbstractContextManager[SuiteObserver]]
    suite_options: SuiteOptions
    # the folders of imported results, one for each asking by another program
    imported: Sequence[Path] = ()


def make_baseline_or_look(
    panel: Panel, options: RunOptions, why_new_baseline: str | None = None
) -> MonitorOutcome:
    """Make one look; if there is no baseline yet, make the baseline instead.

    Args:
        panel: the panel.
        options: the options for asking the panel.
        why_new_baseline: the reason for a new baseline; None to make a look if there is a baseline.

    Raises:
        ConfigError: The panel, or the questions of its runs, differ from the baseline; or all looks
            are made.
        PrerequisiteError: The ledger was changed, a file that a look needs is missing, or the look
            cannot be compared with the baseline.
        InterruptedRunError: The user stopped the look; the same command resumes the look.
    """
    if panel.takes_imported_results:
        sizes = [task.size for task in panel.section.tasks]
        refuse_unfit(options.imported, panel.names, sizes, panel.model)
    elif options.imported:
        raise ConfigError(f"{panel.file}: --from needs tasks of the type {IMPORTED}")
    else:
        # Check the suite before a folder is created: a wrong file should leave no folder.
        panel.suite(panel.folder / "looks" / "0")
    if RunDir(panel.folder).marker.is_file() or suite_dir(panel.folder).was_started:
        raise ConfigError(
            f"{panel.file}: {panel.folder} is the folder of a run or a suite; "
            "choose another output_dir"
        )
    ledger = Ledger(panel.folder)
    with ledger.lock_panel(options.say):
        history = ledger.intact_history()
        baseline = history.baseline
        if baseline is not None and why_new_baseline is None:
            needs_more_runs = _asks_for_more_repeats(panel, baseline, history.looks)
            if not needs_more_runs:
                return _make_look(panel, ledger, history, baseline, options)
        next_step = f"next: {_look_command(panel)}"
        return _make_baseline(panel, ledger, options, why_new_baseline, next_step=next_step)


def _asks_for_more_repeats(panel: Panel, baseline: Line, looks: Sequence[Line]) -> bool:
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


def _ask(
    panel: Panel, folder: Path, options: RunOptions, *, imported_index: int
) -> SuiteReport | None:
    """Ask the panel once.

    If another program asks this panel, copy the imported result with this index in
    `options.imported`, and return None.
    """
    if panel.takes_imported_results:
        source = options.imported[imported_index]
        copy_results(source, panel.names, folder / panel.target_name)
        return None
    return _ask_suite(panel.suite(folder), options)


def _ask_suite(suite: Suite, options: RunOptions) -> SuiteReport:
    """Run the suite of one asking, and show its progress."""
    with options.progress_view(suite.folder) as observer:
        return run_suite(suite, options.suite_options, env=options.env, screen=observer)


def _unfinished_outcome(reports: Sequence[SuiteReport], panel: Panel) -> MonitorOutcome | None:
    """Return the outcome if a run is incomplete, not reportable or waiting; else None."""
    if not reports:  # the results were imported
        return None
    worst = max(reports, key=lambda report: report.exit_code)
    if worst.exit_code:  # 0 if all runs of a suite are complete and reportable, or still waiting
        headline = "not made: a run is incomplete or may not be reported, so it is not evidence"
        next_step = "correct the cause, then run the same command again"
        return MonitorOutcome(
            Outcome.NOT_MADE,
            exit_code=worst.exit_code,
            folder=panel.folder,
            lines=[headline, *worst.summary.splitlines(), next_step],
        )
    for report in reports:
        # A cell is a run of one task; it is waiting as long as its Slurm job has not ended.
        if any(cell.status == RunStatus.WAITING for cell in report.cells):
            headline = "submitted to Slurm: run the same command again to collect ended jobs"
            return MonitorOutcome(
                Outcome.SUBMITTED,
                exit_code=0,
                folder=panel.folder,
                lines=[headline, *report.summary.splitlines()],
            )
    return None


def _make_baseline(
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
    unfinished = _unfinished_outcome(reports, panel)
    if unfinished is not None:
        return unfinished
    measurements = [measure(folder, limits) for folder in target_folders]
    _refuse_different_runs(target_folders, limits)
    tests = PanelTests(rules, limits, measurements)
    fixed = panel.fixed_settings(panel.identities(folders[0]))
    write_atomic(panel.folder / PANEL_FILE, to_yaml({MONITOR_SECTION: panel.portable_document}))
    if history.begun is not None:
        _record_not_made(ledger, history.begun, "another baseline was started")
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
    return _write_page_and_report(ledger, options, Outcome.BASELINE, line, lines)


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
        report = _ask(panel, folder, options, imported_index=number - 1)
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


def _resumable_look(
    panel: Panel, ledger: Ledger, history: History, options: RunOptions
) -> Line | None:
    """Return the line of a started look that can be resumed; None if there is no such look.

    A look that was started too long ago is recorded as not made.
    """
    begun = history.begun
    if begun is None:
        return None
    is_too_old = is_older_than(begun, hours=float(panel.section.max_look_hours))
    if not is_too_old:
        return begun
    hours = f"{panel.section.max_look_hours:g} hours"
    reason = f"it was started at {begun['at']} and stopped, and was not resumed within {hours}"
    _record_not_made(ledger, begun, reason)
    options.say(f"look {begun['look']} counts as not made: {reason}")
    return None


def _make_look(
    panel: Panel, ledger: Ledger, history: History, baseline: Line, options: RunOptions
) -> MonitorOutcome:
    """Ask the panel for a look, test the answers, and write the look into the ledger."""
    begun = _resumable_look(panel, ledger, history, options)
    number = history.next_look if begun is None else int(begun["look"])
    folder = panel.folder / "looks" / f"{number:04}"
    target_folder = folder / panel.target_name
    limits = panel.limits
    looks = history.looks
    identities = _identities(panel, folder, [baseline, *looks], options)
    _refuse_different_panel(panel, baseline, identities)
    if len(looks) >= baseline["looks"]:
        raise ConfigError(
            f"{panel.file}: all {baseline['looks']} looks of this panel are made; "
            "start a new baseline with --new_baseline WHY"
        )
    # `panel` is the hash of the settings that are fixed with the baseline.
    common_fields = {"epoch": history.epoch, "panel": baseline["panel"], "look": number}
    if begun is None:
        begun = ledger.append(BEGUN, **common_fields)
    options.say(f"look {number}: {len(looks) + 1} of {baseline['looks']}")
    report = _ask(panel, folder, options, imported_index=0)
    if report is not None:
        unfinished = _unfinished_outcome([report], panel)
        if unfinished is not None:
            return unfinished
    tests, reasons = _tests_before_look(panel, baseline, looks, target_folder)
    if tests is None:
        _record_not_made(ledger, begun, "; ".join(reasons))
        write_page(ledger, options.say)
        no_evidence = f"look {number} is not evidence: it cannot be compared with the baseline"
        next_step = "undo the changes, or start a new baseline with --new_baseline WHY"
        raise PrerequisiteError("\n  ".join([no_evidence, *reasons, next_step]))
    measurement = measure(target_folder, limits)
    line = ledger.append(
        LOOK,
        **common_fields,
        # The number of this look among the looks since the baseline that are evidence. The number
        # `look` also counts looks that were not made, and looks of earlier baselines.
        evidence=len(looks) + 1,
        folder=folder.relative_to(panel.folder).as_posix(),
        values=write_values(folder, measurement),  # the SHA-256 of the values' file
        runs=run_entries_of(target_folder, panel.folder, limits),
        **tests.add_look(number, measurement),
        **_reread_baseline_entry(baseline, tests),
        **{READER_FIELD: READER_VERSION},
    )
    return _look_outcome(panel, ledger, options, baseline, line)


def _look_outcome(
    panel: Panel, ledger: Ledger, options: RunOptions, baseline: Line, line: Line
) -> MonitorOutcome:
    """Write the page, and return the outcome of the look in `line`."""
    prefix = f"look {line['look']} ({line['evidence']} of {baseline['looks']})"
    lines = [*screen_lines(limits_table(baseline, [line])), *look_lines(baseline, line)]
    if line["alarm"] is None:
        outcome = Outcome.IN_CONTROL
        headline = f"{prefix}: in control"
        lines += drops_rarely_found(baseline)
    else:
        outcome = Outcome.ALARM
        headline = f"{prefix}: ALARM: {alarm_words(baseline, line['alarm'])}"
        note = f"eval-factory monitor note {shlex.quote(str(panel.folder))} TEXT --by NAME"
        lines.append(
            f"write down what you do about the alarm: {note}; "
            "the alarm stays until a new baseline is made (--new_baseline WHY)"
        )
    return _write_page_and_report(ledger, options, outcome, line, [headline, *lines])


def _reread_baseline_entry(baseline: Line, tests: PanelTests) -> dict[str, Any]:
    """Return the ledger's entry for the baseline's figures, if they were computed again.

    They are computed again if another version of `reading` read the baseline's answers. The entry
    has the figures of each limit, by the present version.
    """
    if reader_version_of(baseline) == READER_VERSION:
        return {}
    return {BASELINE_AGAIN_FIELD: tests.baseline_entries()["limits"]}


def _identities(
    panel: Panel, folder: Path, earlier_lines: Sequence[Line], options: RunOptions
) -> dict[str, str]:
    """Return the identity of the look's run of each task.

    Args:
        panel: the panel.
        folder: the folder of the look.
        earlier_lines: the ledger's lines of the baseline and of the earlier looks.
        options: has the folder of the imported result, if another program asks the panel.

    Raises:
        ConfigError: The panel already has the imported result, or there is not exactly one.
    """
    if not panel.takes_imported_results:
        return panel.identities(folder)
    earlier_runs = run_folders_of(panel.folder, earlier_lines)
    refuse_unequal(options.imported, panel.names, count=1, earlier_runs=earlier_runs)
    return identities_of(result_folders(options.imported[0], panel.names))


def _tests_before_look(
    panel: Panel, baseline: Line, looks: Sequence[Line], target_folder: Path
) -> tuple[PanelTests | None, list[str]]:
    """Return the tests after all earlier looks, with all answers read by one version of `reading`.

    If the new look may not be compared with the baseline, return None and the reasons.
    `target_folder` has the runs of the new look.
    """
    baseline_folder = panel.folder / baseline["repeats"][0]["folder"] / panel.target_name
    with read_by_one_version(
        run_folders_of(panel.folder, [baseline, *looks]), other_version=READER_VERSION
    ) as load:
        reasons = list(
            reasons_not_to_compare(baseline_folder, target_folder, panel.limits, load=load)
        )
        if reasons:
            return None, reasons
        return replayed_tests(baseline, panel.folder, looks, load=load), []


def _record_not_made(ledger: Ledger, begun: Line, reason: str) -> None:
    """Write into the ledger that a started look was not made."""
    ledger.append(
        NOT_MADE, epoch=begun["epoch"], panel=begun["panel"], look=begun["look"], reason=reason
    )


def _refuse_different_panel(panel: Panel, baseline: Line, identities: Mapping[str, str]) -> None:
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


def _write_page_and_report(
    ledger: Ledger, options: RunOptions, outcome: Outcome, line: Line, lines: Sequence[str]
) -> MonitorOutcome:
    """Write the page, and return the outcome with lines about the page and the ledger.

    Args:
        ledger: the ledger of the panel.
        options: the options for asking the panel.
        outcome: the outcome of the baseline or the look.
        line: the new line of the ledger.
        lines: the lines for the screen before those about the page and the ledger.
    """
    head = write_page(ledger, options.say)
    shown = [*lines, f"page: {ledger.folder / PAGE_FILE}", f"ledger: line {line['number']}, {head}"]
    return MonitorOutcome(
        outcome,
        exit_code=int(outcome == Outcome.ALARM),
        folder=ledger.folder,
        lines=shown,
        line=line,
        head=head,
    )


def _look_command(panel: Panel) -> str:
    """Return the command that makes the next look."""
    file = shlex.quote(str(panel.file))
    if panel.takes_imported_results:
        return f"eval-factory monitor look {file} --from DIR"
    return f"eval-factory monitor {file}"


def write_page(ledger: Ledger, say: Callable[[str], object]) -> str:
    """Write the page of the ledger, and return the hash of the ledger's last line."""
    history = ledger.read()
    try:
        write_atomic(ledger.folder / PAGE_FILE, monitor_page(ledger.folder.name, history))
    except OSError as error:  # go on: an alarm must be reported even if the page cannot be written
        next_step = f"eval-factory monitor report {shlex.quote(str(ledger.folder))}"
        say(f"the page cannot be written: {error.strerror or error}; write it later: {next_step}")
    return history.head


def expected_findings_lines(panel: Panel) -> list[str]:
    """Return lines about the drops that the panel can be expected to find, before it is asked.

    Before the first answers, each question counts as a source of its own, and each metric as a
    share from 0 to 1. There is a line for each assumed flip rate: the share of answers that differ
    between two runs.
    """
    section = panel.section
    alpha = Rules.of(vars(section)).harm_alpha
    units = []
    max_drops = []
    for task in section.tasks:
        number_of_questions = min(task.size, simulation.MAX_SIMULATED_INSTANCES)
        units.append(np.arange(number_of_questions))  # each question is a unit of its own
        max_drops.append(min(float(task.max_drop), 1.0))
    findings_by_flip_rate = simulation.assumed_findings(
        units, max_drops, repeats=section.baseline.repeats, looks=section.looks, alpha=alpha
    )
    # `assumed_findings_lines` takes the findings as mappings, as the ledger has them.
    mappings_by_flip_rate = {}
    for flip_rate, findings in findings_by_flip_rate.items():
        mappings_by_flip_rate[flip_rate] = [asdict(finding) for finding in findings]
    return list(assumed_findings_lines(mappings_by_flip_rate))


def write_note(ledger: Ledger, text: str, by: str, say: Callable[[str], object]) -> Line:
    """Write a user's note into the ledger, such as the cause of an alarm.

    Raises:
        ConfigError: The panel has no baseline yet.
        PrerequisiteError: The ledger was changed, or it cannot be written.
    """
    history = ledger.intact_history()
    if history.baseline is None:
        raise ConfigError(f"{ledger.folder}: has no baseline yet, and a note needs one")
    line = ledger.append(
        NOTE, epoch=history.epoch, panel=history.baseline["panel"], by=by, text=text
    )
    write_page(ledger, say)
    return line


def decide_change(panel: Panel, new_target: Path, options: RunOptions) -> MonitorOutcome:
    """Ask the watched model and a new model, and let the gate's policy decide about the change.

    If the policy passes, a new baseline is made with the new model, which is watched from then on.
    Otherwise nothing changes. The ledger records the decision and its reasons.

    Args:
        panel: the panel.
        new_target: a file with `target`, in the form of a run config.
        options: the options for asking the panel.

    Raises:
        ConfigError: The panel has no plan of change or no baseline yet, or a file is wrong.
        PrerequisiteError: As for `make_baseline_or_look`.
        InterruptedRunError: As for `make_baseline_or_look`.
    """
    policy = load_policy(panel.policy)
    new_panel = panel.with_target(_target_in(new_target))
    planned_folder = panel.folder / "changes" / "0"  # to plan runs in it; it is never created
    _refuse_unknown_tasks(policy, new_panel, planned_folder)
    ledger = Ledger(panel.folder)
    with ledger.lock_panel(options.say):
        history = ledger.intact_history()
        baseline = _baseline_for(policy, panel, history)
        fixed_of_new = new_panel.fixed_settings(new_panel.identities(planned_folder))
        line = _approved_before(history, fixed_of_new)
        if line is not None:  # an earlier call stopped after the approval, before the new baseline
            lines: Sequence[str] = [f"change {line['change']} was approved at {line['at']}"]
        else:
            _refuse_different_panel(panel, baseline, panel.identities(planned_folder))
            number = 1 + len(history.of_kind(CHANGE))
            change = _Change(number, panel, new_panel)
            decision = _ask_and_decide(change, policy, ledger, baseline, options)
            if decision.outcome != Verdict.PASS:
                return decision
            line = decision.line
            lines = decision.lines
        baseline_outcome = _make_baseline_of_new_model(new_panel, ledger, options)
    outcome = baseline_outcome.outcome
    if outcome == Outcome.BASELINE:  # the change is complete
        outcome = Verdict.PASS
    all_lines = [*lines, *baseline_outcome.lines]
    return replace(baseline_outcome, outcome=outcome, lines=all_lines, line=line)


@dataclass(frozen=True)
class _Change:
    """A change of the watched model, about which the gate's policy decides."""

    number: int  # changes are numbered from 1
    panel: Panel  # with the watched model
    new_panel: Panel  # the same panel with the new model

    @property
    def folder(self) -> Path:
        """The folder of the runs of both models."""
        return self.panel.folder / "changes" / f"{self.number:04}"


def _ask_and_decide(
    change: _Change, policy: Policy, ledger: Ledger, baseline: Line, options: RunOptions
) -> MonitorOutcome:
    """Ask both models, write the decision of the policy into the ledger, and return the outcome."""
    panel = change.panel
    folder = change.folder
    targets = [
        {**panel.document["target"], "name": WATCHED_MODEL},
        {**change.new_panel.document["target"], "name": NEW_MODEL},
    ]
    report = _ask_suite(panel.suite(folder, targets), options)
    unfinished = _unfinished_outcome([report], panel)
    if unfinished is not None:
        return unfinished
    result = evaluate_policy(policy, [folder / NEW_MODEL], [folder / WATCHED_MODEL])
    line = ledger.append(
        CHANGE,
        epoch=baseline["epoch"],
        panel=baseline["panel"],
        change=change.number,
        **_decision(change, result),
    )
    write_page(ledger, options.say)
    lines = gate_text(result).splitlines()
    if result.outcome != Verdict.PASS:
        lines.append(f"nothing is changed: the panel continues to watch {panel.model}")
    return MonitorOutcome(
        result.outcome,
        exit_code=result.exit_code,
        folder=panel.folder,
        lines=lines,
        line=line,
    )


def _make_baseline_of_new_model(
    new_panel: Panel, ledger: Ledger, options: RunOptions
) -> MonitorOutcome:
    """Make the baseline of an approved new model. `new_panel` is the panel with the new model."""
    why = f"the model was changed to {new_panel.model}, by the plan of change"
    advice = (
        f"make looks with 'eval-factory monitor {new_panel.folder / PANEL_FILE}', "
        "or copy its `target` into your panel"
    )
    next_step = f"the new model is watched from now on: {advice}"
    return _make_baseline(new_panel, ledger, options, why, next_step=next_step)


def _refuse_unknown_tasks(policy: Policy, panel: Panel, folder: Path) -> None:
    """Check that the panel has all tasks of the policy. Raises ConfigError if one is missing."""
    planned = {run.plan.task_name for run in panel.planned_runs(folder)}
    unknown = {benchmark.task for benchmark in policy.benchmarks} - planned
    if unknown:
        names = ", ".join(sorted(planned))
        raise ConfigError(
            f"{policy.path}: names {', '.join(sorted(unknown))}, but the panel has {names}"
        )


def _baseline_for(policy: Policy, panel: Panel, history: History) -> Line:
    """Return the current baseline.

    Raises:
        ConfigError: There is no baseline yet, or it was made with another policy.
    """
    baseline = history.baseline
    if baseline is None:
        command = _look_command(panel)
        raise ConfigError(f"{panel.file}: has no baseline yet: make it with '{command}'")
    if policy.sha256 != baseline["policy_sha256"]:
        raise ConfigError(
            f"{policy.path}: is not the policy of the baseline of {baseline['at']}; the rules of a "
            "change are fixed with the baseline: restore that policy, "
            "or start a new baseline with --new_baseline WHY"
        )
    return baseline


def _decision(change: _Change, result: GateResult) -> dict[str, Any]:
    """Return the ledger's entries for a decided change.

    `old` and `new` describe the watched and the new model, `outcome` is the decision of the gate,
    `checks` has the messages of its checks, and `runs` the runs of both models.
    """
    panel = change.panel
    new_panel = change.new_panel
    folder = change.folder
    checks: list[str] = []
    for benchmark in result.benchmarks:
        checks += [f"{benchmark.task}: {check.message}" for check in benchmark.checks]
    runs: list[dict[str, Any]] = []
    for name in (WATCHED_MODEL, NEW_MODEL):
        runs += run_entries_of(folder / name, panel.folder, panel.limits)
    return {
        "folder": folder.relative_to(panel.folder).as_posix(),
        "old": {"name": panel.target_name, "model": panel.model},
        "new": {
            "name": new_panel.target_name,
            "model": new_panel.model,
            "fixed": new_panel.fixed_settings(new_panel.identities(folder)),
        },
        "outcome": result.outcome,
        "policy_sha256": result.policy_sha256,
        "checks": checks,
        "runs": runs,
    }


def _target_in(file: Path) -> dict[str, Any]:
    """Return the section `target` of a file.

    Raises:
        ConfigError: The file has no `target`, or it has other keys.
    """
    document = load_mapping(file, needs="`target:` with `api_endpoint`, as a run config has it")
    target = document.get("target")
    if not isinstance(target, dict) or set(document) != {"target"}:
        raise ConfigError(f"{file}: must contain `target:` with `api_endpoint`, and nothing else")
    return target


def _approved_before(history: History, fixed: Mapping[str, Any]) -> Line | None:
    """Return the line of an approved change to this model whose baseline was not completed.

    `fixed` are the fixed settings of the panel with this model. Return None if there is no such
    change.
    """
    for line in reversed(history.lines):
        if line["kind"] == BASELINE:
            return None
        if line["kind"] == CHANGE:
            if line["outcome"] == Verdict.PASS and line["new"]["fixed"] == fixed:
                return line
            return None
    return None
