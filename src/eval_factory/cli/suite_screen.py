"""The screens of `run_suite` and `suite`: a live table on a terminal, plain lines elsewhere,
records for programs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eval_factory.cli.console import columns, has_no_reader, tolerant_stream, wrapped, write_record
from eval_factory.cli.folder_commands import MAX_SHOWN
from eval_factory.cli.run_command import RunOutput
from eval_factory.core import formats
from eval_factory.core.enums import RunStatus
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.formats import counted
from eval_factory.core.run_statuses import GOING_ON, RUN_STATUSES, WITH_RESULT
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.this_process import ignore_sighup
from eval_factory.executors.progress import duration, short_number
from eval_factory.workflows.suite import suite_journal as journal
from eval_factory.workflows.suite import suite_status as view
from eval_factory.workflows.suite.suite_check import SuiteCheck
from eval_factory.workflows.suite.suite_journal import Pause, SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteReport
from eval_factory.workflows.suite.suite_status import (
    CellFigures,
    CellStatus,
    SuiteReader,
    SuiteStatus,
)

_PLAIN_INTERVAL_S = 10.0
REFRESH_S = 0.25
_STATUS_WIDTH = max(map(len, RUN_STATUSES))
_INTERVAL_S = 1.0
# columns that a cell's name may take on a screen of 80; a longer one is cut there, and never
# elsewhere
MAX_NAME = 36
_GOES_ON = "the same command goes on:"


class CellRow(NamedTuple):
    """A cell's line."""

    name: str
    status: RunStatus
    text: str


def cell_rows(status: SuiteStatus, room: int = 1000) -> list[CellRow]:
    """Return a line for each cell. `room`: columns for what stands beside its status."""
    paused = set(chain.from_iterable(pause.cells for pause in status.pauses))
    rows: list[CellRow] = []
    for cell in status.cells:
        rows.append(CellRow(one_line(cell.name), cell.status, _what(cell, paused, room)))
    return rows


def rows_that_fit(rows: Sequence[CellRow], max_rows: int) -> tuple[list[CellRow], str]:
    """At most so many lines, in their order, and what the others are: what goes on or went wrong
    stays the longest.
    """
    if len(rows) <= max_rows:
        return list(rows), ""
    order = list(RUN_STATUSES)
    by_weight = sorted(range(len(rows)), key=lambda number: order.index(rows[number].status))
    kept = set(by_weight[: max(0, max_rows - 1)])
    hidden = [row.status for number, row in enumerate(rows) if number not in kept]
    names = ", ".join(f"{hidden.count(status)} {status}" for status in order if status in hidden)
    return [rows[number] for number in sorted(kept)], f"and {names}"


def counts_line(status: SuiteStatus) -> str:
    """Return the counts in words: `15 cells: 4 running, 7 waiting, 3 complete, 1 failed`."""
    counts = ", ".join(f"{count} {name}" for name, count in status.counts.items())
    return counted(len(status.cells), "cell") + (f": {counts}" if counts else "")


def spent_line(status: SuiteStatus) -> str:
    """Return the spending in words: `asked so far: 1234 requests, 56.7k tokens, 0.12 USD; limits:
    max_cost 5`.
    """
    spent = status.spent
    line = f"asked so far: {spent.requests} requests, {short_number(spent.tokens)} tokens"
    if spent.cost:
        line += f", {formats.money(spent.cost)}"
    limits = ", ".join(f"{name} {value:g}" for name, value in status.limits.items())
    return line + (f"; limits: {limits}" if limits else "")


def going_line(status: SuiteStatus) -> str:
    """Return the progress in words: `2/15 cells ended, 4 running: 340/1200 requests, 2 failed`."""
    running = []
    for cell in status.cells:
        if cell.progress is not None:
            running.append(cell.progress)
    ended = sum(cell.status not in GOING_ON for cell in status.cells)
    line = f"{ended}/{len(status.cells)} cells ended, {len(running)} running"
    counts = []
    for progress in running:
        if progress.counts is not None:
            counts.append(progress.counts)
    done, total, failed = (
        sum(count[name] for count in counts) for name in ("done", "total", "failed")
    )
    if counts:
        return f"{line}: {done}/{total} requests, {failed} failed"
    return line


