"""A share of time for work that may be left out."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds; only differences of them mean anything."""


class OutOfTime(Exception):
    """The work took what it may take, and is not done."""


class TimeLimit:
    """So many seconds of work, which begin with the first `running` block and stand still between two of them."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.seconds = seconds
        self.spent = 0.0
        self._last: float | None = None

    def __enter__(self) -> None:
        self._last = self._clock()

    def __exit__(self, *_: object) -> None:
        self._count()
        self._last = None

    def check(self) -> None:
        """Raises OutOfTime."""
        self._count()
        if self.spent > self.seconds:
            raise OutOfTime

    def _count(self) -> None:
        if self._last is not None:
            now = self._clock()
            self.spent += now - self._last
            self._last = now
