"""The share of one process in limits that several have together (`eval_factory.endpoint.limit_server`).

All threads share one connection: one thread reads, and wakes whoever is meant. When the connection is lost nothing is
let through any more: to go on without limits would break them.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias

from typing_extensions import Self

from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint import bridge
from eval_factory.endpoint.limits import estimated_tokens
from eval_factory.endpoint.replies import EndpointUnusable

GREETING_WITHIN_S = 60.0
"""The server may be a busy process; that it is none at all shows at once."""
LOST = "what shares the limits among several runs is gone\n  run its command again: what was answered is kept"

_Answer: TypeAlias = "Future[Mapping[str, Any] | None]"


class LimitsLost(EndpointUnusable):
    """Nobody says any more whether a request may be sent."""


class SharedLimits:
    """The limits of all roles of one process. Where nobody is there, whoever wants to ask is told so."""

    def __init__(self, settings: SharedLimitsSettings) -> None:
        self._groups = settings.groups
        self._connection = _ServerConnection(settings.address)
        self._told = self._connection.greeting()

    def admission(self, role: str) -> SharedAdmission | None:
        """None: this role shares nothing."""
        name = self._groups.get(role)
        if name is None:
            return None
        told = self._told.get("groups", {}).get(name, {})
        return SharedAdmission(self._connection, name, rate=told.get("rate", False), tokens=told.get("tokens", False))

    @property
    def purse(self) -> SharedPurse | None:
        """The budget of all together; None where there is none."""
        return SharedPurse(self._connection) if self._told.get("purse", True) else None

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` with the name of the limit when the time of all is over, at once where it is already."""
        self._connection.watch(stop)

    def close(self) -> None:
        """Give back all that this process has."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedAdmission:
    """An `Admission` (`eval_factory.endpoint.limits`) that asks the server."""

    def __init__(self, connection: _ServerConnection, group: str, *, rate: bool, tokens: bool) -> None:
        """`rate`, `tokens`: what the group counts a minute."""
        self._connection, self._group = connection, group
        self._has_rate, self._counts_tokens = rate, tokens
        self._stop = threading.Event()

    @contextmanager
    def slot(self) -> Iterator[float]:
        """
        Raises:
            LimitsLost: the server is gone.
        """
        number, answered = self._connection.number(), False
        try:
            self._connection.ask({"do": "slot", "id": number, "group": self._group}, self._stop)
            yield number
            answered = True
        finally:
            self._connection.tell({"do": "leave", "id": number, "answered": answered})

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        """
        Raises:
            LimitsLost: the server is gone.
        """
        if not self._has_rate:
            return
        tokens = estimated_tokens(body) if self._counts_tokens else 0
        number = self._connection.number()
        message = {"do": "rate", "id": number, "group": self._group, "tokens": tokens}
        if self._connection.ask(message, self._stop) is None:
            self._connection.tell({"do": "leave", "id": number, "answered": False})

    def too_many(self, slot: float, pause: float | None) -> None:
        self._connection.tell({"do": "too_many", "id": slot, "pause": pause})

    def stop(self) -> None:
        self._stop.set()
        self._connection.let_go(self._stop)


class SharedPurse:
    """The budget of several processes: `begin` and `spend` of `eval_factory.core.budget.Purse`."""

    def __init__(self, connection: _ServerConnection) -> None:
        self._connection = connection
        self._never = threading.Event()

    def begin(self) -> str | None:
        """One more request is about to be sent: it is counted. Else the name of the limit that is reached.

        Raises:
            LimitsLost: the server is gone.
        """
        answer = self._connection.ask({"do": "begin", "id": self._connection.number()}, self._never)
        reached: str | None = (answer or {}).get("reached")
        return reached

    def spend(self, *, tokens: int, cost: float) -> None:
        """An answer came: what it took. Where nobody is there to count it, the answer is kept all the same."""
        self._connection.tell({"do": "spend", "tokens": tokens, "cost": cost})


class _ServerConnection:
    """A connection that many threads ask through."""

    def __init__(self, address: str) -> None:
        self._numbers = itertools.count(1)
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, _Answer]] = {}
        self._lost = False
        self._over: str | None = None
        self._watching: list[Callable[[str], None]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._lines = self._socket.makefile("rb")
        self._greeting: Mapping[str, Any] = {}
        try:
            self._socket.settimeout(GREETING_WITHIN_S)
            self._socket.connect(address)
            self._greeting = json.loads(self._lines.readline())
            self._socket.settimeout(None)
        except (OSError, ValueError):
            self._lines.close()
            self._socket.close()
            self.lose()
        else:
            threading.Thread(target=self._read, name="limits-reader", daemon=True).start()

    def greeting(self) -> Mapping[str, Any]:
        """What the server says first; empty where there is none."""
        return self._greeting

    def number(self) -> int:
        """That no other request of this process has."""
        return next(self._numbers)

    def ask(self, message: Mapping[str, Any], stop: threading.Event) -> Mapping[str, Any] | None:
        """The answer; None where `stop` was set first.

        Raises:
            LimitsLost: there is none, and will be none.
        """
        answer: _Answer = Future()
        with self._lock:
            self._waiting[message["id"]] = stop, answer
            if self._lost or stop.is_set():  # nobody would wake this one
                answer.set_result(None)
        self.tell(message)
        found = bridge.result_of(answer)
        with self._lock:
            self._waiting.pop(message["id"], None)
            if found is None and self._lost:
                raise LimitsLost(LOST)
        return found

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say what nobody answers; where nobody is there, the next who asks finds out."""
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.lose()

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` with the limit that the server says is over."""
        with self._lock:
            self._watching.append(stop)
            over = self._over
        if over is not None:
            stop(over)

    def let_go(self, stop: threading.Event) -> None:
        """Wake the threads that this event stops."""
        with self._lock:
            for stopped_by, answer in self._waiting.values():
                if stopped_by is stop:
                    _give(answer, None)

    def lose(self) -> None:
        """Nobody answers any more: wake all."""
        with self._lock:
            self._lost = True
            for _, answer in self._waiting.values():
                _give(answer, None)

    def close(self) -> None:
        self.lose()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it never was, or is no longer, connected
            pass
        self._socket.close()

    def _read(self) -> None:
        try:
            with self._lines:
                for line in self._lines:
                    self._heard(json.loads(line))
        except (OSError, ValueError):  # closed, here or there
            pass
        self.lose()

    def _heard(self, message: Mapping[str, Any]) -> None:
        if "over" in message:
            with self._lock:
                self._over = over = str(message["over"])
                watching = list(self._watching)
            for stop in watching:
                stop(over)
            return
        with self._lock:
            if message["id"] in self._waiting:
                _give(self._waiting[message["id"]][1], message)


def _give(answer: _Answer, found: Mapping[str, Any] | None) -> None:
    """The first that is given counts."""
    if not answer.done():
        answer.set_result(found)
