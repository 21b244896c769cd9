"""Connections of urllib3 that end in time whatever an endpoint does, send at once, and have answers read by llhttp."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from eval_factory.endpoint.http_answers import WholeAnswer


class Watch:
    """Ends what an endpoint drags out: a socket's own timeout starts anew with each byte of a header."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._waiting: dict[socket.socket, float] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def over(self, waiting: socket.socket, deadline: float) -> Iterator[None]:
        """Shut `waiting` down where this is not over in time (monotonic)."""
        with self._lock:
            self._waiting[waiting] = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_while_any_waits, name="timeouts", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            self._waiting.pop(waiting, None)

    def _look_while_any_waits(self) -> None:
        """Leaves no thread behind in a program that asks once, or is done; the next request begins another."""
        while True:
            time.sleep(min(1.0, self.limit_s / 4))
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
            now = time.monotonic()
            for waiting, deadline in list(self._waiting.items()):
                if now > deadline:
                    with contextlib.suppress(OSError):
                        waiting.shutdown(socket.SHUT_RDWR)


def _watched_connection(base: Any, watch: Watch) -> type[Any]:
    class Connection(base):  # type: ignore[misc]
        response_class = WholeAnswer
        _deadline = math.inf
        _held: list[bytes] | None = None

        def request(self, *arguments: Any, **settings: Any) -> None:
            """Send header and body in one write, within the request's time; urllib3 has that of connecting for it."""
            self._deadline = time.monotonic() + watch.limit_s
            held: list[bytes] = []
            self._held = held
            try:
                super().request(*arguments, **settings)
            finally:
                self._held = None
            if self.sock is None:
                self.connect()
            self.sock.settimeout(None)  # the watch ends it; a timeout of its own costs two system calls each way
            with watch.over(self.sock, self._deadline):
                self.send(b"".join(held))

        def send(self, data: Any) -> None:
            if self._held is None:
                super().send(data)
            else:
                self._held.append(data)

        def getresponse(self) -> urllib3.HTTPResponse:
            """As urllib3 does, past its own checks of http.client's header: llhttp has read this one."""
            with watch.over(self.sock, self._deadline):
                answer = cast(WholeAnswer, http.client.HTTPConnection.getresponse(self))
            if answer.ends_with_connection and time.monotonic() >= self._deadline:
                raise http.client.IncompleteRead(b"")  # the watch ended the connection
            return answer.as_urllib3_has_it()

    return Connection


def watched(pool: Any, watch: Watch) -> type[HTTPConnectionPool]:
    """A pool whose connections send, and read the whole answer, within the limit of `watch`."""

    class Pool(pool):  # type: ignore[misc]
        ConnectionCls = _watched_connection(pool.ConnectionCls, watch)

    return Pool
