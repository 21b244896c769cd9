"""Limits that several helm-run processes have together: a server in the process that runs them.

It listens at a Unix socket in a folder that only this user can enter. A process has one connection for all its threads;
when it closes, whatever the reason, its places are free again. Messages are JSON, one a line:

    {"do": "slot", "id": 1, "group": G}                   answered {"id": 1} when it is this request's turn
    {"do": "too_many", "id": 1, "pause": seconds or null}
    {"do": "leave", "id": 1, "answered": true}            gives a place back, or waits no more for whatever it was
    {"do": "rate", "id": 2, "group": G, "tokens": 300}    answered {"id": 2} when it is within the limits a minute
    {"do": "begin", "id": 3}                              answered {"id": 3, "reached": a limit's name or null}
    {"do": "spend", "tokens": 20, "cost": 0.01}

What a connection is told first: which groups there are, and what each counts a minute. When the time of the budget is
over, `{"over": "max_wall_s"}` is told to all: who waits for a pause to end asks nothing meanwhile.

The limits of one endpoint as several processes have them together: who is in, who is next, until when nobody is.

No thread and no socket is in here: one thread (`eval_factory.endpoint.limit_server`) asks, and keeps the time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from typing_extensions import Self

from eval_factory.core.budget import MAX_WALL, Purse
from eval_factory.endpoint.endpoint_settings import LimitOf
from eval_factory.endpoint.limits import POLL_S, AdaptiveLimit, RateLimiter

_THROUGH = object()
_Key = TypeVar("_Key", bound=Hashable)


class SharedSlots(Generic[_Key]):
    """Places of requests that go on at once, given by rank and, within one, in the order of coming."""

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = AdaptiveLimit(most), clock
        self._waiting: dict[_Key, tuple[int, int]] = {}
        """Whoever waits -> rank, number of its coming."""
        self._queue: list[tuple[int, int, _Key]] = []
        """A heap of the same; it may still hold those that wait no more."""
        self._coming = itertools.count()
        self._since: dict[_Key, float] = {}
        """Whoever is in -> since when, by this process's clock: others may have another one."""
        self._closed_until: float | None = None

    def want(self, key: _Key, rank: int = 0) -> None:
        """`rank`: a lower one goes before."""
        turn = self._waiting[key] = rank, next(self._coming)
        heapq.heappush(self._queue, (*turn, key))

    def leave(self, key: _Key, *, answered: bool = False) -> None:
        """Give the place back, or wait no more. `answered`: the endpoint did."""
        self._waiting.pop(key, None)
        if self._since.pop(key, None) is not None and answered:
            self._limit.answered()

    def too_many(self, key: _Key, pause: float | None) -> None:
        """The endpoint refused a request; where it asks to wait for so many seconds, nobody is let in meanwhile."""
        since = self._since.get(key)
        if since is None:
            return
        now = self._clock()
        self._limit.too_many(since, now)
        if pause is not None:
            self._closed_until = max(self._closed_until or now, now + pause)

    def let_in(self) -> Iterator[_Key]:
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


class SharedRate(Generic[_Key]):
    """So many requests and tokens a minute, in the order of coming."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._waiting: OrderedDict[_Key, Iterator[None]] = OrderedDict()

    def want(self, key: _Key, tokens: int) -> None:
        """`tokens`: that the request may use."""
        self._waiting[key] = self._limiter.tries(tokens)

    def leave(self, key: _Key) -> None:
        """Wait no more."""
        self._waiting.pop(key, None)

    def let_through(self) -> Iterator[_Key]:
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


LONGEST_PATH = 100
"""Bytes of a socket's path: Linux takes 107, macOS 103 (`sun_path`)."""
LONGEST_LINE = 65536
BACKLOG = 128
"""Processes that connect at the same moment."""
PREFIX, SOCKET = "eval-factory-", "s"
OVER = {"over": MAX_WALL}
SHORT_FOLDER = "/tmp"  # noqa: S108 - a folder of a name that nobody can know is made in it, for this user alone


class LimitServer:
    """Serves in a thread of its own from `with` on to its end."""

    def __init__(self, limits: Mapping[str, LimitOf], purse: Purse | None = None) -> None:
        """`limits`: by the name of the group that shares them; `purse`: the budget of all together."""
        self._desk = _Desk({name: _Group(limit) for name, limit in limits.items()}, purse)
        self._address: str | None = None
        self._end = ExitStack()

    @property
    def address(self) -> str:
        """The path of its socket."""
        if self._address is None:
            raise RuntimeError("the server has not begun")
        return self._address

    def __enter__(self) -> Self:
        """
        Raises:
            OSError: there is no place for a socket.
        """
        with ExitStack() as end:
            folder = _private_folder()
            end.callback(shutil.rmtree, folder, ignore_errors=True)
            self._address = str(folder / SOCKET)
            listening = end.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(self._address)
            listening.listen(BACKLOG)
            loop, ready = asyncio.new_event_loop(), threading.Event()
            thread = threading.Thread(target=self._serve, args=(loop, listening, ready), name="limits", daemon=True)
            thread.start()
            ready.wait()
            end.callback(thread.join)
            end.callback(loop.call_soon_threadsafe, loop.stop)
            self._end = end.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def _serve(self, loop: asyncio.AbstractEventLoop, listening: socket.socket, ready: threading.Event) -> None:
        """In a thread, for the caller's own may have a loop that runs (a notebook's)."""
        server = loop.run_until_complete(loop.create_unix_server(lambda: _Link(self._desk), sock=listening))
        left = self._desk.seconds_left
        if left is not None:
            loop.call_later(min(left, threading.TIMEOUT_MAX), self._desk.end_time)
        ready.set()
        try:
            loop.run_forever()
        finally:
            server.close()
            self._desk.close()
            loop.run_until_complete(asyncio.sleep(0))  # connections are closed in the loop's next round
            loop.close()


