"""How many requests go on at once: fewer when the endpoint says that it has too many, more again when it answers.

Additive increase, multiplicative decrease (D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems 17:1-14, 1989).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from eval_factory.endpoint import waiting

DECREASE = 0.7


class AdaptiveLimit:
    """How many at once, as the endpoint's answers have it; whoever uses it keeps threads apart."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = float(most)
        self._last_decrease = 0.0

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._allowed

    @property
    def places(self) -> int:
        return max(1, int(self._allowed))

    @property
    def is_whole(self) -> bool:
        """Whether as many are allowed as ever are."""
        return self._allowed >= self._most

    def too_many(self, since: float, now: float) -> None:
        """A request that began at `since` was refused: go down, once for all that were under way together."""
        if since >= self._last_decrease:
            self._allowed = max(1.0, self._allowed * DECREASE)
            self._last_decrease = now

    def answered(self) -> None:
        """One place more for each round of answers."""
        self._allowed = min(float(self._most), self._allowed + 1.0 / self._allowed)


class AdaptiveConcurrency:
    """Admits up to `most` requests of one process at once, and adapts."""

    def __init__(self, most: int) -> None:
        self._limit = AdaptiveLimit(most)
        self._inside = 0
        self._condition = threading.Condition()

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._limit.allowed

    def enter(self) -> float:
        """Waits for a place; the time at which it was given."""
        with self._condition:
            is_inside = self._takes_a_place()
        if not is_inside:
            waiting.elsewhere(self._wait_for_a_place)
        return time.monotonic()

    def _takes_a_place(self) -> bool:
        free = self._inside < self._limit.places
        self._inside += free
        return free

    def _wait_for_a_place(self) -> None:
        with self._condition:
            self._condition.wait_for(self._takes_a_place)

    def leave(self) -> None:
        with self._condition:
            self._inside -= 1
            self._condition.notify()

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a place; yields the time at which it was given."""
        since = self.enter()
        try:
            yield since
        finally:
            self.leave()

    def too_many(self, since: float) -> None:
        """The endpoint refused a request that began at `since`."""
        with self._condition:
            self._limit.too_many(since, time.monotonic())

    def answered(self) -> None:
        """The endpoint answered a request."""
        if self._limit.is_whole:  # read without the lock: the usual case costs nothing
            return
        with self._condition:
            before = self._limit.places
            self._limit.answered()
            if self._limit.places > before:
                self._condition.notify()
