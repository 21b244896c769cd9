"""What Slurm says of a suite's cells, for who looks at the suite or ends it from any machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm_commands import QueuedTask, Slurm
from eval_factory.executors.slurm_reasons import in_words
from eval_factory.executors.slurm_script import clean_up_name
from eval_factory.executors.slurm_waves import Wave, active
from eval_factory.workflows.suite.cell_job import CellJob
from eval_factory.workflows.suite.cell_progress import CellFollower
from eval_factory.workflows.suite.slurm_clean_up import JUST_WRITTEN_S, forget_keys
from eval_factory.workflows.suite.slurm_store import CellStore, SlurmStore
from eval_factory.workflows.suite.suite_spending import SpendingReader
from eval_factory.workflows.suite.suite_state import COMPLETE, FAILED, PARTIAL, RUNNING, WAITING, CellState

if TYPE_CHECKING:
    from eval_factory.workflows.suite.suite_status import CellStatus, SuiteStatus

INTERVAL_S = 5.0
"""How long what squeue says is good enough: it asks one program for a whole cluster."""
POLL_S = 0.5
LONGEST_S = 120.0
NOT_KNOWN = "Slurm does not say whether it is queued: ask again"
PUBLISHED = "its job has ended: the same command takes the result over"
GONE = "its task is gone from Slurm and left no result: its logs say why, the same command submits it again"
_AT_WORK = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"})


class QueueReader:
    """Asks Slurm now and then, and only while it may have something of the suite."""

    def __init__(
        self, folder: SuiteDir, slurm: Slurm | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._clock = SlurmStore(folder), clock
        self._slurm = slurm or Slurm(os.environ)
        self._known: tuple[float, dict[str, QueuedTask] | None] | None = None
        self._followers: dict[Path, CellFollower] = {}
        self._spent = SpendingReader()

    def over(self, status: SuiteStatus) -> SuiteStatus:
        """The status that the suite's own files give, with what its jobs do."""
        if not self._store.is_there():
            return status
        plan, known_waves = self._store.plan(), self._store.waves()
        latest = {(line.target, line.evaluation): line.key for line in plan}
        queued = self._queued() if self._store.open_waves() else {}
        if queued is not None and status.state != "running":
            forget_keys(self._store, queued.values(), older_than_s=JUST_WRITTEN_S)
        tasks = {} if queued is None else dict(of_cells(queued))
        waves = {key: wave for wave in known_waves for key in wave.keys}
        by_job = {(wave.job_name, key): wave for wave in known_waves for key in wave.keys}
        cells = []
        for cell in status.cells:
            key = latest.get((cell.state.target, cell.state.evaluation))
            if key in waves and key is not None and cell.state.status != COMPLETE:
                task = tasks.get(cell.state.name)
                wave = waves[key] if task is None else by_job.get((task.job_name, key), waves[key])
                cell = self._cell(cell, key, wave, task, known=queued is not None)
            cells.append(cell)
        status = replace(status, cells=tuple(cells))
        return replace(status, state="running", pid=None, host=None) if tasks and status.state != "running" else status

    def _cell(self, cell: CellStatus, key: str, wave: Wave, task: QueuedTask | None, *, known: bool) -> CellStatus:
        store, told = self._store.cell(key), None if task is None else _in_words(task)
        attempts = store.attempts()
        work = attempts[-1] / "out" if attempts and (attempts[-1] / "out").is_dir() else None
        begun = store.attempts_of(wave.number)
        job = CellJob(told, begun, self._store.task_log(wave, key), work)
        state = replace(cell.state, attempt=max(cell.state.attempt, begun))
        spent = cell.spent if work is None else self._spent.look(work, str(task and task.state))
        cell = replace(cell, job=job, spent=spent)
        if task is None:
            why = _why_not_queued(state, store, wave, known=known)
            status = WAITING if why == PUBLISHED else state.status
            return replace(cell, state=replace(state, status=status, reason=why))
        status = RUNNING if task.state in _AT_WORK else WAITING
        progress = self._follower(work).look() if status == RUNNING and work is not None else None
        return replace(cell, state=replace(state, status=status, reason=told), progress=progress)

    def _follower(self, work: Path) -> CellFollower:
        if work not in self._followers:
            self._followers[work] = CellFollower(work, 0.0)
        return self._followers[work]

    def _queued(self) -> dict[str, QueuedTask] | None:
        """None where Slurm does not say."""
        now = self._clock()
        if self._known is None or now - self._known[0] >= INTERVAL_S:
            try:
                found: dict[str, QueuedTask] | None = active(self._slurm.queue(), self._store.waves())
            except PrerequisiteError:
                found = None
            self._known = (now, found)
        return self._known[1]


def of_cells(queued: Mapping[str, QueuedTask]) -> Iterator[tuple[str, QueuedTask]]:
    """Cell -> its task; of several one that is at work, which comes last."""
    for key, task in sorted(queued.items(), key=lambda item: item[1].state in _AT_WORK):
        yield key.rpartition("/")[0], task


def _in_words(task: QueuedTask) -> str:
    waits = task.state == "PENDING" and task.reason.strip("()") not in ("", "None")
    why = f", {in_words(task.reason, f'{task.job_id}_{task.index}')}" if waits else ""
    return f"Slurm: {task.job_name} task {task.index}, {task.state}{why}"


def _why_not_queued(state: CellState, store: CellStore, wave: Wave, *, known: bool) -> str | None:
    """What a cell comes to that is not in the queue, before the command has taken it over."""
    if store.done() is not None:
        return PUBLISHED
    if not known:
        return NOT_KNOWN
    if state.status in (FAILED, PARTIAL):
        return state.reason
    ended = store.ended(wave.number)
    if ended is not None:
        return f"its job has ended: {ended.status}{f': {ended.reason}' if ended.reason else ''}"
    return state.reason if state.status == WAITING else GONE


def cancel_jobs(
    folder: SuiteDir,
    say: Callable[[str], object],
    slurm: Slurm | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """End every job of the suite, and wait until none is left; whoever waits for them stops waiting.

    Returns:
        Whether there were any.

    Raises:
        PrerequisiteError: Slurm does not say what is queued, or the jobs do not end.
    """
    store = SlurmStore(folder)
    if not store.is_there():
        return False
    slurm = slurm or Slurm(os.environ)
    waves = store.waves()
    names = sorted({task.job_name for task in active(slurm.queue(), waves).values()})
    if names:
        store.cancelled.touch()
    for name in names:
        slurm.cancel(name)
        slurm.cancel(clean_up_name(name))
        say(f"asked Slurm to end {name} ...")
    started = time.monotonic()
    while names and active(slurm.queue(), waves):
        if time.monotonic() - started > LONGEST_S:
            raise PrerequisiteError(
                f"{folder.root}: jobs were cancelled and have not ended after {LONGEST_S:.0f} s: {', '.join(names)}\n"
                "  see squeue, then run it again"
            )
        sleep(POLL_S)
    for wave in waves:
        store.environment(wave.number).unlink(missing_ok=True)
    return bool(names)
