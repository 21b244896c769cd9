"""Asks a panel of questions once, and reports the outcome to the command.

A panel is a fixed sample of questions. Its baseline, its looks and its changes all ask it with the
functions of this module, write its page, and end in a `MonitorOutcome`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus, TextEnum
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.monitor.ledger import Ledger, Line
from eval_factory.monitor.made_elsewhere import copy_results
from eval_factory.monitor.panel import Panel
from eval_factory.monitor.panel_page import monitor_page
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


def ask(
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
    return ask_suite(panel.suite(folder), options)


def ask_suite(suite: Suite, options: RunOptions) -> SuiteReport:
    """Run the suite of one asking, and show its progress."""
    with options.progress_view(suite.folder) as observer:
        return run_suite(suite, options.suite_options, env=options.env, screen=observer)


def unfinished_outcome(reports: Sequence[SuiteReport], panel: Panel) -> MonitorOutcome | None:
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


def write_page_and_report(
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


def look_command(panel: Panel) -> str:
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
