"""Connections of urllib3 that end in time whatever an endpoint does, send at once, and have answers read by llhttp."""

from __future__ import annotations

import contextlib
import errno
import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import urllib3
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.util.ssl_match_hostname import CertificateError

from eval_factory.endpoint import waiting
from eval_factory.endpoint.http_answers import MAX_ANSWERS, Answer, AnswerIds, StrayAnswer, WholeAnswer
from eval_factory.endpoint.socket_calls import receive, send_all

_LENGTH = b"\r\nContent-Length: "
STRAY = "an answer came that was given before, to another question"
_HUNG_UP = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE})


class Watch:
    """Ends what an endpoint drags out: a socket's own timeout starts anew with each byte of a header."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._waiting: dict[socket.socket, float] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self, waiting: socket.socket, deadline: float) -> None:
        """Shut `waiting` down where `end` is not called for it in time (monotonic)."""
        with self._lock:
            self._waiting[waiting] = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_while_any_waits, name="timeouts", daemon=True)
                self._thread.start()

    def end(self, waiting: socket.socket) -> None:
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
            for late, deadline in list(self._waiting.items()):
                if now > deadline:
                    with contextlib.suppress(OSError):
                        late.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Head:
    """A request's header as http.client wrote and checked it, but for the length of its body."""

    method: str
    target: str
    fields: dict[str, str]
    before: bytes
    after: bytes

    @classmethod
    def of(cls, sent: bytes, body: bytes, method: str, target: str, fields: Mapping[str, str]) -> _Head | None:
        """None where what was sent is no header with a length, and that body."""
        before, length, after = sent.partition(_LENGTH + b"%d\r\n" % len(body))
        if not length or not after.endswith(body):
            return None
        return cls(method, target, dict(fields), before + _LENGTH, b"\r\n" + after[: len(after) - len(body)])

    def with_body(self, body: bytes) -> bytes:
        return b"%b%d%b%b" % (self.before, len(body), self.after, body)

    def is_of(self, method: str, target: str, fields: Mapping[str, str]) -> bool:
        return self.target == target and self.method == method and self.fields == fields


def _watched_connection(base: Any, watch: Watch, ids: AnswerIds) -> type[Any]:
    class Connection(base):  # type: ignore[misc]
        response_class = WholeAnswer
        answers = 0
        """So many came."""
        learn: Callable[[_Head | None], None] | None = None
        """Is told the header of the request that urllib3 makes."""
        _deadline = math.inf
        _held: list[bytes] | None = None
        _question: bytes | None = None

        def connect(self) -> None:
            self.answers = 0
            super().connect()

        def request(
            self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None, **settings: Any
        ) -> None:
            """Send header and body in one write, within the request's time; urllib3 has that of connecting for it."""
            self._deadline = time.monotonic() + watch.limit_s
            held: list[bytes] = []
            self._held, self._question = held, body
            try:
                super().request(method, url, body, headers, **settings)
            finally:
                self._held = None
            if self.sock is None:
                self.connect()
            self.sock.settimeout(None)  # the watch ends it; a timeout of its own costs two system calls each way
            sent = b"".join(held)
            if self.learn is not None and body:
                self.learn(_Head.of(sent, body, method, url, headers or {}))
            watch.begin(self.sock, self._deadline)
            try:
                self.send(sent)
            finally:
                watch.end(self.sock)

        def send(self, data: Any) -> None:
            if self._held is None:
                super().send(data)
            else:
                self._held.append(data)

        def getresponse(self) -> urllib3.HTTPResponse:
            """As urllib3 does, past its own checks of http.client's header: llhttp has read this one."""
            sock = self.sock
            watch.begin(sock, self._deadline)
            try:
                response = cast(WholeAnswer, http.client.HTTPConnection.getresponse(self))
                answer = response.answer
                del response.answer  # the connection has it until it is asked again
            finally:
                watch.end(sock)
            _raise_if_cut(answer, self._deadline)
            if _is_used_up(self, answer, self._question, ids):
                self.close()
            return answer.as_urllib3_has_it()

    return Connection


def _is_used_up(connection: Any, answer: Answer, question: bytes | None, ids: AnswerIds) -> bool:
    """Whether the connection is of no more use after this answer. Raises StrayAnswer where it is one."""
    connection.answers += 1
    if question and answer.status < 300 and ids.is_known(question, answer.body, first=connection.answers == 1):
        raise StrayAnswer(STRAY)
    return answer.closes or connection.answers >= MAX_ANSWERS


def _raise_if_cut(answer: Answer, deadline: float) -> None:
    """What ends with its connection is whole unless it was the watch that ended that."""
    if answer.ends_with_connection and time.monotonic() >= deadline:
        raise http.client.IncompleteRead(b"")


def _exchange(connected: socket.socket, request: bytes, watch: Watch, deadline: float) -> Answer:
    """Send header and body, and read the answer."""
    answer = Answer()
    watch.begin(connected, deadline)
    try:
        try:
            send_all(connected, request)
        except OSError as error:  # as urllib3: whoever hangs up may have answered
            if error.errno not in _HUNG_UP:
                raise
        answer.read(partial(receive, connected))
    finally:
        watch.end(connected)
    _raise_if_cut(answer, deadline)
    return answer


def watched(pool: Any, watch: Watch, ids: AnswerIds) -> type[HTTPConnectionPool]:
    """A pool whose connections send, and read the whole answer, within the limit of `watch`."""

    class Pool(pool):  # type: ignore[misc]
        ConnectionCls = _watched_connection(pool.ConnectionCls, watch, ids)
        _head: _Head | None = None
        """Of the last request that urllib3 made."""

        def _make_request(self, conn: Any, method: str, url: str, **settings: Any) -> urllib3.BaseHTTPResponse:
            conn.learn = self._learn
            try:
                return super()._make_request(conn, method, url, **settings)  # type: ignore[no-any-return]
            finally:
                conn.learn = None

        def _learn(self, head: _Head | None) -> None:
            self._head = head

        def ask_again(
            self, method: str, target: str, body: bytes, headers: Mapping[str, str], connect_timeout_s: float
        ) -> Answer | None:
            """What `urlopen` does, in a fraction of its time, where the like was asked before. None where it was not:
            `urlopen` has to. Raises what it raises.
            """
            head = self._head
            if head is None or not head.is_of(method, target, headers):
                return None
            deadline = time.monotonic() + watch.limit_s
            connection: Any = self._get_conn()
            used_up = True
            try:
                if connection.sock is None:
                    connection.timeout = connect_timeout_s
                    waiting.elsewhere(connection.connect)
                answer = _exchange(connection.sock, head.with_body(body), watch, deadline)
                used_up = _is_used_up(connection, answer, body, ids)
            except TimeoutError as error:  # the system gave up: it sent again and again, and nobody confirmed it
                raise urllib3.exceptions.ReadTimeoutError(self, target, "Read timed out.") from error
            except (ssl.SSLError, CertificateError) as error:
                raise urllib3.exceptions.SSLError(error) from error
            except (OSError, http.client.HTTPException) as error:
                raise urllib3.exceptions.ProtocolError("Connection aborted.", error) from error
            finally:
                if used_up:
                    connection.close()
                self._put_conn(connection)
            return answer

    return Pool
