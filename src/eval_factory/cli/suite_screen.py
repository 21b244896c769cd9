"""Shows the progress and the outcome of suites on the screen.

A terminal shows a live table, any other stream gets plain lines, and programs get JSON records. A
cell of a suite is one evaluation of one target.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, NamedTuple, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eval_factory.cli.console import (
    has_no_reader,
    text_width,
    tolerant_stream,
    wrapped,
    write_record,
)
from eval_factory.cli.folder_commands import MAX_SHOWN_FINDINGS
from eval_factory.cli.run_command import RunOutput
from eval_factory.core import formats
from eval_factory.core.enums import RunStatus
from eval_factory.core.foreign_text import one_line, printable_lines
from eval_factory.core.formats import counted
from eval_factory.core.run_statuses import GOING_ON, RUN_STATUSES, WITH_RESULT
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.this_process import ignore_sighup
from eval_factory.executors.progress import duration, short_number
from eval_factory.workflows.suite import suite_journal as journal
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.suite_check import SuiteCheck
from eval_factory.workflows.suite.suite_journal import Pause, SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteReport
from eval_factory.workflows.suite.suite_status import (
    CellFigures,
    CellProgress,
    CellStatus,
    SuiteReader,
    SuiteStatus,
)

_PLAIN_INTERVAL_S = 10.0  # the time between two lines of progress, in seconds
REFRESH_S = 0.25  # the time between two updates of the live table, in seconds
_WATCH_INTERVAL_S = 1.0  # the time between two readings by `suite status --watch`, in seconds
# Widths in characters.
_STATUS_WIDTH = max(map(len, RUN_STATUSES))  # of the column with the status
# The maximum width of the name of a cell in the live table. Only the live table cuts longer names;
# all other outputs show the complete name.
MAX_NAME = 36
_MIN_NAME = 12  # on a narrow terminal, the name in the live table is cut to this width
_GAPS = 4  # the gaps between the three columns of the live table
_UNLIMITED = 1000  # a width that no text reaches
_RESUME_HINT = "the same command goes on:"  # the next line is the command


class CellRow(NamedTuple):
    """A cell's line on the screen: the name, the status, and a text."""

    name: str
    status: RunStatus
    text: str  # progress, result or reason


def cell_rows(status: SuiteStatus, max_text: int = _UNLIMITED) -> list[CellRow]:
    """Return a row for each cell. Counts that do not fit in `max_text` characters are left out."""
    paused = set(chain.from_iterable(pause.cells for pause in status.pauses))
    rows: list[CellRow] = []
    for cell in status.cells:
        if cell.progress is not None:
            text = _progress_text(cell, cell.progress, max_text)
        else:
            text = _outcome_text(cell, is_paused=cell.name in paused)
        rows.append(CellRow(one_line(cell.name), cell.status, text))
    return rows


def rows_that_fit(rows: Sequence[CellRow], max_rows: int) -> tuple[list[CellRow], str]:
    """Return the rows that fit in `max_rows` lines, in their order, and a text about hidden rows.

    The text is `and 3 waiting, 2 complete`, or empty if no row is hidden. The text needs one of the
    lines. The statuses that come first in `RUN_STATUSES` are hidden last.
    """
    if len(rows) <= max_rows:
        return list(rows), ""
    order = list(RUN_STATUSES)
    # the numbers of the rows; the first numbers are shown
    by_priority = sorted(range(len(rows)), key=lambda number: order.index(rows[number].status))
    shown = set(by_priority[: max(0, max_rows - 1)])
    hidden_statuses = [row.status for number, row in enumerate(rows) if number not in shown]
    counts = []
    for status in order:
        if status in hidden_statuses:
            counts.append(f"{hidden_statuses.count(status)} {status}")
    return [rows[number] for number in sorted(shown)], f"and {', '.join(counts)}"


