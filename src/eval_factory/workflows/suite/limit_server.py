"""The limits that the runs of a suite share are kept by a server in the suite's process.

It listens at a Unix socket in a folder that only this user can enter. What its clients say is listed in
`eval_factory.endpoint.shared_limits`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from typing_extensions import Self

from eval_factory.core.budget import MAX_WALL, SpendingTracker
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import LimitOf
from eval_factory.endpoint.limits import LiveLimit, Ticket

MAX_PATH = 100  # bytes of a socket's path: Linux takes 107, macOS 103 (`sun_path`)
MAX_LINE = 65536
PREFIX, SOCKET = "eval-factory-", "s"
OVER = {"over": MAX_WALL}
SHORT_FOLDER = "/tmp"  # noqa: S108 - a folder of a name that nobody can know is made in it, for this user alone


class LimitServer:
    """Serves from `with` on to its end, in the loop's thread."""

    def __init__(self, limits: Mapping[str, LimitOf], budget: SpendingTracker | None = None) -> None:
        """`limits`: by the name of the group that shares them; `budget`: of all together."""
        self.limits, self.budget = {name: LiveLimit(most) for name, most in limits.items()}, budget
        self.greeting = {
            "groups": {name: vars(most) for name, most in limits.items()}, "budget": budget is not None,
        }  # fmt: skip
        self.connections: set[_Connection] = set()
        self.priorities = itertools.count()
        self.is_over = False
        self.address = ""
        """The path of its socket, once it serves."""
        self._end = ExitStack()

    def __enter__(self) -> Self:
        """Raises OSError: a socket cannot be made."""
        with ExitStack() as end:
            # only this user can enter it, and a socket's path in it is short enough; what is killed leaves it behind,
            # with nothing but the socket's name in it
            folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            if len(os.fsencode(folder / SOCKET)) > MAX_PATH:
                folder.rmdir()
                folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHORT_FOLDER))
            end.callback(shutil.rmtree, folder, ignore_errors=True)
            self.address = str(folder / SOCKET)
            bridge.wait_for(self._start())
            end.callback(lambda: bridge.wait_for(self._close()))
            self._end = end.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        # `backlog`: processes that connect at the same moment
        self._server = await loop.create_unix_server(lambda: _Connection(self), self.address, backlog=128)
        left = None if self.budget is None else self.budget.seconds_left
        self._timer = None if left is None else loop.call_later(min(left, threading.TIMEOUT_MAX), self._end_time)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # connections are closed in the loop's next round

    def _end_time(self) -> None:
        """The time of the budget is over: nobody is to wait for anything any more."""
        self.is_over = True
        for connection in self.connections:
            connection.send(OVER)


class _Connection(asyncio.Protocol):
    def __init__(self, server: LimitServer) -> None:
        self._server, self._rest = server, b""
        # A process that came earlier has its slots first: so it ends, and scores while the next ones ask.
        self._priority = next(server.priorities)
        self._tickets: dict[int, tuple[LiveLimit, Ticket]] = {}
        """Of each of its requests that waits or has a slot, by number."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        self.send(self._server.greeting)
        if self._server.is_over:
            self.send(OVER)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._take(json.loads(line))
        except (ValueError, TypeError, KeyError):  # None of our clients
            self.close()
        if len(self._rest) > MAX_LINE:
            self.close()

    def _take(self, message: Mapping[str, Any]) -> None:
        """Raises ValueError, TypeError or KeyError where it is no message of ours."""
        budget, what, number = self._server.budget, message["do"], message.get("id")
        if what == "begin":
            self.send({"id": number, "reached": None if budget is None else budget.begin()})
        elif what == "spend":
            if budget is not None:
                budget.spend(tokens=message["tokens"], cost=message["cost"])
        elif what in ("slot", "rate"):
            limit, ticket = self._tickets[message["id"]] = self._server.limits[message["group"]], Ticket()
            ticket.add_done_callback(lambda _: self.send({"id": number}))
            limit.acquire(ticket, message["tokens"] if what == "rate" else None, self._priority)
        elif what == "too_many":
            if number in self._tickets:
                limit, ticket = self._tickets[number]
                limit.too_many(ticket, message["pause"])
        elif what != "leave":
            raise ValueError(what)
        elif number in self._tickets:
            limit, ticket = self._tickets.pop(number)
            limit.release(ticket, answered=message["answered"])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason
        self._server.connections.discard(self)
        for limit, ticket in self._tickets.values():
            limit.release(ticket)

    def send(self, message: Mapping[str, Any]) -> None:
        self._transport.write(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self._transport.abort()