def pause_line(pause: Pause, now: float) -> str:
    count = counted(len(pause.cells), "cell")
    return (
        f"paused: {one_line(pause.group)}: {one_line(pause.reason)} "
        f"({count}{_for(pause.since, now)})"
    )


def state_line(status: SuiteStatus, now: float) -> str:
    """Return whether it runs, since when, and what to do if it does not."""
    folder = one_line(str(status.folder.named))
    if status.state == view.RUNNING:
        who = ""
        if status.pid:
            who = f" (process {status.pid} on {one_line(str(status.host))})"
        return f"{folder}: running{who}{_for(status.started, now)}"
    if status.state == view.ENDED:
        at = time.localtime(status.ended or 0.0)
        ended = ""
        if status.ended is not None:
            ended = time.strftime(" at %Y-%m-%d %H:%M:%S", at)
        code = ""
        if status.exit_code is not None:
            code = f", exit code {status.exit_code}"
        return f"{folder}: not running; ended{ended}{code}"
    return f"{folder}: not running; it was stopped before its end"


def status_lines(status: SuiteStatus, now: float) -> list[str]:
    return [
        state_line(status, now),
        *(pause_line(pause, now) for pause in status.pauses),
        *(f"  {line}" for line in cell_lines(status)),
        counts_line(status),
        spent_line(status),
        *(f"  what a server says: {one_line(str(log))}" for log in status.folder.server_logs),
        *next_lines(status),
    ]


def cell_lines(status: SuiteStatus) -> list[str]:
    rows = cell_rows(status)
    name = max((len(row.name) for row in rows), default=0)
    lines: list[str] = []
    for row in rows:
        lines.append(f"{row.name:<{name}}  {row.status:<{_STATUS_WIDTH}}  {row.text}".rstrip())
    return lines


def next_lines(status: SuiteStatus) -> list[str]:
    """Return what to do if it neither runs nor is complete, with the command on its own line."""
    if status.state == view.RUNNING or status.is_complete:
        return []
    return [_GOES_ON, f"  {view.same_command(status)}"]


def result_text(figures: CellFigures) -> str:
    """Return the score in words: `exact_match 0.7100 (0.6000 .. 0.8200), n 100`."""
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


def _what(cell: CellStatus, paused: Container[str], room: int) -> str:
    if (progress := cell.progress) is not None:
        number, of = progress.run
        phase = one_line(progress.phase) if of <= 1 else f"{number}/{of} {one_line(progress.phase)}"
        figures = progress.figures(room - len(phase) - 2)
        attempt = ""
        if cell.attempt > 1:
            attempt = f" (attempt {cell.attempt})"
        text = f"{phase}{attempt}{f': {one_line(figures)}' if figures else ''}"
        if cell.job is None or cell.job.task is None:
            return text
        return f"{text}; {one_line(cell.job.task)}"
    reason = cell.reason if cell.status != RunStatus.WAITING or cell.job is not None else None
    if cell.status == RunStatus.WAITING and cell.name in paused:
        reason = "its endpoint is waited for"
    result = ""
    if cell.figures is not None:
        result = result_text(cell.figures)
    return "; ".join(
        journal.outcome_parts(result, reason, cell.reused_from, collected=cell.collected)
    )


def _for(since: float | None, now: float) -> str:
    if since is None:
        return ""
    return f", for {duration(max(0.0, now - since))}"


