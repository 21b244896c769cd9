"""What `run_suite` shows while it runs: one table of all cells on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eval_factory.cli.suite_text import (
    LONGEST_NAME,
    Row,
    counts_line,
    going_line,
    pause_lines,
    result_text,
    rows,
    rows_that_fit,
    spent_line,
    state_line,
)
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite import suite_journal as events
from eval_factory.workflows.suite import suite_journal as states
from eval_factory.workflows.suite.suite_journal import CellState, SuiteState
from eval_factory.workflows.suite.suite_status import CellReader, SuiteStatus

PLAIN_INTERVAL_S = 10.0
GOES_ON = "it waits for its next attempt"
REFRESH_S = 0.25
STYLES: Mapping[str, str] = {
    states.COMPLETE: "green", states.FAILED: "red", states.PARTIAL: "yellow", states.PAUSED: "yellow",
    states.MISSING: "yellow", states.WAITING: "dim",
}  # fmt: skip
NARROWEST = 30
"""Columns below which no terminal is written for."""
_STATUS_WIDTH = max(map(len, states.STATUSES))
_GAPS = 4


class SuiteScreen:
    """A SuiteObserver."""

    def __init__(self, stream: TextIO, folder: SuiteDir, clock: Callable[[], float] = time.time) -> None:
        is_terminal = stream.isatty()  # whatever FORCE_COLOR and the like say: a log is to have lines
        self._console = Console(file=stream, highlight=False, soft_wrap=True, force_terminal=is_terminal)
        self._state = SuiteState()
        self._folder = folder
        self._cells = CellReader(folder)
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
        if now - self._last < (PLAIN_INTERVAL_S if self._live is None else REFRESH_S):
            return
        if self._live is not None:
            self._live.update(live_table(self._status(), self._console.width, self._console.height, now), refresh=True)
        elif self._last and any(cell.status == states.RUNNING for cell in self._state.cells.values()):
            self.say(f"  {going_line(self._status())}")
        self._last = now

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(own_lines(text), markup=False)

    def _status(self) -> SuiteStatus:
        return self._cells.status(self._state, is_running=True)

    def _lines_of(self, event: Mapping[str, Any]) -> list[str]:
        kind = event.get("event")
        if kind == events.SUITE_STARTED:
            return [f"{_clean(self._folder.root)}: {counts_line(self._status())}"]
        if kind == events.ENDPOINT_PAUSED:
            pauses = [one for one in self._state.pauses.values() if one.group == event.get("group")]
            return pause_lines(pauses, self._clock())
        if kind == events.ENDPOINT_BACK:
            return [f"{_clean(event.get('group'))}: answers again"]
        cell = self._state.cells.get((str(event.get("target")), str(event.get("evaluation"))))
        if cell is None or kind not in (events.CELL_STARTED, events.CELL_ENDED):
            return []
        if kind == events.CELL_STARTED:
            again = f" again (attempt {cell.attempt})" if cell.attempt > 1 else ""
            return [f"{_clean(cell.name)}: started{again}"]
        return [self._ended_line(cell)]

    def _ended_line(self, cell: CellState) -> str:
        figures = self._cells.look(cell).figures
        told = [
            result_text(figures) if figures is not None else "",
            _clean(cell.reason) if cell.reason else "",
            f"from {_clean(cell.reused_from)}" if cell.reused_from else "finished before" if cell.collected else "",
            GOES_ON if cell.so_far is not None else "",
        ]
        whole = "; ".join(part for part in told if part)
        return f"{_clean(cell.name)}: {cell.so_far or cell.status}{f': {whole}' if whole else ''}"


def live_table(status: SuiteStatus, width: int, height: int, now: float) -> Group:
    """All cells, in no more lines than the terminal has."""
    told = (state_line(status, now), counts_line(status), spent_line(status))
    head = [Text(_fitted(line, width)) for line in told]
    head += [Text(_fitted(line, width), style="yellow") for line in pause_lines(status.pauses, now)]
    head = head[: max(1, height // 2)]
    name_width = min(LONGEST_NAME, max((len(cell.state.name) for cell in status.cells), default=0))
    found = rows(status, max(0, width - name_width - _STATUS_WIDTH - _GAPS))
    shown, others = rows_that_fit(found, max(0, height - len(head) - 1))
    table = table_of(shown, name_width)
    return Group(*head, table, *([Text(_fitted(others, width), style="dim")] if others else []))


def table_of(shown: list[Row], name_width: int) -> Table:
    """A line a cell, cut at the terminal's edge."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=name_width, min_width=min(name_width, 12))
    table.add_column(no_wrap=True, width=_STATUS_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        table.add_row(Text(row.name), Text(row.status, style=STYLES.get(row.status, "")), Text(row.what))
    return table


def _fitted(line: str, width: int) -> str:
    text = Text(line)
    text.truncate(max(NARROWEST, width), overflow="ellipsis")
    return text.plain


def _clean(text: Any) -> str:
    return one_line(str(text))
