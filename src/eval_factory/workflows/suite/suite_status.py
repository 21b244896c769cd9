"""Where a suite stands, for somebody who looks from another terminal: read from the disk alone.

Whether it runs is told by its lock, not by its process's number: after SIGKILL or a reboot that may be another's.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from eval_factory.core.budget import Budget, Spending
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.folder_lock import Holder, is_running
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.rundir import RunDir, RunSuiteDir, SuiteDir
from eval_factory.executors.progress import EventTail
from eval_factory.workflows.suite.cell_job import CellJob
from eval_factory.workflows.suite.cell_progress import CellFollower, CellProgress, is_number
from eval_factory.workflows.suite.slurm_status import QueueReader
from eval_factory.workflows.suite.suite_budget import total
from eval_factory.workflows.suite.suite_lock import lock_is_held, may_hold
from eval_factory.workflows.suite.suite_spending import SpendingReader
from eval_factory.workflows.suite.suite_state import (
    COMPLETE,
    MISSING,
    PARTIAL,
    RUNNING,
    STATUSES,
    CellState,
    Pause,
    SuiteState,
)

GOES, STOPPED, ENDED = "running", "stopped", "ended"
"""Of a suite: a process works on it; its last one was killed; its last one came to its end."""


GONE = "its folder holds no result any more"
ANOTHER = "the result in its folder is of another configuration"
RUN_IT = "the same command runs it"

UNKNOWN = Holder(pid=0, host="", since="")
"""Somebody who holds the lock and has not said who he is yet."""


@dataclass(frozen=True)
class CellFigures:
    """The numbers of a cell's result."""

    task: str
    main_metric: str
    value: float | None
    """None where it could not be computed."""
    ci_low: float | None
    ci_high: float | None
    n: int | None
    reportable: bool
    identity: str | None = None
    """Of the run that it is the result of."""


@dataclass(frozen=True)
class CellStatus:
    """One cell."""

    state: CellState
    folder: Path
    progress: CellProgress | None = None
    """Of a cell that runs."""
    figures: CellFigures | None = None
    """Of a cell that has a result."""
    spent: Spending = field(default_factory=Spending)
    """In all runs of the cell's folder."""
    job: CellJob | None = None
    """Of a cell that Slurm has, or had, and that is not complete."""


@dataclass(frozen=True)
class SuiteStatus:
    """All of it."""

    folder: SuiteDir
    state: str
    pid: int | None
    """Of the process that works on it, or was the last to."""
    host: str | None
    started: float | None
    """Epoch seconds, of the last invocation."""
    ended: float | None
    exit_code: int | None
    """Of the last invocation, where it came to its end."""
    invocations: int
    cells: tuple[CellStatus, ...]
    pauses: tuple[Pause, ...]
    command: str | None = None
    """That began it, where it is known."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Of the budget of all cells together: name -> number."""

    @property
    def counts(self) -> dict[str, int]:
        """Status -> how many cells have it; those that none has are left out."""
        found = Counter(cell.state.status for cell in self.cells)
        return {status: found[status] for status in STATUSES if found[status]}

    @property
    def spent(self) -> Spending:
        """By all cells, in all runs of their folders."""
        return total(cell.spent for cell in self.cells)

    @property
    def is_complete(self) -> bool:
        """Whether every cell has a whole result."""
        return bool(self.cells) and all(cell.state.status == COMPLETE for cell in self.cells)


class SuiteReader:
    """Looks at a suite's folder again and again, and reads only what is new."""

    def __init__(self, folder: SuiteDir) -> None:
        self._folder = folder
        self._tail = EventTail(folder.events, None)
        self._state = SuiteState()
        self._cells = CellReader(folder)
        self._queue = QueueReader(folder)

    def look(self) -> SuiteStatus:
        """Where it stands now."""
        holder = holder_now(self._folder)  # before the events: who has let go of the lock has written all of his
        for event in self._tail.new():
            self._state.take(event)
        return self._queue.over(self._cells.status(self._state, is_running=holder is not None, holder=holder))


class CellReader:
    """Looks up what the folders of the cells say: of one that runs its events, of one that has ended its result."""

    def __init__(self, folder: SuiteDir) -> None:
        self._folder = folder
        self._followers: dict[str, tuple[float, CellFollower]] = {}
        self._figures: dict[str, tuple[float, CellFigures | None]] = {}
        self._spent = SpendingReader()
        self._limits: tuple[float, dict[str, float]] | None = None

    def status(self, state: SuiteState, *, is_running: bool, holder: Holder | None = None) -> SuiteStatus:
        """Of the suite that the events tell of; `holder` is the process that works on it, where that is known."""
        started, ended = state.started or {}, state.ended or {}
        return SuiteStatus(
            folder=self._folder,
            state=GOES if is_running else ENDED if ended else STOPPED,
            pid=started.get("pid") if holder is None else holder.pid,
            host=started.get("host") if holder is None else holder.host,
            started=started.get("time"),
            ended=ended.get("time"),
            exit_code=ended.get("exit_code"),
            invocations=state.invocations,
            cells=tuple(map(self.look, state.all_cells(is_running=is_running))),
            pauses=tuple(state.pauses.values()) if is_running else (),
            command=started.get("command"),
            limits=self._limits_now(),
        )

    def look(self, cell: CellState) -> CellStatus:
        """With what its folder says."""
        folder = self._folder.cell(cell.target, cell.evaluation)
        spent = self._spent.look(folder, cell.status)
        if cell.status == RUNNING:
            return CellStatus(cell, folder, progress=self._follower(cell, folder).look(), spent=spent)
        self._followers.pop(cell.name, None)
        figures = self._figures_of(cell, folder) if cell.status in (COMPLETE, PARTIAL) else None
        lost = _why_lost(cell, figures)
        if lost is not None:
            return CellStatus(replace(cell, status=MISSING, reason=f"{lost}; {RUN_IT}"), folder, spent=spent)
        return CellStatus(cell, folder, figures=figures, spent=spent)

    def _limits_now(self) -> dict[str, float]:
        written = _modified(self._folder.config)
        if self._limits is None or self._limits[0] != written:
            self._limits = (written, limits_of(self._folder))
        return self._limits[1]

    def _follower(self, cell: CellState, folder: Path) -> CellFollower:
        since = cell.since or 0.0
        known = self._followers.get(cell.name)
        if known is None or known[0] != since:
            known = self._followers[cell.name] = (since, CellFollower(folder, since))
        return known[1]

    def _figures_of(self, cell: CellState, folder: Path) -> CellFigures | None:
        written = _modified(RunDir(folder).evaluation_config)
        known = self._figures.get(cell.name)
        if known is None or known[0] != written:
            known = self._figures[cell.name] = (written, figures_of(folder))
        return known[1]


