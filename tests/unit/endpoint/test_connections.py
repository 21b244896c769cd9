"""Connections that are used again, and end in time; of a plain thread, and in the loop."""

from __future__ import annotations

import gc
import queue
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from eval_factory.endpoint import bridge
from eval_factory.endpoint.connections import MAX_SETTLING_S, SURPLUS, Transport
from eval_factory.endpoint.http_wire import CUT_MESSAGE, Reply, TransportError
from facts import naming
from in_the_loop import WAYS, runs_in
from loopback import serving
from token_answers import Answers, Server, forget_proxies_and_certificates

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    runs_in(request.param, Transport, "post", monkeypatch)
    return str(request.param)


class Scripted:
    """Gives these answers in turn, on as many connections as it takes; an empty one hangs up."""

    def __init__(self, *answers: bytes, hangs_up: bool = False) -> None:
        """`hangs_up`: before the last answer, too."""
        self._hangs_up = hangs_up
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1?a=b"
        self.heads: list[bytes] = []
        self.connections = 0
        self.hung_up = threading.Event()
        self.ended = threading.Event()
        self._answers = list(answers)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self._answers:
            connection, _ = self._socket.accept()
            self.connections += 1
            with connection, suppress(OSError):
                while self._answers and (head := self._head(connection)):
                    self.heads.append(head)
                    answer = self._answers.pop(0)
                    connection.sendall(answer)
                    if self._hangs_up and len(self._answers) == 1:
                        break
                    if (
                        not answer.startswith(b"HTTP")
                        or b"close" in answer
                        or answer.endswith(b"...")
                    ):
                        break
            self.hung_up.set()
        self._socket.close()
        self.ended.set()

    def _head(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(1 << 16)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        while len(body) < length:
            body += connection.recv(1 << 16)
        return head


def asked_once(server: Scripted, timeout_s: float = 5.0) -> Transport:
    transport = Transport(server.url, timeout_s=timeout_s)
    transport.post(server.url, {})
    return transport


def test_a_request_as_it_is_sent() -> None:
    """On a new connection, and on one that is used again."""
    server = Scripted(PLAIN, PLAIN)
    transport = Transport(server.url, timeout_s=5.0)
    for _ in range(2):
        reply = transport.post(server.url, {"prompt": "x"}, {"Authorization": "Bearer k"})
        assert (reply.status, reply.data) == (200, b"{}")
    assert server.connections == 1
    assert server.heads[0] == server.heads[1]
    assert server.heads[0].startswith(b"POST /v1?a=b HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.heads[0].endswith(b"\r\nAuthorization: Bearer k\r\nContent-Length: 14")


def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    server = Scripted(PLAIN.replace(b"Content-Type", b"X-Then: close\r\nContent-Type"), PLAIN)
    transport = asked_once(server)
    assert server.hung_up.wait(60)
    assert transport.post(server.url, {}).data == b"{}"
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "silent"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: a", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na", False),
        (b"HTTP/1.1 200 OK\r\n\r\na", False),
        (b"HTTP/1.1", True),
    ],
    ids=["header", "body", "no-length", "status"],
)
def test_an_answer_that_stops_half_way_ends_in_time(answer: bytes, silent: bool) -> None:
    server = Scripted(PLAIN, answer, PLAIN)
    transport = asked_once(server, 0.4)
    with pytest.raises(TransportError, match=naming("no whole answer", "0.4 s")) as raised:
        transport.post(server.url, {})
    assert raised.value.silent is silent


@pytest.mark.parametrize(
    ("answer", "said", "silent"),
    [
        (b"", CUT_MESSAGE, True),
        (b"nonsense", "what came is not HTTP", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na...", CUT_MESSAGE, False),
    ],
    ids=["nothing", "no-http", "cut"],
)
def test_what_is_no_whole_answer(answer: bytes, said: str, silent: bool) -> None:
    server = Scripted(PLAIN, answer)
    transport = asked_once(server)
    with pytest.raises(TransportError, match=said) as raised:
        transport.post(server.url, {})
    assert len(server.heads) == 2, "a request that may have been answered is not sent again"
    assert (raised.value.silent, raised.value.unreachable) == (silent, False)


def test_only_who_has_not_answered_yet_may_expect_https() -> None:
    said = []
    for answers in ([b""], [PLAIN, b""]):
        server = Scripted(*answers)
        transport = Transport(server.url, timeout_s=5.0)
        for _ in answers[1:]:
            transport.post(server.url, {})
        with pytest.raises(TransportError, match=CUT_MESSAGE) as raised:
            transport.post(server.url, {})
        assert raised.value.silent
        said.append("https://" in str(raised.value))
    assert said == [True, False]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: b", "a\nX-Evil: b", "a\r\n\r\nb"])
def test_a_header_with_lines_in_it_is_refused(value: str) -> None:
    server = Scripted(PLAIN, PLAIN)
    transport = asked_once(server)
    with pytest.raises(ValueError, match="Invalid header value"):
        transport.post(server.url, {}, {"Authorization": value})
    assert transport.post(server.url, {}).data == b"{}"
    assert not any(b"Evil" in head for head in server.heads)


def test_whoever_asks_no_more_leaves_no_connection(way: str) -> None:
    """At once: Python looks for cycles seldom."""
    server = Scripted(PLAIN, PLAIN)
    transport = asked_once(server)
    gc.disable()
    try:
        del transport
        assert server.hung_up.wait(60), way
    finally:
        gc.enable()


def test_nobody_is_there_any_more() -> None:
    server = Scripted(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    transport = asked_once(server)
    assert server.hung_up.wait(60)
    server.ended.wait(60)
    with pytest.raises(TransportError, match=naming("no connection")) as raised:
        transport.post(server.url, {})
    assert raised.value.unreachable


class _SlowReader(Answers):
    """Takes a request's body in pieces, with pauses between them."""

    protocol_version = "HTTP/1.1"  # connections are used again
    pause_s = 0.0

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        left = int(self.headers["Content-Length"])
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                return
            left -= len(piece)
            time.sleep(self.pause_s)
        super().do_POST()


@pytest.fixture
def slow() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), _SlowReader)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    serving(server)
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def test_sending_counts_within_that_time(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_SlowReader, "pause_s", 0.3)
    with pytest.raises(TransportError, match=naming("no whole answer", "0.5 s")):
        Transport(slow, timeout_s=0.5).post(slow, {"prompt": "x" * (12 << 20)})


