"""Shares the limits of endpoints among the runs of a suite, by a server in the suite's process.

The server listens at a Unix socket in a folder that only this user can enter. Each helm-run
process has one connection for all its threads. When the connection closes for any reason, the
slots of the process are free again. If the server is gone, the processes send no more requests,
because the requests of all processes together could exceed the limits.

Messages are JSON, one on each line:

    {"do": "slot", "id": 1, "group": G, "tokens": 300}
        Wait for a slot of the group G (the roles that share one limit). The answer {"id": 1} comes
        when the request has its slot.
    {"do": "too_many", "id": 1, "pause": seconds or null}
        The endpoint refused the request with this slot as one too many.
    {"do": "leave", "id": 1, "answered": true}
        Give the slot back, or stop waiting for a slot.
    {"do": "begin", "id": 3}
        Count a request. The answer is {"id": 3, "reached": name of a limit or null}.
    {"do": "spend", "tokens": 20, "cost": 0.01}
        Count the tokens and the cost (US dollars) of an answer.

The server's first message to a process lists the limits, states whether there is a budget, and how
many seconds of the budget are left.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, cast

from typing_extensions import Self

from eval_factory.core.budget import SpendingLimit, SpendingTracker
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.limits import Admission, LiveLimit, Ticket
from eval_factory.endpoint.replies import EndpointUnusable

MAX_PATH = 100  # the maximum bytes of a socket's path: Linux accepts 107, macOS 103 (`sun_path`)
MAX_LINE = 65536  # the maximum bytes of a message
PREFIX = "eval-factory-"
SOCKET = "s"  # the name of the socket in its folder
SHORT_FOLDER = "/tmp"  # noqa: S108 - `mkdtemp` makes a private folder with a random name in it
GREETING_TIMEOUT_S = 60.0
"""The seconds to wait for the server's first message, because the server may be busy.

Without a server, the connection fails at once.
"""
_LOST = (
    "the process that shares the limits among several runs is gone\n"
    "  run the command of that process again: what was answered is kept"
)


class LimitsLost(EndpointUnusable):
    """The server of the limits is gone, so that no request may be sent."""


class SharedLimits(AbstractContextManager["SharedLimits"]):
    """The connection of a process to the server, with the limits of all roles of the process.

    If no server answers, every request for a slot raises `LimitsLost`.
    """

    def __init__(self, settings: SharedLimitsSettings) -> None:
        """Connect to the server, and read its first message."""
        self._groups = settings.groups
        self._limits = dict[str, EndpointLimits]()
        self._has_budget = True  # even without a server, so that `begin` raises `LimitsLost`
        self._is_lost = False
        self._budget_end: float | None = None  # the end of the budget's time (monotonic clock)
        self.tickets: dict[int, Ticket] = {}
        """The tickets of the requests that wait for an answer or have a slot.

        The keys are the `id()` of the tickets, which are unique as long as the tickets exist.
        """
        self._sending = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._lines = self._socket.makefile("rb")
        try:
            self._socket.settimeout(GREETING_TIMEOUT_S)
            self._socket.connect(settings.address)
            greeting = json.loads(self._lines.readline())
            self._limits = {
                name: EndpointLimits(**limit) for name, limit in greeting["groups"].items()
            }
            self._has_budget = greeting["budget"]
            seconds_left = greeting["seconds_left"]
            if seconds_left is not None:
                self._budget_end = time.monotonic() + seconds_left
            self._socket.settimeout(None)
        except (OSError, ValueError, TypeError, KeyError):
            self._lines.close()
            self.close()
        else:
            threading.Thread(target=self._read, name="limits-reader", daemon=True).start()

    def admission(self, role: str) -> Admission | None:
        """Return the admission of a role; None if the role shares no limits."""
        name = self._groups.get(role)
        if name is None:
            return None
        # Without a server, `_limits` is empty. Any limits will do then: no request gets a slot.
        limits = self._limits.get(name, EndpointLimits(parallelism=1))
        return Admission(_DistantLimit(self, name), limits)

    @property
    def budget(self) -> SpendingLimit | None:
        """This connection as the budget of all runs together; None if there is no budget."""
        if not self._has_budget:
            return None
        return self

    @property
    def seconds_left(self) -> float | None:
        """The seconds that are left of the budget's time; None if the time is not limited."""
        if self._budget_end is None:
            return None
        return max(0.0, self._budget_end - time.monotonic())

    def begin(self) -> str | None:
        """Count one more request and return None, or return the name of the limit that is reached.

        Raises:
            LimitsLost: the server is gone.
        """
        ticket = Ticket()
        try:
            self.ask(ticket, do="begin")
            return cast("str | None", bridge.wait_for(ticket))
        finally:
            self.tickets.pop(id(ticket))

    def spend(self, *, tokens: int, cost: float) -> None:
        """Count the tokens and the cost (US dollars) of an answer.

        If the server is gone, nothing is counted, and no error is raised: the caller can still
        store the answer.
        """
        self.send(do="spend", tokens=tokens, cost=cost)

    def ask(self, ticket: Ticket, **message: Any) -> None:
        """Send a message with the ticket's id; the ticket is done when the server has answered."""
        self.tickets[id(ticket)] = ticket
        self.send(id=id(ticket), **message)
        # `close` may have failed all tickets before this ticket was stored.
        if self._is_lost:
            ticket.fail(LimitsLost(_LOST))

    def send(self, **message: Any) -> None:
        """Send a message; close the connection if the server is gone."""
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # the next call of `ask` raises the error
            self.close()

    def close(self) -> None:
        """Close the connection, which gives all slots back, and fail all waiting tickets."""
        self._is_lost = True
        with suppress(OSError):  # the socket is not connected
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for ticket in list(self.tickets.values()):
            ticket.fail(LimitsLost(_LOST))

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Read the server's answers until one side closes the connection."""
        with suppress(OSError, ValueError), self._lines:
            for line in self._lines:
                message = json.loads(line)
                ticket = self.tickets.get(message["id"])
                if ticket is not None:  # None: its request was interrupted meanwhile
                    ticket.give(message.get("reached"))
        self.close()


