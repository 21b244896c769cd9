"""Writes the events of a suite, passes the events to an observer, and derives the suite's state
from the events.

Also formats an event as a line for the log or the screen.
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

from eval_factory.core.enums import CellRecord, RunStatus
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.run_statuses import GOING_ON
from eval_factory.core.rundir import PRIVATE, SuiteDir
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor


class SuiteObserver:
    """An observer of a suite that ignores all events. Subclasses show or record the events.

    The thread that runs the suite calls the methods. Subclasses must handle their own errors, for
    an error of an observer would end the suite.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Process an event that was just written to the file `SuiteDir.events`."""

    def tick(self) -> None:
        """Update the display. The suite calls this method a few times a second."""

    def say(self, text: str) -> None:
        """Show a line that is not an event, such as a warning or the reason of a wait."""


SUITE_STARTED = "suite_started"
SUITE_ENDED = "suite_ended"
CELL_STARTED = "cell_started"
CELL_ENDED = "cell_ended"
ENDPOINT_PAUSED = "endpoint_paused"
ENDPOINT_BACK = "endpoint_back"


class SuiteJournal:
    """Writes the events of a suite to a file, and passes them to an observer."""

    def __init__(self, folder: SuiteDir, redactor: Redactor, observer: SuiteObserver) -> None:
        """Prepare the file of events.

        Args:
            folder: the folder of the suite.
            redactor: removes secrets from events and lines.
            observer: gets every event and every line.
        """
        self._events = folder.events
        self._log = folder.log
        self._redactor = redactor
        self._observer = observer
        self._invocation = uuid.uuid4().hex
        # OSError: there is no file of events yet, or the file is empty, so that `seek` fails
        with contextlib.suppress(OSError):
            with self._events.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                ends_with_newline = file.read(1) == b"\n"
            # After a full disk or a power cut, the last line may be incomplete. The newline of the
            # empty line ends it, so that the next event begins a new line.
            if not ends_with_newline:
                append_line(self._events, line="")

    def record(self, event: str, **fields: Any) -> None:
        """Write an event without secrets to the file, then pass the event to the observer."""
        redacted: Any = self._redactor.redact_tree(fields)
        record = {"time": time.time(), "event": event, "invocation": self._invocation, **redacted}
        append_line(self._events, json_line(record))
        self._observer.on_event(record)

    def say(self, text: str) -> None:
        """Pass a line that is not an event to the observer, and append the line to the log."""
        shown = self._redactor.redact_text(text)
        self._observer.say(shown)
        append_line(self._log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}")

    def tick(self) -> None:
        """Let the observer update its display."""
        self._observer.tick()


def append_line(path: Path, line: str) -> None:
    """Append the line with a single `write`, so that readers see only complete lines.

    Errors are ignored. If the disk is full, the folders of the cells still show which cells are
    finished.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def cell_fields(cell: Any) -> Mapping[str, str]:
    """Return the fields of an event that identify its cell.

    `cell`: any object with the attributes `target` and `evaluation`, such as a cell or its report.
    """
    return {"target": cell.target, "evaluation": cell.evaluation}


STATUSES = (*GOING_ON, *(status for status in RunStatus if status not in GOING_ON))
"""All statuses of a cell, in the order in which counts of cells are shown."""

WAS_STOPPED = "its suite was stopped while the cell ran"
WAS_NOT_STARTED = "not started yet"


@dataclass(frozen=True)
class CellState(CellRecord):
    """The state of a cell by its last event."""

    status: RunStatus = RunStatus.WAITING
    # the number of the last attempt, from 1; each start of the cell is an attempt;
    # 0: the cell was not started in this invocation
    attempt: int = 0
    reason: str | None = None
    # the time of the cell's last event in this invocation, in epoch seconds
    since: float | None = None
    # True if the run was finished before this invocation, which then sent no request for the cell
    collected: bool = False
    reused_from: str | None = None
    identity: str | None = None
    """The identity of the cell's last run that was started or has ended; None if it is unknown.

    The cell's folder may contain a later run with another identity.
    """
    # the cell's state at the end of the previous invocation; None if there was no previous
    # invocation, or after the cell's first event in this invocation
    before: CellState | None = None

    def after_suite_ended(self) -> CellState:
        """Return the state of the cell after the process of the suite has ended.

        The state follows from the events only. The cell's folder may contain a result that no event
        reports.
        """
        if self.status not in GOING_ON:
            return self
        if self.before is not None:
            return self.before
        # A cell that waits for its next attempt (`attempt` > 0) was started before.
        if self.status != RunStatus.WAITING or self.attempt:
            reason = WAS_STOPPED
        else:
            reason = WAS_NOT_STARTED
        return replace(self, status=RunStatus.MISSING, reason=self.reason or reason)


@dataclass(frozen=True)
class Pause:
    """An endpoint that does not answer, with the cells that wait for it."""

    group: str  # the name of the limit group whose model is at the endpoint
    reason: str
    cells: frozenset[str]  # the names of the waiting cells
    since: float | None  # in epoch seconds