def _why_lost(cell: CellState, figures: CellFigures | None) -> str | None:
    """Why a cell that ended with a result has none: somebody deleted its folder, or ran something else in it."""
    if cell.status not in (COMPLETE, PARTIAL) or cell.identity is None:
        return None
    if figures is None:
        return GONE
    return None if cell.identity == figures.identity else ANOTHER


def same_command(status: SuiteStatus) -> str:
    """What goes on with the suite: its own command, or one that does the same."""
    if status.command is not None:
        return status.command
    if isinstance(status.folder, RunSuiteDir):
        words = ["eval-factory", "run_eval", "--run_config", str(status.folder.run_config)]
    else:
        words = ["eval-factory", "run_suite", "--run_config", str(status.folder.config)]
    return shlex.join([*words, "--output_dir", str(status.folder.named)] if was_moved(status.folder) else words)


def was_moved(folder: SuiteDir) -> bool:
    """Whether suite_config.yml names another folder, where its suite would begin from nothing."""
    stated = _section(folder).get("output_dir")
    return isinstance(stated, str) and os.path.realpath(stated) != os.path.realpath(folder.root)


def holder_now(folder: SuiteDir) -> Holder | None:
    """The process that works on the suite; None where none does.

    A lock that is held, but not by the process that took it, is what that process left when it was killed.
    """
    if not lock_is_held(folder.lock):
        return None
    holder = Holder.written_in(folder.lock) or UNKNOWN
    if holder.host == socket.gethostname() and not (is_running(holder.pid) and may_hold(holder.pid, folder.lock)):
        return None
    return holder


def status_of(folder: SuiteDir) -> SuiteStatus:
    """Where the suite stands now."""
    return SuiteReader(folder).look()


def figures_of(folder: Path) -> CellFigures | None:
    """None where there is no result that can be read."""
    from eval_factory.report.reader import load_result  # imported here: most that look do so while nothing has ended

    try:
        result = load_result(folder).result
    except PrerequisiteError:
        return None
    score = result.scores.get(result.main_metric)
    stats = None if score is None else score.stats
    return CellFigures(
        task=result.task,
        main_metric=result.main_metric,
        value=None if score is None else score.value,
        ci_low=None if stats is None else stats.ci_low,
        ci_high=None if stats is None else stats.ci_high,
        n=None if stats is None else stats.count,
        reportable=result.reportable,
        identity=result.provenance.run_identity,
    )


def limits_of(folder: SuiteDir) -> dict[str, float]:
    """The limits of the budget that suite_config.yml states; none where it cannot be read."""
    section = _section(folder)
    stated: dict[str, Any] = {one.name: section.get(one.name) for one in fields(Budget)}
    return {name: value for name, value in stated.items() if is_number(value)}


def _section(folder: SuiteDir) -> dict[str, Any]:
    """What suite_config.yml holds; nothing where it cannot be read."""
    try:
        section = parse_own(folder.config.read_text(encoding="utf-8"))["suite"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return section if isinstance(section, dict) else {}


def document(status: SuiteStatus) -> dict[str, Any]:
    """For programs."""
    return {
        "suite": str(status.folder.root),
        "state": status.state,
        "pid": status.pid,
        "host": status.host,
        "started": status.started,
        "ended": status.ended,
        "exit_code": status.exit_code,
        "invocations": status.invocations,
        "command": same_command(status),
        "complete": status.is_complete,
        "total": len(status.cells),
        "counts": status.counts,
        "spent": asdict(status.spent),
        "limits": dict(status.limits),
        "paused": [{**asdict(pause), "cells": sorted(pause.cells)} for pause in status.pauses],
        "cells": [_cell_document(cell) for cell in status.cells],
    }


def _cell_document(cell: CellStatus) -> dict[str, Any]:
    state = cell.state
    return {
        "target": state.target,
        "evaluation": state.evaluation,
        "status": state.status,
        "attempt": state.attempt,
        "reason": state.reason,
        "since": state.since,
        "collected": state.collected,
        "reused_from": state.reused_from,
        "folder": str(cell.folder),
        "spent": asdict(cell.spent),
        "progress": None if cell.progress is None else cell.progress.document(),
        "result": None if cell.figures is None else asdict(cell.figures),
        **({} if cell.job is None else {"slurm": cell.job.document()}),
    }


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