class _DistantLimit:
    """One of the server's limits, as an `eval_factory.endpoint.limits.AnyLimit`."""

    def __init__(self, limits: SharedLimits, group: str) -> None:
        self._limits = limits
        self._group = group

    def acquire(self, ticket: Ticket, tokens: int | None) -> None:
        self._limits.ask(ticket, do="slot", group=self._group, tokens=tokens)

    def too_many(self, ticket: Ticket, pause: float | None) -> None:
        self._limits.send(do="too_many", id=id(ticket), pause=pause)

    def release(self, ticket: Ticket, *, answered: bool) -> None:
        # None: the request never asked for a slot, because the run had stopped.
        if self._limits.tickets.pop(id(ticket), None) is not None:
            self._limits.send(do="leave", id=id(ticket), answered=answered)


class LimitServer:
    """A server of limits for other processes; it runs for the duration of a `with` block.

    The loop's thread handles the connections.
    """

    def __init__(
        self, limits: Mapping[str, EndpointLimits], budget: SpendingTracker | None = None
    ) -> None:
        """Make the limits, which `__enter__` then serves.

        Args:
            limits: the limits by the name of the group of roles that shares them.
            budget: the budget of all runs together; None if there is no budget.
        """
        self.limits = {name: LiveLimit(limit) for name, limit in limits.items()}
        self.budget = budget
        self._limits_in_greeting = {name: vars(limit) for name, limit in limits.items()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._priorities = itertools.count()
        self.address = ""
        """The path of the server's socket; empty until `__enter__`."""
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Begin to serve the limits.

        Raises:
            OSError: the socket cannot be made.
        """
        with ExitStack() as cleanup:
            # `mkdtemp` makes a folder that only this user can enter. A killed process leaves the
            # folder behind, which holds nothing but the socket.
            folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            if len(os.fsencode(folder / SOCKET)) > MAX_PATH:
                folder.rmdir()
                folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHORT_FOLDER))
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            self.address = str(folder / SOCKET)
            # `backlog` is the number of processes that may connect at the same moment.
            server = bridge.wait_for(
                asyncio.start_unix_server(self._serve, self.address, limit=MAX_LINE, backlog=128)
            )
            # The last callback is called first: the server is closed before its folder is deleted.
            cleanup.callback(lambda: bridge.wait_for(self._close(server)))
            # Nothing failed: the callbacks are called by `__exit__`, not at the end of this block.
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    async def _close(self, server: asyncio.Server) -> None:
        """Close the server and all its connections."""
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)  # the loop closes the connections in its next round

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one process until the process ends or sends an invalid message."""
        # The process that connected first gets its slots first. Its requests then end soon, and it
        # scores while later processes use the endpoint.
        client = _Client(self, writer, next(self._priorities))
        self._writers.add(writer)
        seconds_left = None if self.budget is None else self.budget.seconds_left
        client.send(
            {
                "groups": self._limits_in_greeting,
                "budget": self.budget is not None,
                "seconds_left": seconds_left,
            }
        )
        with suppress(ValueError, TypeError, KeyError, OSError):
            while line := await reader.readline():
                client.handle(json.loads(line))
        for limit, ticket in client.tickets.values():
            limit.release(ticket)
        self._writers.discard(writer)
        writer.transport.abort()


class _Client:
    """A process that is connected to the server."""

    def __init__(self, server: LimitServer, writer: asyncio.StreamWriter, priority: int) -> None:
        self._server = server
        self._writer = writer
        self._priority = priority
        self.tickets: dict[int, tuple[LiveLimit, Ticket]] = {}
        """The (limit, ticket) of each request that waits or has a slot, by the request's id."""

    def handle(self, message: Mapping[str, Any]) -> None:
        """Handle a message of the process.

        Raises:
            ValueError, TypeError, KeyError: the message is not valid.
        """
        budget = self._server.budget
        action = message["do"]
        request_id = message.get("id")
        if action == "begin":
            self.send({"id": request_id, "reached": None if budget is None else budget.begin()})
        elif action == "spend":
            if budget is not None:
                budget.spend(tokens=message["tokens"], cost=message["cost"])
        elif action == "slot":
            limit = self._server.limits[message["group"]]
            ticket = Ticket()
            self.tickets[message["id"]] = (limit, ticket)
            # Add the callback first: `acquire` may grant the slot at once.
            ticket.add_done_callback(lambda _: self.send({"id": request_id}))
            limit.acquire(ticket, message["tokens"], self._priority)
        elif action == "too_many":
            if request_id in self.tickets:
                limit, ticket = self.tickets[request_id]
                limit.too_many(ticket, message["pause"])
        elif action == "leave":
            if request_id in self.tickets:
                limit, ticket = self.tickets.pop(request_id)
                limit.release(ticket, answered=message["answered"])
        else:
            raise ValueError(action)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the process."""
        self._writer.write(json.dumps(message).encode() + b"\n")
