"""Limits that several helm-run processes share, as one of them asks for its part.

A server in the process that runs them (`eval_factory.workflows.suite.limit_server`) listens at a Unix socket. A process
has one connection for all its threads; when it closes, whatever the reason, its slots are free again. Where the server
is gone nothing is sent any more: to go on without limits would break them. Messages are JSON, one a line:

    {"do": "slot", "id": 1, "group": G}                   answered {"id": 1} when it is this request's turn
    {"do": "too_many", "id": 1, "pause": seconds or null}
    {"do": "rate", "id": 2, "group": G, "tokens": 300}    answered {"id": 2} when it is within the limits a minute
    {"do": "leave", "id": 1, "answered": true}            gives a slot back, or waits no more for whatever it was
    {"do": "begin", "id": 3}                              answered {"id": 3, "reached": a limit's name or null}
    {"do": "spend", "tokens": 20, "cost": 0.01}

The first message to a process lists the limits, and says whether there is a budget. When the budget's time is over,
`{"over": "max_wall_s"}` goes to all: who waits for a pause to end asks nothing meanwhile.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, cast

from eval_factory.core.budget import SpendingLimit
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import LimitOf
from eval_factory.endpoint.limits import Admission, Ticket
from eval_factory.endpoint.replies import EndpointUnusable

GREETING_WITHIN_S = 60.0  # the server may be a busy process; that it is none at all shows at once
_LOST = "what shares the limits among several runs is gone\n  run its command again: what was answered is kept"


class LimitsLost(EndpointUnusable):
    """Nobody says any more whether a request may be sent."""


class SharedLimits(AbstractContextManager["SharedLimits"]):
    """The limits of all roles of one process. Where no server answers, whoever asks gets `LimitsLost`."""

    def __init__(self, settings: SharedLimitsSettings) -> None:
        self._groups, self._limits, self._has_budget = settings.groups, dict[str, LimitOf](), True
        self._is_lost, self._over = False, ""
        self._watching: list[Callable[[str], None]] = []
        self.asked: dict[int, Ticket] = {}
        """What is to be answered, or has a slot, by its number, which no other has meanwhile."""
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._lines = self._socket.makefile("rb")
        try:
            self._socket.settimeout(GREETING_WITHIN_S)
            self._socket.connect(settings.address)
            greeting = json.loads(self._lines.readline())
            self._limits = {name: LimitOf(**most) for name, most in greeting["groups"].items()}
            self._has_budget = greeting["budget"]
            self._socket.settimeout(None)
        except (OSError, ValueError, TypeError, KeyError):
            self._lines.close()
            self.close()
        else:
            threading.Thread(target=self._read, name="limits-reader", daemon=True).start()

    def admission(self, role: str) -> Admission | None:
        """None: this role shares nothing."""
        name = self._groups.get(role)
        return None if name is None else Admission(_DistantLimit(self, name), self._limits.get(name, LimitOf(1)))

    @property
    def budget(self) -> SpendingLimit | None:
        """The budget of all together; None where there is none."""
        return self if self._has_budget else None

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` with the name of the limit when the time of all is over, at once where it is already."""
        with self._lock:
            self._watching.append(stop)
        if self._over:
            stop(self._over)

    def begin(self) -> str | None:
        """Of the budget: one more request is counted. Else the name of the limit that is reached.

        Raises LimitsLost: the server is gone.
        """
        ticket = Ticket()
        try:
            self.ask(ticket, do="begin")
            return cast("str | None", bridge.wait_for(ticket))
        finally:
            self.asked.pop(id(ticket))

    def spend(self, *, tokens: int, cost: float) -> None:
        """An answer came: what it took. Where nobody is there to count it, the answer is cached all the same."""
        self.send(do="spend", tokens=tokens, cost=cost)

    def ask(self, ticket: Ticket, **message: Any) -> None:
        """Send what is answered by this ticket."""
        self.asked[id(ticket)] = ticket
        self.send(id=id(ticket), **message)
        if self._is_lost:  # perhaps since others learnt of it
            ticket.fail(LimitsLost(_LOST))

    def send(self, **message: Any) -> None:
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # the next who asks finds out
            self.close()

    def close(self) -> None:
        """Give back all that this process has; nobody is answered any more."""
        self._is_lost = True
        with suppress(OSError):  # it never was, or is no longer, connected
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for ticket in list(self.asked.values()):
            ticket.fail(LimitsLost(_LOST))

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        with suppress(OSError, ValueError), self._lines:  # closed, here or there
            for line in self._lines:
                message = json.loads(line)
                if "over" not in message:
                    if (ticket := self.asked.get(message["id"])) is not None:  # else it was interrupted meanwhile
                        ticket.give(message.get("reached"))
                    continue
                with self._lock:
                    self._over, watching = str(message["over"]), list(self._watching)
                for stop in watching:
                    stop(self._over)
        self.close()


class _DistantLimit:
    """One of the server's limits: `eval_factory.endpoint.limits.AnyLimit`."""

    def __init__(self, limits: SharedLimits, group: str) -> None:
        self._limits, self._group = limits, group

    def acquire(self, ticket: Ticket, tokens: int | None) -> None:
        what = {"do": "slot"} if tokens is None else {"do": "rate", "tokens": tokens}
        self._limits.ask(ticket, group=self._group, **what)

    def too_many(self, ticket: Ticket, pause: float | None) -> None:
        self._limits.send(do="too_many", id=id(ticket), pause=pause)

    def release(self, ticket: Ticket, *, answered: bool) -> None:
        if self._limits.asked.pop(id(ticket), None) is not None:
            self._limits.send(do="leave", id=id(ticket), answered=answered)