def check_text(checked: SuiteCheck) -> str:
    """Return what a check of a suite found, for the screen."""
    total = counted(len(checked.cells), "cell")
    outcome = f"complete: {total}"
    if checked.missing:
        outcome = f"not complete: {len(checked.missing)} of {total} without a complete result"
    lines = [f"{checked.folder.root}: {outcome}"]
    for cell in checked.missing:
        lines.append(
            f"  {cell.name}: {cell.status}{f': {one_line(cell.reason)}' if cell.reason else ''}"
        )
        for text in cell.to_do:
            first, *further_lines = text.split("\n")
            lines += [f"    to do: {first}", *(f"      {line.strip()}" for line in further_lines)]
    lines += [f"  altered: {one_line(str(finding))}" for finding in checked.altered[:MAX_SHOWN]]
    if len(checked.altered) > MAX_SHOWN:
        lines.append(f"  altered: {len(checked.altered) - MAX_SHOWN} more (--json)")
    for cell in checked.cells:
        if cell.is_complete and cell.reason:
            lines.append(f"  note: {cell.name}: {one_line(cell.reason)}")
    if checked.running:
        lines.append("the suite is running: look at it with 'eval-factory suite status'")
    elif checked.missing:
        lines += [_GOES_ON, f"  {checked.command}"]
    elif not checked.in_table:
        newer = (
            "results are newer than the table: the same command only collects them into the table:"
        )
        lines += [newer, f"  {checked.command}"]
    return own_lines("\n".join(lines))


def progress_view(folder: SuiteDir, output: RunOutput) -> SuiteScreen:
    """Return the observer that was asked for."""
    return SuiteScreen(output.screen(), folder, records=output.stdout if output.as_json else None)


class SuiteScreen(SuiteObserver):
    def __init__(
        self,
        stream: TextIO,
        folder: SuiteDir,
        clock: Callable[[], float] = time.time,
        records: TextIO | None = None,
    ) -> None:
        """Show the suite in this folder. `records`: the stream of records, which gets one when the
        cells are known.
        """
        # whatever FORCE_COLOR and the like say: a log is to have lines
        is_terminal = stream.isatty()
        self._console = Console(
            file=stream, highlight=False, soft_wrap=True, force_terminal=is_terminal
        )
        self._folder = folder
        self._reader = SuiteReader(folder)
        self._clock = clock
        self._last = 0.0
        self._records = records
        self._live: Live | None = None
        if self._console.is_interactive:  # not where TERM is dumb: it cannot go back in a line
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
            )

    def __enter__(self) -> SuiteScreen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            # the lines that follow say all of it, also for who reads the terminal's record
            self._live.update(Group())
            self._live.stop()

    def on_event(self, event: Mapping[str, Any]) -> None:
        if self._records is not None and event.get("event") == journal.SUITE_STARTED:
            record = {name: event.get(name) for name in ("pid", "host", "total", "cells")}
            write_record(
                self._records, {"event": "launch", "suite": str(self._folder.root), **record}
            )
        if self._live is not None:
            self._last = 0.0
            self.tick()
            return
        figures = None
        if event["event"] == journal.CELL_ENDED and event["status"] in WITH_RESULT:
            figures = view.figures_of(self._folder.cell(*journal.cell_key(event)))
        if (
            line := journal.event_line(event, "" if figures is None else result_text(figures))
        ) is not None:
            begin = ""
            if event["event"] == journal.SUITE_STARTED:
                begin = f"{self._folder.root}: "
            self.say(one_line(f"{begin}{line}"))

    def tick(self) -> None:
        """Show what the cells have done since, if it is time."""
        now = self._clock()
        if now - self._last < (_PLAIN_INTERVAL_S if self._live is None else REFRESH_S):
            return
        status = self._reader.look()
        if self._live is not None:
            self._live.update(live_table(status, self._console, now), refresh=True)
        elif self._last and any(cell.progress is not None for cell in status.cells):
            self.say(f"  {going_line(status)}")
        self._last = now

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(own_lines(text), markup=False)


