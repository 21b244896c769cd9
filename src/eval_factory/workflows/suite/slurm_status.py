"""What Slurm says of a suite's cells, for who looks at the suite or ends it from any machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.executors.slurm_commands import QueuedTask, Slurm
from eval_factory.executors.slurm_waves import active
from eval_factory.workflows.suite.slurm_shards import cell_key, end_of_part, part_keys
from eval_factory.workflows.suite.slurm_store import SlurmStore
from eval_factory.workflows.suite.suite_state import COMPLETE, RUNNING, WAITING, CellState

if TYPE_CHECKING:
    from eval_factory.workflows.suite.suite_status import SuiteStatus

INTERVAL_S = 5.0
"""How long what squeue says is good enough: it asks one program for a whole cluster."""
POLL_S = 0.5
LONGEST_S = 120.0
NOT_KNOWN = "Slurm does not say whether it is queued: ask again"
PUBLISHED = "its job has ended: the same command takes the result over"
_AT_WORK = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"})


class QueueReader:
    """Asks Slurm now and then, and only while it may have something of the suite."""

    def __init__(
        self, folder: SuiteDir, slurm: Slurm | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._clock = SlurmStore(folder), clock
        self._slurm = slurm or Slurm(os.environ)
        self._known: tuple[float, dict[str, QueuedTask] | None] | None = None

    def over(self, status: SuiteStatus) -> SuiteStatus:
        """The status that the suite's own files give, with what its jobs do."""
        if not self._store.is_there():
            return status
        latest = {(line.target, line.evaluation): cell_key(line.key) for line in self._store.plan()}
        queued = self._queued() if self._store.open_waves() else {}
        tasks = {} if queued is None else dict(of_cells(queued))
        cells = []
        for cell in status.cells:
            key = latest.get((cell.state.target, cell.state.evaluation))
            state = cell.state if key is None else self._state(cell.state, key, tasks, known=queued is not None)
            cells.append(replace(cell, state=state))
        status = replace(status, cells=tuple(cells))
        return replace(status, state="running", pid=None, host=None) if tasks and status.state != "running" else status

    def _state(self, state: CellState, key: str, tasks: Mapping[str, QueuedTask], *, known: bool) -> CellState:
        if state.status == COMPLETE:
            return state
        task = tasks.get(state.name)
        if task is not None:
            status = RUNNING if task.state in _AT_WORK else WAITING
            parts = f", {more}" if (more := self._parts(key)) else ""
            reason = f"Slurm: {task.job_name} task {task.index}, {task.state}{parts}"
            return replace(state, status=status, reason=reason)
        if self._store.cell(key).done() is not None:
            return replace(state, reason=PUBLISHED)
        return state if known else replace(state, reason=NOT_KNOWN)

    def _parts(self, key: str) -> str:
        """How many parts of a cell have ended; nothing of one that has none."""
        of = next((line.of for line in self._store.plan() if line.key == key), 1)
        waves = self._store.waves()
        ended = sum(end_of_part(self._store, part, waves) is not None for part in part_keys(key, of))
        return f"{ended} of {of} parts have asked" if of > 1 else ""

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
