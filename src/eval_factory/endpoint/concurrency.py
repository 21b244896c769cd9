"""How many requests go on at once: fewer when the endpoint says that it has too many, more again when it answers.

Additive increase, multiplicative decrease (D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems 17:1-14, 1989).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from eval_factory.endpoint import bridge

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
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._limit.allowed

    def enter(self) -> float:
        """Waits for a place; the time at which it was given."""
        with self._lock:
            turn = None if self._inside < self._limit.places else Future[None]()
            if turn is None:
                self._inside += 1
            else:
                self._waiting.append(turn)
        if turn is not None:
            try:
                bridge.result_of(turn)
            except BaseException:
                if not turn.cancel():
                    self.leave()
                raise
        return time.monotonic()

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._inside < self._limit.places:
            turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                self._inside += 1
                turn.set_result(None)

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
        with self._lock:
            self._limit.too_many(since, time.monotonic())

    def answered(self) -> None:
        """The endpoint answered a request."""
        if self._limit.is_whole:  # read without the lock: the usual case costs nothing
            return
        with self._lock:
            self._limit.answered()
            self._let_in()