def counts_line(status: SuiteStatus) -> str:
    """Return the number of cells by status: `15 cells: 4 running, 7 waiting, 3 complete`."""
    line = counted(len(status.cells), "cell")
    if status.counts:
        counts = ", ".join(f"{count} {name}" for name, count in status.counts.items())
        line += f": {counts}"
    return line


def spent_line(status: SuiteStatus) -> str:
    """Return a text with the requests, tokens and cost of the suite so far, and with its limits.

    For example: `asked so far: 1234 requests, 56.7k tokens, 0.12 USD; limits: max_cost 5`.
    """
    spent = status.spent
    line = f"asked so far: {spent.requests} requests, {short_number(spent.tokens)} tokens"
    if spent.cost:
        line += f", {formats.money(spent.cost)}"
    if status.limits:
        limits = ", ".join(f"{name} {value:g}" for name, value in status.limits.items())
        line += f"; limits: {limits}"
    return line


def progress_line(status: SuiteStatus) -> str:
    """Return the progress as a text: `2/15 cells ended, 4 running: 340/1200 requests, 2 failed`."""
    running = 0
    request_counts = []  # of the running cells that have sent requests
    for cell in status.cells:
        if cell.progress is not None:
            running += 1
            if cell.progress.counts is not None:
                request_counts.append(cell.progress.counts)
    ended = sum(cell.status not in GOING_ON for cell in status.cells)
    line = f"{ended}/{len(status.cells)} cells ended, {running} running"
    if not request_counts:
        return line
    sums = dict.fromkeys(("done", "total", "failed"), 0)
    for counts in request_counts:
        for name in sums:
            sums[name] += counts[name]
    return f"{line}: {sums['done']}/{sums['total']} requests, {sums['failed']} failed"


def pause_line(pause: Pause, now: float) -> str:
    """Return a line about an endpoint for which cells wait.

    The line has the endpoint, the reason, the number of cells, and the duration of the pause.
    """
    count = counted(len(pause.cells), "cell")
    return (
        f"paused: {one_line(pause.group)}: {one_line(pause.reason)} "
        f"({count}{_duration_text(pause.since, now)})"
    )


def state_line(status: SuiteStatus, now: float) -> str:
    """Return a line about whether the suite is running, for how long, or when it ended."""
    folder = one_line(str(status.folder.chosen_folder))
    if status.state == suite_status.RUNNING:
        process = ""
        if status.pid:
            process = f" (process {status.pid} on {one_line(str(status.host))})"
        return f"{folder}: running{process}{_duration_text(status.started, now)}"
    if status.state == suite_status.ENDED:
        ended = ""
        if status.ended is not None:
            ended = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(status.ended))
        code = ""
        if status.exit_code is not None:
            code = f", exit code {status.exit_code}"
        return f"{folder}: not running; ended{ended}{code}"
    return f"{folder}: not running; it was stopped before its end"


def status_lines(status: SuiteStatus, now: float) -> list[str]:
    """Return all lines about the state of a suite."""
    return [
        state_line(status, now),
        *(pause_line(pause, now) for pause in status.pauses),
        *(f"  {line}" for line in cell_lines(status)),
        counts_line(status),
        spent_line(status),
        *(f"  log of a server: {one_line(str(log))}" for log in status.folder.server_logs),
        *resume_lines(status),
    ]


def cell_lines(status: SuiteStatus) -> list[str]:
    """Return a line for each cell, aligned in columns."""
    rows = cell_rows(status)
    width = max((len(row.name) for row in rows), default=0)
    lines: list[str] = []
    for row in rows:
        lines.append(f"{row.name:<{width}}  {row.status:<{_STATUS_WIDTH}}  {row.text}".rstrip())
    return lines


def resume_lines(status: SuiteStatus) -> list[str]:
    """Return the command that resumes the suite, if the suite is neither running nor complete."""
    if status.state == suite_status.RUNNING or status.is_complete:
        return []
    return [_RESUME_HINT, f"  {suite_status.resume_command(status)}"]