@dataclass
class SuiteState:
    """The state of a suite by its events; the cells have the order of the `suite_started` event."""

    cells: dict[tuple[str, str], CellState] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    # the `suite_started` event of the last invocation
    started: Mapping[str, Any] | None = None
    # the `suite_ended` event of the last invocation; None if that invocation has not ended
    ended: Mapping[str, Any] | None = None

    def update(self, event: Mapping[str, Any]) -> None:
        """Update the state by one more event. Unknown events and unknown cells are ignored."""
        kind = event.get("event")
        if kind == SUITE_STARTED:
            self._start(event)
        elif kind == SUITE_ENDED:
            self.ended = event
        elif kind in (CELL_STARTED, CELL_ENDED) and cell_key(event) in self.cells:
            cell = self.cells[cell_key(event)]
            self.cells[cell_key(event)] = _state_after(cell, event)
        elif kind == ENDPOINT_PAUSED:
            group = str(event.get("group"))
            cells = frozenset(map(str, event.get("cells") or []))
            reason = str(event.get("reason") or "")
            self.pauses[group] = Pause(group, reason, cells, since=_time_of(event))
        elif kind == ENDPOINT_BACK:
            self.pauses.pop(str(event.get("group")), None)

    def _start(self, event: Mapping[str, Any]) -> None:
        """Begin a new invocation with the cells of a `suite_started` event."""
        earlier = {key: cell.after_suite_ended() for key, cell in self.cells.items()}
        self.cells = {}
        for cell in event.get("cells") or []:
            if isinstance(cell, Mapping):
                key = cell_key(cell)
                self.cells[key] = CellState(*key, before=earlier.get(key))
        self.pauses = {}
        self.started = event
        self.ended = None

    def all_cells(self, *, is_running: bool) -> list[CellState]:
        """Return the states of all cells.

        `is_running`: True if the process of the suite runs. If False, no cell is reported as
        running or waiting.
        """
        cells = list(self.cells.values())
        if is_running:
            return cells
        return [cell.after_suite_ended() for cell in cells]


def _state_after(cell: CellState, event: Mapping[str, Any]) -> CellState:
    """Return the state of a cell after a `cell_started` or `cell_ended` event."""
    cell = replace(
        cell,
        attempt=event.get("attempt") or cell.attempt,  # 0 or None: the event started no attempt
        reason=event.get("reason"),
        since=_time_of(event),
        identity=event.get("identity"),
        before=None,
    )
    if event["event"] == CELL_STARTED:
        return replace(cell, status=RunStatus.RUNNING)
    event_status = event.get("status")
    # a status that this version does not know is treated as a failure
    status = RunStatus(event_status) if event_status in STATUSES else RunStatus.FAILED
    if event.get("again"):  # only an attempt has ended
        status = RunStatus.WAITING
    return replace(
        cell,
        status=status,
        collected=bool(event.get("collected")),
        reused_from=event.get("reused_from"),
    )


def _time_of(event: Mapping[str, Any]) -> float | None:
    """Return the time of an event in epoch seconds; None if the event has no time."""
    time_of_event = event.get("time")
    if isinstance(time_of_event, (int, float)):
        return float(time_of_event)
    return None


def suite_state_of(events: Iterable[Mapping[str, Any]]) -> SuiteState:
    """Return the state of a suite after all its events, which may come from several invocations."""
    state = SuiteState()
    for event in events:
        state.update(event)
    return state


def cell_key(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the target and the evaluation that an event about a cell names."""
    return str(event.get("target")), str(event.get("evaluation"))


def event_line(event: Mapping[str, Any], result: str = "") -> str | None:
    """Return the line that a log, or a screen without a table, shows for an event.

    Returns None if the event is not shown. `result`: the score of a cell that has ended, as text.
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
        if event.get("again"):
            parts.append("the cell waits for its next attempt")
        line = f"{name}: {event['status']}"
        if parts:
            line += f": {'; '.join(parts)}"
        return line
    if kind == ENDPOINT_PAUSED:
        return (
            f"paused: {event['group']}: {event['reason']} ({counted(len(event['cells']), 'cell')})"
        )
    if kind == ENDPOINT_BACK:
        return f"{event['group']}: answers again"
    if kind == SUITE_STARTED:
        return counted(event["total"], "cell")
    return None


def outcome_parts(
    result: str, reason: str | None, reused_from: str | None, *, collected: bool
) -> list[str]:
    """Return the texts that describe the end of a cell: score, reason and source of the result.

    `result`: the score as text. Texts that are empty are left out.
    """
    source = ""
    if reused_from:
        source = f"from {one_line(reused_from)}"
    elif collected:
        source = "finished before"
    return [part for part in (result, one_line(reason or ""), source) if part]


class ScreenLines(SuiteObserver):
    """An observer that writes a line for each event to `screen`.

    After the first error of `screen`, nothing more is written, and the suite continues.
    """

    def __init__(self, screen: TextIO) -> None:
        self._screen: TextIO | None = screen

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Write the event's line, if the event has one."""
        if (line := event_line(event)) is not None:
            self.say(line)

    def say(self, text: str) -> None:
        """Write the text as one line."""
        if self._screen is None:
            return
        try:
            self._screen.write(one_line(text) + "\n")
        except (OSError, ValueError):  # the reader has gone, or the screen is closed
            self._screen = None
