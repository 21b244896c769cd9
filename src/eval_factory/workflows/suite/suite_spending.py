"""What the cells of a suite have asked so far, for somebody who only looks: from their journals, now and then."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from eval_factory.core.budget import Spending
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.paid_answers import spent_so_far

INTERVAL_S = 5.0
"""How long what was read is good enough: a journal of many answers takes its time, and is written all the while."""


class SpendingReader:
    """Reads a folder's journal again where it is another, and not too often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Path, tuple[float, str, object, Spending]] = {}

    def look(self, folder: Path, status: str) -> Spending:
        """In all runs of this output folder; of what has a known price alone, where it is money.

        Args:
            status: of the cell. Where it is another, all is read at once: what has ended has its final figures.
        """
        now, known = self._clock(), self._known.get(folder)
        if known is not None and known[1] == status and now - known[0] < INTERVAL_S:
            return known[3]
        there = _signature(folder)
        spent = known[3] if known is not None and known[2] == there else _read(folder)
        self._known[folder] = (now, status, there, spent)
        return spent


def _read(folder: Path) -> Spending:
    try:
        return spent_so_far(RunDir(folder).cache_db, {})
    except sqlite3.Error:  # damaged, or another's: the run itself says so
        return Spending()


def _signature(folder: Path) -> object:
    """Changes when the journal does."""
    found = []
    for path in RunDir(folder).answers:
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((path, about.st_mtime_ns, about.st_size))
    return found