def live_table(status: SuiteStatus, console: Console, now: float) -> Group:
    """Return all cells, in no more lines than the terminal has."""
    width, height = console.size
    lines = [state_line(status, now), counts_line(status), spent_line(status)]
    head = [*map(_cut, lines), *(_cut(pause_line(pause, now), "yellow") for pause in status.pauses)]
    head = head[: max(1, height // 2)]
    name_width = min(MAX_NAME, max((len(cell.name) for cell in status.cells), default=0))
    rows = cell_rows(status, max(0, width - name_width - _STATUS_WIDTH - 4))
    shown, hidden = rows_that_fit(rows, max(0, height - len(head) - 1))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1), expand=True)
    table.add_column(
        no_wrap=True, overflow="ellipsis", max_width=name_width, min_width=min(name_width, 12)
    )
    table.add_column(no_wrap=True, width=_STATUS_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        table.add_row(
            Text(row.name), Text(row.status, style=RUN_STATUSES[row.status].style), Text(row.text)
        )
    return Group(*head, table, *([_cut(hidden, "dim")] if hidden else []))


def _cut(line: str, style: str = "") -> Text:
    return Text(line, style, no_wrap=True, overflow="ellipsis")


def show_end(report: SuiteReport, output: RunOutput) -> None:
    """Show the outcome on standard output; why the exit code is not 0, on standard error."""
    with ignore_sighup():
        status = view.status_of(report.folder)
        if output.as_json:
            write_record(output.stdout, suite_end_record(report, status))
        elif output.quiet:
            output.stdout.write(own_lines(report.summary.split("\n")[0]) + "\n")
        else:
            show_lines(
                [*cell_lines(status), spent_line(status), *report.summary.split("\n")],
                output.stdout,
            )
        if report.exit_code and not output.as_json:
            blamed = []
            for cell in report.cells:
                if cell.exit_code == report.exit_code:
                    blamed.append(cell)
            why = report.summary.split("\n")[-1]  # why there is no table
            if blamed:
                why = f"{blamed[0].name}: {one_line(blamed[0].reason or blamed[0].status)}"
            screen = tolerant_stream(sys.stderr)
            screen.write(
                wrapped(own_lines(f"exit code {report.exit_code}: {why}"), columns(screen)) + "\n"
            )


def show_lines(lines: Iterable[str], stdout: TextIO) -> None:
    """On a terminal those that are too long go on below; a command stands whole, to be copied."""
    width = columns(stdout) if stdout.isatty() else None
    for line in lines:
        is_command = line.startswith("  eval-factory ")
        stdout.write(
            own_lines(line if width is None or is_command else wrapped(line, width)) + "\n"
        )


def suite_end_record(report: SuiteReport, status: SuiteStatus) -> dict[str, Any]:
    """Return the main numbers of all cells; suite_results.yaml has all."""
    table = {"results": str(report.folder.results_yaml), "error": None}
    outcome = {"event": "end", "exit_code": report.exit_code, "status": report.status}
    return {**view.status_document(status), **outcome, **table}


def show_status(status: SuiteStatus, stdout: TextIO, *, as_json: bool) -> None:
    if as_json:
        stdout.write(json.dumps(view.status_document(status)) + "\n")
    else:
        show_lines(status_lines(status, time.time()), stdout)


def watch(
    reader: SuiteReader,
    stdout: TextIO,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until nobody works on the suite any more, or nobody reads: as run_suite shows it, or a
    record for each change.
    """
    shown = ""
    with nullcontext() if as_json else SuiteScreen(stdout, reader.folder) as screen:
        while True:
            status = reader.look()
            if as_json and (record := json.dumps(view.status_document(status))) != shown:
                stdout.write(f"{record}\n")
                shown = record
            if status.state != view.RUNNING or has_no_reader(sys.stdout):
                break
            if screen is not None:
                screen.tick()
            sleep(_INTERVAL_S)
    if not as_json:
        show_status(reader.look(), stdout, as_json=False)
