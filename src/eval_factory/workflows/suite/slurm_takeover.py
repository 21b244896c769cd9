"""Two starts of one cell at the same time: the newer one takes over, so that no request is paid for by both.

Slurm starts a task again when it hears nothing of its node, whose processes may well go on (a frozen slurmd, a broken
network). Both see the cell's folder: the older start finds that of the newer one and ends, and the newer one gives it
time to, before it copies the answers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
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
    cell: CellStore,
    attempt: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether every other start of the cell has ended; if not, it was waited for as long as one needs to."""
    ends = clock() + PATIENCE_S
    while any(path != attempt and not (path / ENDED).exists() for path in cell.attempts()):
        if clock() >= ends:
            return False
        sleep(POLL_S)
    return True


def interrupt_this_process() -> None:
    """As Slurm does: what was answered is on disk, and nothing is published."""
    os.kill(os.getpid(), signal.SIGTERM)


class Takeover:
    """While it is entered, the first start of the cell that is newer than this one interrupts this one."""

    def __init__(
        self, cell: CellStore, interrupt: Callable[[], object] = interrupt_this_process, every_s: float = LOOK_S
    ) -> None:
        self._cell, self._interrupt, self._every_s = cell, interrupt, every_s
        self._known = set(cell.attempts())
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
            if not self.happened and not self._known.issuperset(self._cell.attempts()):
                self.happened = True
                self._interrupt()

    def _look(self) -> None:
        while not self.happened and not self._left.wait(self._every_s):
            self.look()