def result_text(figures: CellFigures) -> str:
    """Return the score as a text: `exact_match 0.7100 (0.6000 .. 0.8200), n 100`."""
    if figures.value is None:
        return f"{one_line(figures.main_metric)} could not be computed"
    text = f"{one_line(figures.main_metric)} {formats.score(figures.value)}"
    if figures.ci_low is not None and figures.ci_high is not None:
        text += f" ({formats.between(figures.ci_low, figures.ci_high)})"
    text += f", n {figures.n}"
    if not figures.reportable:
        return f"{text}, not reportable"
    if figures.doubt is not None:
        return f"{text}, {figures.doubt}"
    return text


def _progress_text(cell: CellStatus, progress: CellProgress, max_text: int) -> str:
    """Return the phase and the counts of a running cell, in about `max_text` characters."""
    number, run_count = progress.run
    phase = one_line(progress.phase)
    if run_count > 1:
        phase = f"{number}/{run_count} {phase}"
    counts = progress.counts_text(max_text - len(f"{phase}: "))
    text = phase
    if cell.attempt > 1:
        text += f" (attempt {cell.attempt})"
    if counts:
        text += f": {one_line(counts)}"
    if cell.job is not None and cell.job.task is not None:
        text += f"; {one_line(cell.job.task)}"
    return text


def _outcome_text(cell: CellStatus, *, is_paused: bool) -> str:
    """Return the result of a cell that is not running, and the reason of its status.

    `is_paused`: True if the cell waits for its endpoint.
    """
    reason = cell.reason
    if cell.status == RunStatus.WAITING:
        if is_paused:
            reason = "waits for its endpoint"
        elif cell.job is None:
            reason = None  # without a job, the status says enough
    result = ""
    if cell.figures is not None:
        result = result_text(cell.figures)
    return "; ".join(
        journal.outcome_parts(result, reason, cell.reused_from, collected=cell.collected)
    )


def _duration_text(since: float | None, now: float) -> str:
    """Return a text such as `, for 5 min`; "" if the start is unknown."""
    if since is None:
        return ""
    return f", for {duration(max(0.0, now - since))}"


def text_of_check(checked: SuiteCheck) -> str:
    """Return the findings of a check of a suite as a text for the screen."""
    total = counted(len(checked.cells), "cell")
    outcome = f"complete: {total}"
    if checked.incomplete:
        outcome = f"not complete: {len(checked.incomplete)} of {total} without a complete result"
    lines = [f"{checked.folder.root}: {outcome}"]
    for cell in checked.incomplete:
        reason = f": {one_line(cell.reason)}" if cell.reason else ""
        lines.append(f"  {cell.name}: {cell.status}{reason}")
        for action in cell.to_do:
            first_line, *further_lines = action.split("\n")
            lines.append(f"    to do: {first_line}")
            lines += [f"      {line.strip()}" for line in further_lines]
    lines += [
        f"  altered: {one_line(str(finding))}" for finding in checked.altered[:MAX_SHOWN_FINDINGS]
    ]
    if len(checked.altered) > MAX_SHOWN_FINDINGS:
        lines.append(f"  altered: {len(checked.altered) - MAX_SHOWN_FINDINGS} more (--json)")
    for cell in checked.cells:
        if cell.is_complete and cell.reason:
            lines.append(f"  note: {cell.name}: {one_line(cell.reason)}")
    if checked.running:
        lines.append("the suite is running: see 'eval-factory suite status'")
    elif checked.incomplete:
        lines += [_RESUME_HINT, f"  {checked.command}"]
    elif not checked.in_table:
        lines += [
            "results are newer than the table: the same command only collects them into the table:",
            f"  {checked.command}",
        ]
    return printable_lines("\n".join(lines))


