"""Makes the looks of a panel, and writes the user's notes about them.

A panel is a fixed sample of questions. Its baseline (`baseline.py`) asks the panel several times.
A look asks the panel once more, tests the answers against the baseline, and writes a line into the
ledger, the file that records all that happened to the panel. The reader (the package `reading`)
finds the option that an answer states; a look is only tested against answers that the same version
of the reader read.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir, suite_dir
from eval_factory.core.tables import screen_lines
from eval_factory.monitor.asking import (
    MonitorOutcome,
    Outcome,
    RunOptions,
    ask,
    look_command,
    unfinished_outcome,
    write_page,
    write_page_and_report,
)
from eval_factory.monitor.baseline import (
    asks_for_more_repeats,
    make_baseline,
    refuse_different_panel,
)
from eval_factory.monitor.course import PanelTests, replayed_tests
from eval_factory.monitor.ledger import (
    BASELINE_AGAIN_FIELD,
    BEGUN,
    LOOK,
    NOTE,
    READER_FIELD,
    History,
    Ledger,
    Line,
    is_older_than,
    reader_version_of,
)
from eval_factory.monitor.made_elsewhere import (
    identities_of,
    refuse_unequal,
    refuse_unfit,
    result_folders,
)
from eval_factory.monitor.measurement import (
    measure,
    reasons_not_to_compare,
    run_entries_of,
    run_folders_of,
    write_values,
)
from eval_factory.monitor.panel import IMPORTED, Panel
from eval_factory.monitor.report import alarm_words, drops_rarely_found, limits_table, look_lines
from eval_factory.reading import READER_VERSION
from eval_factory.workflows.read_again import read_by_one_version


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
            needs_more_runs = asks_for_more_repeats(panel, baseline, history.looks)
            if not needs_more_runs:
                return _make_look(panel, ledger, history, baseline, options)
        next_step = f"next: {look_command(panel)}"
        return make_baseline(panel, ledger, options, why_new_baseline, next_step=next_step)


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
    ledger.record_not_made(begun, reason)
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
    refuse_different_panel(panel, baseline, identities)
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
    report = ask(panel, folder, options, imported_index=0)
    if report is not None:
        unfinished = unfinished_outcome([report], panel)
        if unfinished is not None:
            return unfinished
    tests, reasons = _tests_before_look(panel, baseline, looks, target_folder)
    if tests is None:
        ledger.record_not_made(begun, "; ".join(reasons))
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
    return write_page_and_report(ledger, options, outcome, line, [headline, *lines])


def _reread_baseline_entry(baseline: Line, tests: PanelTests) -> dict[str, Any]:
    """Return the ledger's entry for the baseline's figures, if they were computed again.

    They are computed again if another version of the reader read the baseline's answers. The entry
    has the figures of each limit, by the present version.
    """
    if reader_version_of(baseline) == READER_VERSION:
        return {}
    return {BASELINE_AGAIN_FIELD: tests.baseline_entries()["limits"]}


def _identities(
    panel: Panel, folder: Path, earlier_lines: Sequence[Line], options: RunOptions
) -> dict[str, str]:
    """Return the identity of the look's run of each task: a hash of all that shapes its answers.

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
    """Return the tests after all earlier looks, with all answers read by one reader version.

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
