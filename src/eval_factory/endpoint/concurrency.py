"""How many requests go on at once: fewer when the endpoint says that it has too many, more again when it answers.

Additive increase, multiplicative decrease (D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems 17:1-14, 1989).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

DECREASE = 0.7


class AdaptiveConcurrency:
    """Admits up to `most` requests at once, and adapts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = float(most)
        self._inside = 0
        self._condition = threading.Condition()
        self._last_decrease = 0.0

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._allowed

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a place; yields the time at which it was given."""
        with self._condition:
            while self._inside >= max(1, int(self._allowed)):
                self._condition.wait()
            self._inside += 1
        try:
            yield time.monotonic()
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify()

    def too_many(self, since: float) -> None:
        """The endpoint refused a request that began at `since`: go down, once for all that were under way together."""
        with self._condition:
            if since >= self._last_decrease:
                self._allowed = max(1.0, self._allowed * DECREASE)
                self._last_decrease = time.monotonic()

    def answered(self) -> None:
        """One place more for each round of answers."""
        if self._allowed >= self._most:  # read without the lock: the usual case costs nothing
            return
        with self._condition:
            before = int(self._allowed)
            self._allowed = min(float(self._most), self._allowed + 1.0 / self._allowed)
            if int(self._allowed) > before:
                self._condition.notify()