def progress_view(folder: SuiteDir, output: RunOutput) -> SuiteScreen:
    """Return the observer that shows a suite in the form that the command's options ask for."""
    return SuiteScreen(output.screen(), folder, records=output.stdout if output.as_json else None)


class SuiteScreen(SuiteObserver):
    """An observer that shows a running suite on a terminal or another stream."""

    def __init__(
        self,
        stream: TextIO,
        folder: SuiteDir,
        clock: Callable[[], float] = time.time,
        records: TextIO | None = None,
    ) -> None:
        """
        Args:
            stream: The stream for the table or the lines.
            folder: The folder of the suite.
            clock: A function that returns the current time, in seconds.
            records: The stream for JSON records, which gets a record when the cells are known; or
                None.
        """
        # A log always gets plain lines, even if FORCE_COLOR or a similar variable is set.
        is_terminal = stream.isatty()
        self._console = Console(
            file=stream, highlight=False, soft_wrap=True, force_terminal=is_terminal
        )
        self._folder = folder
        self._reader = SuiteReader(folder)
        self._clock = clock
        # the time at which `tick` last read the state; 0: the next call reads the state at once
        self._last_tick = 0.0
        self._records = records
        self._live: Live | None = None
        if self._console.is_interactive:  # False on a terminal that cannot overwrite lines
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
            )

    def __enter__(self) -> SuiteScreen:
        """Start the live table."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live table."""
        if self._live is not None:
            # The lines that are printed next contain all facts of the table.
            self._live.update(Group())
            self._live.stop()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Show an event of the suite's journal."""
        if self._records is not None and event.get("event") == journal.SUITE_STARTED:
            facts = {name: event.get(name) for name in ("pid", "host", "total", "cells")}
            write_record(
                self._records, {"event": "launch", "suite": str(self._folder.root), **facts}
            )
        if self._live is not None:
            self._last_tick = 0.0  # updates the table at once, before the interval is over
            self.tick()
            return
        result = ""
        if event["event"] == journal.CELL_ENDED and event["status"] in WITH_RESULT:
            figures = suite_status.read_cell_figures(
                self._folder.cell_folder(*journal.cell_key(event))
            )
            if figures is not None:
                result = result_text(figures)
        line = journal.event_line(event, result)
        if line is None:
            return
        if event["event"] == journal.SUITE_STARTED:
            line = f"{self._folder.root}: {line}"
        self.say(one_line(line))

    def tick(self) -> None:
        """Show the progress of the cells, if the interval since the last update is over."""
        now = self._clock()
        interval = _PLAIN_INTERVAL_S if self._live is None else REFRESH_S
        if now - self._last_tick < interval:
            return
        status = self._reader.read_status()
        if self._live is not None:
            self._live.update(live_table(status, self._console, now), refresh=True)
        # The first call prints no line: it only starts the interval.
        elif self._last_tick and any(cell.progress is not None for cell in status.cells):
            self.say(f"  {progress_line(status)}")
        self._last_tick = now

    def say(self, text: str) -> None:
        """Print a line, which is not overwritten later."""
        self._console.print(printable_lines(text), markup=False)


