"""A suite's events: written, reported to who looks on, what they come to, and the lines that a
log shows of them.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from eval_factory.core.enums import OfCell, RunStatus
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.run_statuses import GOING_ON
from eval_factory.core.rundir import PRIVATE, SuiteDir
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor


class SuiteObserver:
    """Learns what happens, by the runner's own thread, and shows nothing. Nothing that it does
    may end the suite.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the suite, as it stands in SuiteDir.events, once it is written there."""

    def tick(self) -> None:
        """Take a turn without an event, a few times a second: what the cells do can be looked up
        and shown.
        """

    def say(self, text: str) -> None:
        """Take a line about the suite that is no event: a warning, what is waited for."""


SUITE_STARTED = "suite_started"
SUITE_ENDED = "suite_ended"
CELL_STARTED = "cell_started"
CELL_ENDED = "cell_ended"
ENDPOINT_PAUSED = "endpoint_paused"
ENDPOINT_BACK = "endpoint_back"


class SuiteJournal:
    """Writes events, each with one `write` so that a reader sees whole lines, and tells them to
    whoever looks on.
    """

    def __init__(self, folder: SuiteDir, redactor: Redactor, observer: SuiteObserver) -> None:
        self._path = folder.events
        self._log = folder.log
        self._redactor = redactor
        self._observer = observer
        self._invocation = uuid.uuid4().hex
        with contextlib.suppress(OSError):
            with self._path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            # the rest of a last line after a full disk or a power cut is not to swallow the next
            if not whole:
                append_line(self._path, "")

    def record(self, event: str, **fields: Any) -> None:
        """Redacted; written before anybody learns of it."""
        reported: Any = self._redactor.tree(fields)
        record = {"time": time.time(), "event": event, "invocation": self._invocation, **reported}
        append_line(self._path, json_line(record))
        self._observer.on_event(record)

    def say(self, text: str) -> None:
        """Write a line that is no event to the observer and to the suite's log."""
        shown = self._redactor.text(text)
        self._observer.say(shown)
        append_line(self._log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}")

    def tick(self) -> None:
        self._observer.tick()


def append_line(path: Path, line: str) -> None:
    """Append the line with one `write`, so that a reader sees whole lines."""
    with contextlib.suppress(OSError):  # a full disk: the cells' own folders say what is finished
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def cell_fields(cell: Any) -> Mapping[str, str]:
    return {"target": cell.target, "evaluation": cell.evaluation}


STATUSES = (*GOING_ON, *(status for status in RunStatus if status not in GOING_ON))
"""The statuses, in the order in which they are counted."""

WAS_STOPPED = "its suite was stopped while it ran"
WAS_NOT_STARTED = "not started yet"


@dataclass(frozen=True)
class CellState(OfCell):
    """The state of a cell, as its last event says."""

    status: RunStatus = RunStatus.WAITING
    attempt: int = 0  # the number of the last one in this invocation; 0: not started in it
    reason: str | None = None
    since: float | None = None  # Epoch seconds of the last event of the cell in this invocation
    collected: bool = False  # finished before: nothing was asked in this invocation
    reused_from: str | None = None
    identity: str | None = None
    """The identity of the last run that was started or has ended, if that is known: its folder
    may hold another since.
    """
    # the state in which an earlier invocation left the cell; None once this one has come to it
    before: CellState | None = None

    def left(self) -> CellState:
        """Return the state of a cell after the suite's process is gone, as far as events say; its
        folder may hold a result.
        """
        if self.status not in GOING_ON:
            return self
        if self.before is not None:
            return self.before
        if self.status != RunStatus.WAITING or self.attempt:
            reason = WAS_STOPPED
        else:
            reason = WAS_NOT_STARTED
        return replace(self, status=RunStatus.MISSING, reason=self.reason or reason)


@dataclass(frozen=True)
class Pause:
    """An endpoint that is gone, and whose cells are kept waiting."""

    group: str  # the name of the endpoint's limits
    reason: str
    cells: frozenset[str]
    since: float | None