def _private_folder() -> Path:
    """Only this user can enter it, and a socket's path in it is short enough.

    What is killed leaves it behind, with nothing but the socket's name in it.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    if len(os.fsencode(folder / SOCKET)) > LONGEST_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHORT_FOLDER))
    return folder


class _Group:
    """The limits of one endpoint."""

    def __init__(self, limit: LimitOf) -> None:
        self.slots: SharedSlots[tuple[_Link, int]] = SharedSlots(limit.parallelism)
        limiter = RateLimiter(limit.requests_per_minute, limit.tokens_per_minute)
        self.rate: SharedRate[tuple[_Link, int]] = SharedRate(limiter)
        self.told = {
            "rate": limit.requests_per_minute is not None or limit.tokens_per_minute is not None,
            "tokens": limit.tokens_per_minute is not None,
        }
        self.will_open: asyncio.TimerHandle | None = None
        """After a pause that the endpoint asked for."""
        self.will_try: asyncio.TimerHandle | None = None
        """To let the next request through that waits for its minute."""


class _Link(asyncio.Protocol):
    """The connection of one process."""

    def __init__(self, desk: _Desk) -> None:
        self._desk, self._rest = desk, b""
        self.rank = next(desk.ranks)
        self._transport: asyncio.Transport | None = None
        self.groups: dict[int, _Group] = {}
        """Of each request that waits or has a place."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._desk.greet(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._desk.take(self, json.loads(line))
        except (ValueError, TypeError, KeyError):  # none of our clients
            self.close()
        if len(self._rest) > LONGEST_LINE:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason
        self._desk.forget(self)

    def tell(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Desk:
    """Takes messages, in the one thread of the server."""

    def __init__(self, groups: Mapping[str, _Group], purse: Purse | None) -> None:
        self._groups, self._purse = groups, purse
        self._links: set[_Link] = set()
        self.ranks = itertools.count()
        """A process that came earlier has its places first: so it ends, and scores while the next ones ask."""
        self._is_over = False
        self._takers: dict[str, Callable[[_Link, Mapping[str, Any]], None]] = {
            "slot": self._slot, "leave": self._leave, "too_many": self._too_many, "rate": self._rate,
            "begin": self._begin, "spend": self._spend,
        }  # fmt: skip

    def greet(self, link: _Link) -> None:
        self._links.add(link)
        told = {name: group.told for name, group in self._groups.items()}
        link.tell({"groups": told, "purse": self._purse is not None})
        if self._is_over:
            link.tell(OVER)

    @property
    def seconds_left(self) -> float | None:
        """None: there is no limit of time."""
        return None if self._purse is None else self._purse.seconds_left

    def end_time(self) -> None:
        """The time of the budget is over: nobody is to wait for anything any more."""
        self._is_over = True
        for link in self._links:
            link.tell(OVER)

    def take(self, link: _Link, message: Mapping[str, Any]) -> None:
        """Raises ValueError, TypeError or KeyError where it is no message of ours."""
        self._takers[message["do"]](link, message)

    def forget(self, link: _Link) -> None:
        """Its process is gone, or has all it wanted."""
        self._links.discard(link)
        groups, link.groups = link.groups, {}
        for number, group in groups.items():
            group.slots.leave((link, number))
            group.rate.leave((link, number))
        for group in set(groups.values()):
            self._let_in(group)

    def close(self) -> None:
        for link in list(self._links):
            link.close()

    def _slot(self, link: _Link, message: Mapping[str, Any]) -> None:
        group = link.groups[message["id"]] = self._groups[message["group"]]
        group.slots.want((link, message["id"]), link.rank)
        self._let_in(group)

    def _leave(self, link: _Link, message: Mapping[str, Any]) -> None:
        group = link.groups.pop(message["id"], None)
        if group is not None:
            group.slots.leave((link, message["id"]), answered=message["answered"])
            group.rate.leave((link, message["id"]))
            self._let_in(group)

    def _too_many(self, link: _Link, message: Mapping[str, Any]) -> None:
        group = link.groups.get(message["id"])
        if group is not None:
            group.slots.too_many((link, message["id"]), message["pause"])

    def _rate(self, link: _Link, message: Mapping[str, Any]) -> None:
        group = link.groups[message["id"]] = self._groups[message["group"]]
        group.rate.want((link, message["id"]), message["tokens"])
        if group.will_try is None:
            self._let_through(group)

    def _begin(self, link: _Link, message: Mapping[str, Any]) -> None:
        link.tell({"id": message["id"], "reached": None if self._purse is None else self._purse.begin()})

    def _spend(self, _link: _Link, message: Mapping[str, Any]) -> None:
        if self._purse is not None:
            self._purse.spend(tokens=message["tokens"], cost=message["cost"])

    def _let_in(self, group: _Group) -> None:
        """Whoever has a turn. While the endpoint is left alone, once more when that is over."""
        for link, number in group.slots.let_in():
            link.tell({"id": number})
        closed = group.slots.closed_for()
        if closed and group.will_open is None:
            group.will_open = asyncio.get_running_loop().call_later(closed, self._open, group)

    def _open(self, group: _Group) -> None:
        group.will_open = None
        self._let_in(group)

    def _let_through(self, group: _Group) -> None:
        group.will_try = None
        for link, number in group.rate.let_through():
            link.groups.pop(number, None)
            link.tell({"id": number})
        if group.rate.anybody_waits:
            group.will_try = asyncio.get_running_loop().call_later(POLL_S, self._let_through, group)