def live_table(status: SuiteStatus, console: Console, now: float) -> Group:
    """Return the live table: the suite's state and its cells, in at most the terminal's lines."""
    width, height = console.size
    lines = [state_line(status, now), counts_line(status), spent_line(status)]
    header = [_cropped(line) for line in lines]
    header += [_cropped(pause_line(pause, now), "yellow") for pause in status.pauses]
    header = header[: max(1, height // 2)]  # many pauses must not hide the cells
    longest_name = max((len(cell.name) for cell in status.cells), default=0)
    name_width = min(MAX_NAME, longest_name)
    rows = cell_rows(status, max_text=max(0, width - name_width - _STATUS_WIDTH - _GAPS))
    # The terminal's last line stays empty: the cursor is there.
    shown, hidden = rows_that_fit(rows, max(0, height - len(header) - 1))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1), expand=True)
    table.add_column(
        no_wrap=True,
        overflow="ellipsis",
        max_width=name_width,
        min_width=min(name_width, _MIN_NAME),
    )
    table.add_column(no_wrap=True, width=_STATUS_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        table.add_row(
            Text(row.name), Text(row.status, style=RUN_STATUSES[row.status].style), Text(row.text)
        )
    footer = [_cropped(hidden, "dim")] if hidden else []
    return Group(*header, table, *footer)


def _cropped(line: str, style: str = "") -> Text:
    """Return the line as a text that is cut at the width of the terminal."""
    return Text(line, style, no_wrap=True, overflow="ellipsis")


def show_end(report: SuiteReport, output: RunOutput) -> None:
    """Write the outcome to standard output, and the reason of a failure to standard error."""
    with ignore_sighup():
        status = suite_status.read_suite_status(report.folder)
        if output.as_json:
            write_record(output.stdout, suite_end_record(report, status))
        elif output.quiet:
            output.stdout.write(printable_lines(report.summary.split("\n")[0]) + "\n")
        else:
            lines = [*cell_lines(status), spent_line(status), *report.summary.split("\n")]
            write_lines(lines, output.stdout)
        if report.exit_code and not output.as_json:
            causes = [cell for cell in report.cells if cell.exit_code == report.exit_code]
            if causes:
                why = f"{causes[0].name}: {one_line(causes[0].reason or causes[0].status)}"
            else:
                # The last line of the summary has the reason: usually why the table of results
                # could not be written.
                why = report.summary.split("\n")[-1]
            screen = tolerant_stream(sys.stderr)
            text = printable_lines(f"exit code {report.exit_code}: {why}")
            screen.write(wrapped(text, text_width(screen)) + "\n")


def write_lines(lines: Iterable[str], stdout: TextIO) -> None:
    """Write the lines. On a terminal, long lines are wrapped, except commands that users copy."""
    for line in lines:
        is_command = line.startswith("  eval-factory ")
        text = line
        if stdout.isatty() and not is_command:
            text = wrapped(line, text_width(stdout))
        stdout.write(printable_lines(text) + "\n")


def suite_end_record(report: SuiteReport, status: SuiteStatus) -> dict[str, Any]:
    """Return the record of the suite's end, with the main numbers of all cells."""
    return {
        **suite_status.status_document(status),
        "event": "end",
        "exit_code": report.exit_code,
        "status": report.status,
        "results": str(report.folder.results_yaml),
        "error": None,  # the suite came to its end; a failed command ends with `failure_record`
    }


def show_status(status: SuiteStatus, stdout: TextIO, *, as_json: bool) -> None:
    """Write the state of a suite as lines or as a JSON record."""
    if as_json:
        stdout.write(json.dumps(suite_status.status_document(status)) + "\n")
    else:
        write_lines(status_lines(status, time.time()), stdout)


def watch(
    reader: SuiteReader,
    stdout: TextIO,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show a suite until it ends, or until nobody reads standard output any more.

    Shows the same table or lines as `run_suite`, or, with `as_json`, a record for each change.
    """
    last_record = ""
    view: AbstractContextManager[SuiteScreen | None] = nullcontext()  # JSON records need no screen
    if not as_json:
        view = SuiteScreen(stdout, reader.folder)
    with view as screen:
        while True:
            status = reader.read_status()
            if as_json:
                record = json.dumps(suite_status.status_document(status))
                if record != last_record:
                    stdout.write(f"{record}\n")
                last_record = record
            # `stdout` has no file descriptor, so its reader is looked for at `sys.stdout`.
            if status.state != suite_status.RUNNING or has_no_reader(sys.stdout):
                break
            if screen is not None:
                screen.tick()
            sleep(_WATCH_INTERVAL_S)
    if not as_json:
        show_status(reader.read_status(), stdout, as_json=False)
