"""What the events of a suite come to: of each cell where it stands, of each endpoint whether it is waited for.

The screen is told the events as they happen, `suite status` reads them from the disk: both see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eval_factory.core.nouns import RunStatus
from eval_factory.workflows.suite.suite_journal import (
    CELL_ENDED,
    CELL_STARTED,
    ENDPOINT_BACK,
    ENDPOINT_PAUSED,
    SUITE_ENDED,
    SUITE_STARTED,
)

WAITING, RUNNING, PAUSED = RunStatus.WAITING, RunStatus.RUNNING, RunStatus.PAUSED
COMPLETE, PARTIAL = RunStatus.COMPLETE, RunStatus.PARTIAL
FAILED, MISSING = RunStatus.FAILED, RunStatus.MISSING
UNFINISHED = (RUNNING, PAUSED, WAITING)
"""What only a suite that runs can have."""
STATUSES = (*UNFINISHED, COMPLETE, PARTIAL, FAILED, MISSING)

WAS_STOPPED = "its suite was stopped while it ran"
WAS_NOT_BEGUN = "not begun yet"


@dataclass(frozen=True)
class CellState:
    """One cell, as the last event of it says."""

    target: str
    evaluation: str
    status: RunStatus = WAITING
    attempt: int = 0
    """The number of the last one in this invocation; 0: not begun in it."""
    reason: str | None = None
    since: float | None = None
    """Epoch seconds of the last event of the cell in this invocation."""
    collected: bool = False
    """Finished before: nothing was asked in this invocation."""
    reused_from: str | None = None
    so_far: RunStatus | None = None
    """Of a cell that is begun again: what the last attempt left, if nothing more is done."""
    identity: str | None = None
    """Of the run that has ended, where that is known: its folder may hold another since."""
    before: CellState | None = None
    """How it ended in an earlier invocation, for as long as this one has not come to it."""

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"


@dataclass(frozen=True)
class Pause:
    """An endpoint that is gone, and whose cells are kept waiting."""

    group: str
    """The name of the endpoint's limits."""
    reason: str
    cells: frozenset[str]
    since: float | None


@dataclass
class SuiteState:
    """All cells, in the order in which they are run."""

    cells: dict[tuple[str, str], CellState] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    """By the name of the endpoint's limits."""
    started: Mapping[str, Any] | None = None
    """The last `suite_started`: of the invocation that all this is of."""
    ended: Mapping[str, Any] | None = None
    invocations: int = 0

    def take(self, event: Mapping[str, Any]) -> None:
        """One more event; one that is not known, or of a cell that is not, changes nothing."""
        kind = event.get("event")
        if kind == SUITE_STARTED:
            self._start(event)
        elif kind == SUITE_ENDED:
            self.ended = event
        elif kind in (CELL_STARTED, CELL_ENDED):
            self._take_of_cell(event)
        elif kind == ENDPOINT_PAUSED:
            self._pause(event)
        elif kind == ENDPOINT_BACK:
            self._go_on(str(event.get("group")))

    def all_cells(self, *, is_running: bool) -> list[CellState]:
        """
        Args:
            is_running: whether the suite's process lives; the cells of one that does not neither run nor wait.
        """
        return [cell if is_running else _left(cell) for cell in self.cells.values()]

    def _start(self, event: Mapping[str, Any]) -> None:
        earlier = {key: _left(cell) for key, cell in self.cells.items()}
        keys = [_key(cell) for cell in event.get("cells") or [] if isinstance(cell, Mapping)]
        self.cells = {key: CellState(*key, before=earlier.get(key)) for key in keys}
        self.pauses = {}
        self.started, self.ended = event, None
        self.invocations += 1

    def _take_of_cell(self, event: Mapping[str, Any]) -> None:
        key = _key(event)
        cell = self.cells.get(key)
        if cell is None:
            return
        changes: dict[str, Any] = {"since": _number(event.get("time")), "before": None}
        changes["attempt"] = event.get("attempt") or cell.attempt
        if event.get("event") == CELL_STARTED:
            changes |= {"status": RUNNING, "reason": None}
        else:
            status = event.get("status")
            ended = RunStatus(status) if status in STATUSES else FAILED
            changes |= {"status": WAITING, "so_far": ended} if event.get("again") else {"status": ended, "so_far": None}
            changes["reason"] = event.get("reason")
            changes["collected"] = bool(event.get("collected"))
            changes["reused_from"] = event.get("reused_from")
            changes["identity"] = event.get("identity")
        self.cells[key] = replace(cell, **changes)

    def _pause(self, event: Mapping[str, Any]) -> None:
        cells = frozenset(map(_name, event.get("cells") or []))
        pause = Pause(str(event.get("group")), str(event.get("reason") or ""), cells, _number(event.get("time")))
        self.pauses[pause.group] = pause
        for key, cell in self.cells.items():
            if cell.name in cells and cell.status != COMPLETE:
                self.cells[key] = replace(cell, status=PAUSED)

    def _go_on(self, group: str) -> None:
        pause = self.pauses.pop(group, None)
        for key, cell in self.cells.items():
            if pause is not None and cell.name in pause.cells and cell.status == PAUSED:
                self.cells[key] = replace(cell, status=WAITING)


def state_of(events: Iterable[Mapping[str, Any]]) -> SuiteState:
    """The events of a suite from the first on, of several invocations one after another."""
    state = SuiteState()
    for event in events:
        state.take(event)
    return state


def _left(cell: CellState) -> CellState:
    """A cell whose suite is gone."""
    if cell.status not in UNFINISHED:
        return cell
    if cell.before is not None:
        return cell.before
    reason = WAS_STOPPED if cell.status != WAITING or cell.attempt else WAS_NOT_BEGUN
    ended = cell.so_far if cell.status != RUNNING or cell.so_far == PARTIAL else None
    status = MISSING if ended is None else ended
    return replace(cell, status=status, reason=cell.reason or reason)


def _key(event: Mapping[str, Any]) -> tuple[str, str]:
    return str(event.get("target")), str(event.get("evaluation"))


def _name(cell: Any) -> str:
    """A cell of an event: `target/evaluation`, or a mapping that says both."""
    return "/".join(_key(cell)) if isinstance(cell, Mapping) else str(cell)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
