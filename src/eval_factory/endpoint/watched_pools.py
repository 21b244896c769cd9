"""Connections of urllib3 that end in time whatever an endpoint does, and are asked again in the plainest way."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from eval_factory.endpoint.plain_exchange import Exchanged, continued, exchange, request_bytes

LEAST_TIMEOUT_S = 0.001
"""A socket takes 0 for not waiting at all."""


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
    """urllib3 sends under the timeout for connecting, which ends a long prompt on a slow line."""

    class Connection(base):  # type: ignore[misc]
        deadline = math.inf

        def connect(self) -> None:
            super().connect()
            self._take_what_is_left()

        def request(self, *arguments: Any, **settings: Any) -> None:
            self.deadline = time.monotonic() + watch.limit_s
            if self.sock is not None:  # or it connects first, and within the time for that
                self.timeout = watch.limit_s
            super().request(*arguments, **settings)

        def _take_what_is_left(self) -> None:
            if self.sock is not None:
                left = min(self.deadline - time.monotonic(), watch.limit_s)
                self.sock.settimeout(max(left, LEAST_TIMEOUT_S))

        def getresponse(self) -> Any:
            if self.sock is None:
                return super().getresponse()
            with watch.over(self.sock, self.deadline):
                return super().getresponse()

    return Connection


def watched(pool: Any, watch: Watch) -> type[HTTPConnectionPool]:
    """A pool whose connections send and wait for the header of an answer within the limit of `watch`."""

    class Pool(pool):  # type: ignore[misc]
        ConnectionCls = _watched_connection(pool.ConnectionCls, watch)

        def post_again(
            self, target: str, body: bytes, headers: Mapping[str, str], deadline: float
        ) -> Exchanged | urllib3.BaseHTTPResponse | None:
            """POST on a connection that was used before; None where there is none, or urllib3 has to look at it first.

            Raises:
                urllib3.exceptions.HTTPError: as `urlopen` does.
            """
            connection, came = self._get_conn(), None
            try:
                came = _asked_again(connection, target, body, headers, watch, deadline)
                if came is not None and came.head is None:
                    return _of_another_form(self, connection, came, watch, deadline)
            except BaseException as error:
                connection.close()
                self._put_conn(connection)
                if isinstance(error, (OSError, http.client.HTTPException)):
                    raise _as_urllib3_has_it(error) from error
                raise
            self._put_conn(connection)
            return came

    return Pool


def _asked_again(
    connection: Any, target: str, body: bytes, headers: Mapping[str, str], watch: Watch, deadline: float
) -> Exchanged | None:
    sock = connection.sock
    request = None if sock is None else request_bytes(_host_header(connection), target, headers, body)
    if request is None:
        return None
    if sock.gettimeout() is not None:
        sock.settimeout(None)  # the watch ends it; a timeout of its own costs two system calls each way
    with watch.over(sock, deadline):
        return exchange(sock, request)


def _of_another_form(
    pool: Any, connection: Any, came: Exchanged, watch: Watch, deadline: float
) -> urllib3.BaseHTTPResponse:
    """The answer as urllib3's own connection gives it; who has read it gives the connection back."""
    sock = connection.sock
    sock.settimeout(max(deadline - time.monotonic(), LEAST_TIMEOUT_S))
    with watch.over(sock, deadline):
        answer = continued(came.data, sock)
    if answer.will_close:
        connection.close()
    return urllib3.HTTPResponse(
        body=answer, headers=urllib3.HTTPHeaderDict(answer.msg.items()), status=answer.status, reason=answer.reason,
        preload_content=False, original_response=answer, pool=pool, connection=connection, request_method="POST",
    )  # fmt: skip


def _host_header(connection: Any) -> str:
    """As http.client writes it."""
    host: str = connection.host
    if ":" in host:
        host = f"[{host}]"
    return host if connection.port == connection.default_port else f"{host}:{connection.port}"


def _as_urllib3_has_it(error: OSError | http.client.HTTPException) -> urllib3.exceptions.HTTPError:
    if isinstance(error, ssl.SSLError):
        return urllib3.exceptions.SSLError(error)
    return urllib3.exceptions.ProtocolError("Connection aborted.", error)
