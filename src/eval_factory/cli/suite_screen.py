"""What `run_suite` and `suite status` show: a live table on a terminal, plain lines elsewhere, records for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eval_factory.cli.console import columns, lasting, nobody_reads, wrapped, write_record
from eval_factory.cli.run_command import RunOutput
from eval_factory.cli.suite_text import (
    LONGEST_NAME,
    cell_rows,
    counts_line,
    going_line,
    pause_lines,
    result_text,
    rows_that_fit,
    spent_line,
    state_line,
    status_lines,
)
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.this_process import not_to_be_hung_up
from eval_factory.workflows.suite import suite_journal as journal
from eval_factory.workflows.suite.suite_journal import SUITE_STARTED, SuiteObserver, SuiteState
from eval_factory.workflows.suite.suite_report import SuiteReport
from eval_factory.workflows.suite.suite_status import (
    GOES,
    SuiteReader,
    SuiteStatus,
    status_document,
    status_of,
)

_PLAIN_INTERVAL_S = 10.0
REFRESH_S = 0.25
STYLES: Mapping[str, str] = {
    journal.COMPLETE: "green", journal.FAILED: "red", journal.PARTIAL: "yellow", journal.PAUSED: "yellow",
    journal.MISSING: "yellow", journal.WAITING: "dim",
}  # fmt: skip
_NARROWEST = 30
"""Columns below which no terminal is written for."""
_STATUS_WIDTH = max(map(len, journal.STATUSES))
_INTERVAL_S = 1.0


@contextmanager
def looking_on(folder: SuiteDir, output: RunOutput) -> Iterator[SuiteObserver]:
    """The observer that was asked for."""
    with nullcontext(SuiteObserver()) if output.quiet else SuiteScreen(lasting(sys.stderr), folder) as screen:
        yield StartRecord(screen, output.stdout, folder) if output.as_json else screen


class SuiteScreen(SuiteObserver):
    def __init__(self, stream: TextIO, folder: SuiteDir, clock: Callable[[], float] = time.time) -> None:
        is_terminal = stream.isatty()  # whatever FORCE_COLOR and the like say: a log is to have lines
        self._console = Console(file=stream, highlight=False, soft_wrap=True, force_terminal=is_terminal)
        self._state = SuiteState()
        self._folder = folder
        self._reader = SuiteReader(folder)
        self._clock = clock
        self._last = 0.0
        self._live: Live | None = None
        if self._console.is_interactive:  # not where TERM is dumb: it cannot go back in a line
            self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> SuiteScreen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(Group())  # what follows says all of it, also for who reads the terminal's record
            self._live.stop()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """What happened: a line of it where there is no table."""
        self._state.take(event)
        if self._live is None:
            for line in self._lines_of(event):
                self.say(line)
        else:
            self._last = 0.0
            self.tick()

    def tick(self) -> None:
        """Show what the cells have done since, if it is time."""
        now = self._clock()
        if now - self._last < (_PLAIN_INTERVAL_S if self._live is None else REFRESH_S):
            return
        if self._live is not None:
            self._live.update(live_table(self._status(), self._console.width, self._console.height, now), refresh=True)
        elif self._last and any(cell.status == journal.RUNNING for cell in self._state.cells.values()):
            self.say(f"  {going_line(self._status())}")
        self._last = now

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(own_lines(text), markup=False)

    def _status(self) -> SuiteStatus:
        return self._reader.status(self._state, is_running=True)

    def _lines_of(self, event: Mapping[str, Any]) -> list[str]:
        kind = event.get("event")
        if kind == SUITE_STARTED:
            return [f"{one_line(str(self._folder.root))}: {counts_line(self._status())}"]
        if kind == journal.ENDPOINT_PAUSED:
            pauses = [one for one in self._state.pauses.values() if one.group == event.get("group")]
            return pause_lines(pauses, self._clock())
        if kind == journal.ENDPOINT_BACK:
            return [f"{one_line(str(event.get('group')))}: answers again"]
        cell = self._state.cells.get((str(event.get("target")), str(event.get("evaluation"))))
        if cell is None or kind not in (journal.CELL_STARTED, journal.CELL_ENDED):
            return []
        if kind == journal.CELL_STARTED:
            again = f" again (attempt {cell.attempt})" if cell.attempt > 1 else ""
            return [f"{one_line(cell.name)}: started{again}"]
        figures = self._reader.cell(cell).figures
        parts = [
            result_text(figures) if figures is not None else "",
            one_line(cell.reason) if cell.reason else "",
            f"from {one_line(cell.reused_from)}" if cell.reused_from else "finished before" if cell.collected else "",
            "it waits for its next attempt" if cell.so_far is not None else "",
        ]
        text = "; ".join(filter(None, parts))
        return [f"{one_line(cell.name)}: {cell.so_far or cell.status}{f': {text}' if text else ''}"]


class StartRecord(SuiteObserver):
    """Writes one record when the cells are known, and passes everything on."""

    def __init__(self, further: SuiteObserver, stdout: TextIO, folder: SuiteDir) -> None:
        self._further, self._stdout, self._folder = further, stdout, folder

    def tick(self) -> None:
        self._further.tick()

    def say(self, text: str) -> None:
        self._further.say(text)

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == SUITE_STARTED:
            known = {name: event.get(name) for name in ("pid", "host", "total", "cells")}
            write_record(self._stdout, {"event": "launch", "suite": str(self._folder.root), **known})
        self._further.on_event(event)


def live_table(status: SuiteStatus, width: int, height: int, now: float) -> Group:
    """All cells, in no more lines than the terminal has."""
    lines = (state_line(status, now), counts_line(status), spent_line(status))
    head = [Text(_fitted(line, width)) for line in lines]
    head += [Text(_fitted(line, width), style="yellow") for line in pause_lines(status.pauses, now)]
    head = head[: max(1, height // 2)]
    name_width = min(LONGEST_NAME, max((len(cell.state.name) for cell in status.cells), default=0))
    found = cell_rows(status, max(0, width - name_width - _STATUS_WIDTH - 4))
    shown, others = rows_that_fit(found, max(0, height - len(head) - 1))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=name_width, min_width=min(name_width, 12))
    table.add_column(no_wrap=True, width=_STATUS_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        table.add_row(Text(row.name), Text(row.status, style=STYLES.get(row.status, "")), Text(row.what))
    return Group(*head, table, *([Text(_fitted(others, width), style="dim")] if others else []))


def _fitted(line: str, width: int) -> str:
    text = Text(line)
    text.truncate(max(_NARROWEST, width), overflow="ellipsis")
    return text.plain


def show_end(report: SuiteReport, output: RunOutput) -> None:
    """What came of it, on standard output; why the exit code is not 0, on standard error."""
    with not_to_be_hung_up():
        status = status_of(report.folder)
        if output.as_json:
            write_record(output.stdout, suite_end_record(report, status))
        elif output.quiet:
            output.stdout.write(own_lines(report.summary.split("\n")[0]) + "\n")
        else:
            show_cells(status, output.stdout)
            output.stdout.write(own_lines(spent_line(status)) + "\n")
            output.stdout.write(wrapped(own_lines(report.summary), columns(output.stdout)) + "\n")
        if report.exit_code and not output.as_json:
            blamed = [cell for cell in report.cells if cell.exit_code == report.exit_code]
            others = sum(cell.exit_code != 0 for cell in report.cells) - 1
            if blamed:
                have = "cell has" if others == 1 else "cells have"
                more = "" if others <= 0 else f"; {others} more {have} something to look at"
                why = f"{blamed[0].name}: {one_line(blamed[0].reason or blamed[0].status)}{more}"
            elif report.no_table is not None:
                why = report.no_table.split("\n")[0]
            else:
                why = "the suite was stopped before its end"
            screen = lasting(sys.stderr)
            screen.write(wrapped(own_lines(f"exit code {report.exit_code}: {why}"), columns(screen)) + "\n")


def show_cells(status: SuiteStatus, stdout: TextIO) -> None:
    """A line each; on a terminal names stay whole, so that they can be copied: what does not fit stands below them."""
    found = cell_rows(status)
    name = max((len(row.name) for row in found), default=0)
    if not stdout.isatty():
        state = max((len(row.status) for row in found), default=0)
        stdout.writelines(f"{row.name:<{name}}  {row.status:<{state}}  {row.what}".rstrip() + "\n" for row in found)
        return
    width = columns(stdout)
    console = Console(file=stdout, highlight=False, force_terminal=True, soft_wrap=True)
    for row in found:
        line = Text(f"{row.name:<{name}}  ").append(f"{row.status:<8}", style=STYLES.get(row.status, ""))
        beside = line.copy().append(f"  {row.what}")
        if beside.cell_len <= width:
            console.print(beside)
        else:
            console.print(line)
            console.print(Text(wrapped(f"    {row.what}", width)))


def suite_end_record(report: SuiteReport, status: SuiteStatus) -> dict[str, Any]:
    """The main numbers of all cells; suite_results.yaml has all."""
    figures = {cell.state.name: cell.figures for cell in status.cells}
    folder = report.folder
    cells = []
    for cell in report.cells:
        found = figures.get(cell.name)
        record = {name: getattr(cell, name) for name in ("target", "evaluation", "status", "exit_code", "reason")}
        for name in ("main_metric", "value", "ci_low", "ci_high", "n", "reportable"):
            record[name] = getattr(found, name, None)
        cells.append({**record, "collected": cell.collected, "folder": str(cell.folder)})
    return {
        "event": "end",
        "exit_code": report.exit_code,
        "status": report.status,
        "suite": str(folder.root),
        "counts": status.counts,
        "spent": asdict(status.spent),
        "cells": cells,
        "results": str(folder.results_yaml),
        "error": None,
    }


def show_status(status: SuiteStatus, stdout: TextIO, *, as_json: bool) -> None:
    """Once."""
    if as_json:
        stdout.write(json.dumps(status_document(status)) + "\n")
        return
    width = columns(stdout) if stdout.isatty() else None
    for line in status_lines(status, time.time()):
        is_command = line.startswith("  eval-factory ")
        stdout.write(own_lines(line if width is None or is_command else wrapped(line, width)) + "\n")


def watch(reader: SuiteReader, stdout: TextIO, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Until nobody works on the suite any more, or nobody reads."""
    console = Console(file=stdout, highlight=False, force_terminal=stdout.isatty())
    is_table = console.is_interactive and not as_json
    shown: set[str] = set()
    last = time.monotonic()
    with (
        Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        if is_table
        else nullcontext()
    ) as live:
        while True:
            status = reader.look()
            is_over = status.state != GOES or nobody_reads(sys.stdout)
            if as_json:
                lines = [json.dumps(status_document(status))]
            elif is_over:
                break
            elif live is not None:
                lines = []
                live.update(live_table(status, console.width, console.height, time.time()), refresh=True)
            else:  # a line where a cell's status is another, or an endpoint is waited for
                lines = [own_lines(f"{row.name}: {row.status}") for row in cell_rows(status)]
                lines += [own_lines(one) for pause in status.pauses for one in pause_lines([pause], pause.since or 0.0)]
            new = [line for line in lines if line not in shown]
            shown = set(lines)
            if not (as_json or live) and time.monotonic() - last >= _PLAIN_INTERVAL_S:
                new.append(own_lines(f"  {going_line(status)}"))
                last = time.monotonic()
            stdout.writelines(f"{line}\n" for line in new)
            if is_over:
                return
            sleep(_INTERVAL_S)
        if live is not None:
            live.update(Group())  # as the screen of run_suite: what follows says all of it
    show_status(reader.look(), stdout, as_json=False)
