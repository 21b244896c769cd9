"""The limits of one endpoint as several processes have them together: who is in, who is next, until when nobody is.

No thread and no socket is in here: one thread (`eval_factory.endpoint.limit_server`) asks, and keeps the time.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from eval_factory.endpoint.limits import AdaptiveLimit, RateLimiter

_THROUGH = object()
Key = TypeVar("Key", bound=Hashable)


class SharedSlots(Generic[Key]):
    """Places of requests that go on at once, given by rank and, within one, in the order of coming."""

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = AdaptiveLimit(most), clock
        self._waiting: dict[Key, tuple[int, int]] = {}
        """Whoever waits -> rank, number of its coming."""
        self._queue: list[tuple[int, int, Key]] = []
        """A heap of the same; it may still hold those that wait no more."""
        self._coming = itertools.count()
        self._since: dict[Key, float] = {}
        """Whoever is in -> since when, by this process's clock: others may have another one."""
        self._closed_until: float | None = None

    def want(self, key: Key, rank: int = 0) -> None:
        """`rank`: a lower one goes before."""
        turn = self._waiting[key] = rank, next(self._coming)
        heapq.heappush(self._queue, (*turn, key))

    def leave(self, key: Key, *, answered: bool = False) -> None:
        """Give the place back, or wait no more. `answered`: the endpoint did."""
        self._waiting.pop(key, None)
        if self._since.pop(key, None) is not None and answered:
            self._limit.answered()

    def too_many(self, key: Key, pause: float | None) -> None:
        """The endpoint refused a request; where it asks to wait for so many seconds, nobody is let in meanwhile."""
        since = self._since.get(key)
        if since is None:
            return
        now = self._clock()
        self._limit.too_many(since, now)
        if pause is not None:
            self._closed_until = max(self._closed_until or now, now + pause)

    def let_in(self) -> Iterator[Key]:
        """Those that have their turn now."""
        if self.closed_for():
            return
        while self._waiting and len(self._since) < self._limit.places:
            *turn, key = heapq.heappop(self._queue)
            if self._waiting.get(key) == tuple(turn):
                del self._waiting[key]
                self._since[key] = self._clock()
                yield key

    def closed_for(self) -> float:
        """Seconds until somebody is let in again; 0 where the endpoint asked for no pause, or it is over."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until is not None else 0.0


class SharedRate(Generic[Key]):
    """So many requests and tokens a minute, in the order of coming."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._waiting: OrderedDict[Key, Iterator[None]] = OrderedDict()

    def want(self, key: Key, tokens: int) -> None:
        """`tokens`: that the request may use."""
        self._waiting[key] = self._limiter.tries(tokens)

    def leave(self, key: Key) -> None:
        """Wait no more."""
        self._waiting.pop(key, None)

    def let_through(self) -> Iterator[Key]:
        """Those that may send now."""
        while self._waiting:
            key, tries = next(iter(self._waiting.items()))
            if next(tries, _THROUGH) is not _THROUGH:
                return
            del self._waiting[key]
            yield key

    @property
    def anybody_waits(self) -> bool:
        return bool(self._waiting)
