"""Two starts of one task at the same time: the newer one takes over, so that no request is paid for by both.

Slurm starts a task again when it hears nothing of its node, whose processes may well go on (a frozen slurmd, a broken
network). Both see the folders of what the task does, a cell or all cells of a served model: the older start finds that
of the newer one and ends, and the newer one gives it time to, before it copies the answers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from eval_factory.workflows.suite.slurm_store import CellStore

LOOK_S = 1.0
PATIENCE_S = 8.0
"""For an older start to see the newer one, and to end its helm-run: LOOK_S, and at most two graces of SIGTERM. A start
whose node is gone never says that it has ended: it costs so long, once for each start after it."""
POLL_S = 0.2
ENDED = "end.json"
"""In the folder of an attempt that came to its end, whatever that was."""


def wait_for_older(
    begun: Mapping[CellStore, Path],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether every other start of these cells has ended; if not, it was waited for as long as one needs to.

    Args:
        begun: cell -> the folder of this start.
    """
    ends = clock() + PATIENCE_S
    while any(_others_work(cell, attempt) for cell, attempt in begun.items()):
        if clock() >= ends:
            return False
        sleep(POLL_S)
    return True


def _others_work(cell: CellStore, attempt: Path) -> bool:
    return any(path != attempt and not (path / ENDED).exists() for path in cell.attempts())


def interrupt_this_process() -> None:
    """As Slurm does: what was answered is on disk, and nothing is published."""
    os.kill(os.getpid(), signal.SIGTERM)


class Takeover:
    """While it is entered, the first start of one of the cells that is newer than this one interrupts this one."""

    def __init__(
        self,
        cells: Collection[CellStore],
        interrupt: Callable[[], object] = interrupt_this_process,
        every_s: float = LOOK_S,
    ) -> None:
        self._cells, self._interrupt, self._every_s = cells, interrupt, every_s
        self._known = self._attempts()
        self._left = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self.happened = False

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._watch.join()

    def look(self) -> None:
        """Once; a file system that does not answer says nothing about others."""
        with suppress(OSError):
            if not self.happened and not self._known.issuperset(self._attempts()):
                self.happened = True
                self._interrupt()

    def _attempts(self) -> set[Path]:
        return {path for cell in self._cells for path in cell.attempts()}

    def _look(self) -> None:
        while not self.happened and not self._left.wait(self._every_s):
            self.look()