class Slow(Scripted):
    """Answers after some seconds."""

    delay_s = 0.2

    def _head(self, connection: socket.socket) -> bytes:
        head = super()._head(connection)
        time.sleep(self.delay_s)
        return head


def stand_still(after_s: float, for_s: float) -> None:
    """Block the loop of the requests, as an import from a slow disk does."""
    loop = bridge.the_loop()
    loop.call_soon_threadsafe(loop.call_later, after_s, time.sleep, for_s)


def test_seconds_in_which_this_program_stood_still_do_not_count() -> None:
    """The answer came in time, and is read although the deadline passed meanwhile."""
    server = Slow(PLAIN)
    transport = Transport(server.url, timeout_s=0.4)
    stand_still(0.02, 0.9)
    assert transport.post(server.url, {}).data == b"{}"


def test_an_answer_that_stops_half_way_ends_after_a_standstill_too() -> None:
    server = Scripted(b"HTTP/1.1 200 OK\r\nX-Slow: a", PLAIN)
    transport = Transport(server.url, timeout_s=0.2)
    stand_still(0.02, 0.6)
    with pytest.raises(TransportError, match=naming("no whole answer", "0.2 s")):
        transport.post(server.url, {})


class TwoConnections:
    """A server that answers two questions at once, each on a connection of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.said: list[str] = []
        self.transport = Transport(self.url, timeout_s=60, say=self.said.append)
        self.connections: list[socket.socket] = []

    def __enter__(self) -> TwoConnections:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (*self.connections, self._listener):
            opened.close()

    def accept(self) -> socket.socket:
        connection, _ = self._listener.accept()
        self.connections.append(connection)
        return connection

    def ask_on_both(self) -> list[Reply]:
        """Ask two questions, and answer them when both have come."""
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(self.transport.post, self.url, {}) for _ in range(2)]
            while len(self.connections) < 2:
                self.accept()
            for connection in self.connections:
                question_on(connection)
            for connection in self.connections:
                connection.sendall(PLAIN)
            return [question.result(60) for question in asked]

    def ask_on_a_new_one(self) -> Reply:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.transport.post, self.url, {})
            connection = self.accept()
            question_on(connection)
            connection.sendall(PLAIN)
            return asked.result(60)


def question_on(connection: socket.socket) -> bytes:
    connection.settimeout(60)
    data = b""
    while not data.endswith(b"\r\n\r\n{}"):
        data += connection.recv(1 << 16)
    return data


def test_an_extra_answer_is_noticed_on_a_connection_that_is_used_no_more() -> None:
    """The first extra answer came on another connection, and this one still owed one."""
    with TwoConnections() as server:
        first = server.ask_on_both()
        second = server.ask_on_both()
        assert not any(reply.doubt.is_raised for reply in first + second)
        raised: queue.Queue[int] = queue.Queue()
        for number, reply in enumerate(second):
            reply.doubt.when_raised(partial(raised.put, number))
        server.connections[0].sendall(PLAIN)
        doubted = {raised.get(timeout=60)}
        alone = server.ask_on_a_new_one()
        server.connections[1].sendall(PLAIN)
        doubted.add(raised.get(timeout=60))
        assert doubted == {0, 1}
        assert not any(reply.doubt.is_raised for reply in [*first, alone])
        assert server.said == [SURPLUS]
        assert server.transport.settling_s == MAX_SETTLING_S


def test_the_users_own_header_takes_the_place_of_the_programs() -> None:
    server = Scripted(PLAIN, PLAIN)
    asked_once(server).post(
        server.url, {}, {"user-agent": "mine/1", "dataClassification": "confidential"}
    )
    lines = server.heads[-1].decode().split("\r\n")
    assert [line for line in lines if line.lower().startswith("user-agent")] == [
        "user-agent: mine/1"
    ]
    assert "dataClassification: confidential" in lines