@dataclass
class SuiteState:
    """All cells, in the order in which they are run."""

    cells: dict[tuple[str, str], CellState] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    # the last `suite_started`: of the invocation that all this is of
    started: Mapping[str, Any] | None = None
    ended: Mapping[str, Any] | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one more event; one that is not known, or of a cell that is not, changes nothing."""
        kind = event.get("event")
        group = str(event.get("group"))
        now = event.get("time")
        since = float(now) if isinstance(now, (int, float)) else None
        if kind == SUITE_STARTED:
            earlier = {key: cell.left() for key, cell in self.cells.items()}
            keys = [
                cell_key(cell) for cell in event.get("cells") or [] if isinstance(cell, Mapping)
            ]
            self.cells = {key: CellState(*key, before=earlier.get(key)) for key in keys}
            self.pauses = {}
            self.started = event
            self.ended = None
        elif kind == SUITE_ENDED:
            self.ended = event
        elif kind in (CELL_STARTED, CELL_ENDED) and cell_key(event) in self.cells:
            cell = self.cells[cell_key(event)]
            attempt = event.get("attempt") or cell.attempt
            self.cells[cell_key(event)] = replace(_after(cell, event), since=since, attempt=attempt)
        elif kind == ENDPOINT_PAUSED:
            cells = frozenset(map(str, event.get("cells") or []))
            self.pauses[group] = Pause(group, str(event.get("reason") or ""), cells, since)
        elif kind == ENDPOINT_BACK:
            self.pauses.pop(group, None)

    def all_cells(self, *, is_running: bool) -> list[CellState]:
        """Return the states of all cells. `is_running`: whether the suite's process lives; if it
        does not, no cell runs or waits.
        """
        return [cell if is_running else cell.left() for cell in self.cells.values()]


def _after(cell: CellState, event: Mapping[str, Any]) -> CellState:
    """Return the state of a cell after its event: it is started, or has ended."""
    cell = replace(cell, reason=event.get("reason"), identity=event.get("identity"), before=None)
    if event["event"] == CELL_STARTED:
        return replace(cell, status=RunStatus.RUNNING)
    status = event.get("status")
    ended = RunStatus(status) if status in STATUSES else RunStatus.FAILED
    return replace(
        cell,
        status=RunStatus.WAITING if event.get("again") else ended,
        collected=bool(event.get("collected")),
        reused_from=event.get("reused_from"),
    )


def suite_state_of(events: Iterable[Mapping[str, Any]]) -> SuiteState:
    """Return the state of a suite after its events from the first on, of several invocations one
    after another.
    """
    state = SuiteState()
    for event in events:
        state.take(event)
    return state


def cell_key(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key of a cell's event."""
    return str(event.get("target")), str(event.get("evaluation"))


def event_line(event: Mapping[str, Any], result: str = "") -> str | None:
    """Return the line that a log, and a screen without a table, shows of an event; None: it is not
    of interest. `result`: the score of a cell that has ended.
    """
    kind = event["event"]
    name = "/".join(cell_key(event))
    if kind == CELL_STARTED:
        attempt = ""
        if event["attempt"] > 1:
            attempt = f" again (attempt {event['attempt']})"
        return f"{name}: started{attempt}"
    if kind == CELL_ENDED:
        parts = outcome_parts(
            result, event.get("reason"), event.get("reused_from"), collected=event["collected"]
        )
        parts += ["it waits for its next attempt"] if event.get("again") else []
        return ": ".join([name, event["status"], *(["; ".join(parts)] if parts else [])])
    if kind == ENDPOINT_PAUSED:
        return (
            f"paused: {event['group']}: {event['reason']} ({counted(len(event['cells']), 'cell')})"
        )
    if kind == ENDPOINT_BACK:
        return f"{event['group']}: answers again"
    if kind != SUITE_STARTED:
        return None
    return counted(event["total"], "cell")


def outcome_parts(
    result: str, reason: str | None, reused_from: str | None, *, collected: bool
) -> list[str]:
    """Return what there is to say of a cell's end."""
    source = ""
    if reused_from:
        source = f"from {one_line(reused_from)}"
    elif collected:
        source = "finished before"
    return [part for part in (result, one_line(reason or ""), source) if part]


class ScreenLines(SuiteObserver):
    """Looks on and writes to `screen`; one that takes no more is written to no more, and ends no
    suite.
    """

    def __init__(self, screen: TextIO) -> None:
        self._screen: TextIO | None = screen

    def on_event(self, event: Mapping[str, Any]) -> None:
        if (line := event_line(event)) is not None:
            self.say(line)

    def say(self, text: str) -> None:
        if self._screen is None:
            return
        try:
            self._screen.write(one_line(text) + "\n")
        except (OSError, ValueError):  # nobody reads it, or it is closed
            self._screen = None
