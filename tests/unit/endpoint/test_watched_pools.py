"""Connections that are used again, and end in time."""

from __future__ import annotations

import errno
import gc
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from eval_factory.endpoint.transport import Reply, Transport, TransportError
from eval_factory.endpoint.watched_pools import Watch
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError
from urllib3.util.ssl_match_hostname import CertificateError

from eval_factory.endpoint import transport as transport_module
from in_event_loop import WAYS, runs_in
from token_answers import forget_proxies_and_certificates

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
TIMEOUT_S = 5.0


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    runs_in(request.param, Transport, "post", monkeypatch)
    return str(request.param)


class Scripted:
    """Gives these answers in turn, on as many connections as it takes; an empty one hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1?a=b"
        self.heads: list[bytes] = []
        self.connections = 0
        self.hung_up, self.ended = threading.Event(), threading.Event()
        self._answers = list(answers)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self._answers:
            connection, _ = self._socket.accept()
            self.connections += 1
            with connection:
                while self._answers and (head := self._head(connection)):
                    self.heads.append(head)
                    answer = self._answers.pop(0)
                    connection.sendall(answer)
                    if not answer.startswith(b"HTTP") or b"close" in answer or answer.endswith(b"..."):
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


def asked(server: Scripted, times: int) -> list[Reply]:
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    return [transport.post(server.url, {"prompt": "x"}, {"Authorization": "Bearer k"}) for _ in range(times)]


def test_a_request_is_sent_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new connection, and on one that is used again."""
    sent: list[bytes] = []

    def noting(write: Callable[..., Any]) -> Callable[..., Any]:
        def noted(connected: socket.socket, data: bytes) -> Any:
            if bytes(data).startswith(b"POST"):
                sent.append(bytes(data))
            return write(connected, data)

        return noted

    for name in ("sendall", "send"):
        monkeypatch.setattr(socket.socket, name, noting(getattr(socket.socket, name)))
    server = Scripted(PLAIN, PLAIN)
    assert [(reply.status, reply.data) for reply in asked(server, 2)] == [(200, b"{}")] * 2
    assert server.connections == 1
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert sent[0].startswith(b"POST /v1?a=b HTTP/1.1\r\nHost: 127.0.0.1:")
    assert sent[0].endswith(b'\r\nAuthorization: Bearer k\r\n\r\n{"prompt":"x"}')


@pytest.mark.parametrize(
    ("answer", "status", "data"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
        (b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno", 429, b"no"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", 200, b"a"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", 200, b"to the end"),
        (b"HTTP/1.1 302 Go\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 302, b""),
    ],
    ids=["chunked", "refused", "continue", "closes", "redirect"],
)
def test_other_forms_are_read_as_urllib3_reads_them(answer: bytes, status: int, data: bytes) -> None:
    """On a connection that is used again, and the next request is answered too."""
    server = Scripted(PLAIN, answer, PLAIN)
    _, other, last = asked(server, 3)
    assert (other.status, other.data) == (status, data)
    assert other.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert last.data == b"{}"
    assert server.connections == (2 if b"close" in answer else 1)


def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    server = Scripted(b"HTTP/1.1 200 OK\r\nX-Then: close\r\nContent-Length: 2\r\n\r\n{}", PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})
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
    transport = Transport(server.url, timeout_s=0.4, connections=1)
    transport.post(server.url, {})
    with pytest.raises(TransportError, match=r"no whole answer within 0\.4 s") as raised:
        transport.post(server.url, {})
    assert raised.value.silent is silent


@pytest.mark.parametrize(
    ("answer", "said", "silent"),
    [
        (b"", transport_module.CUT, True),
        (b"nonsense", "what came is no HTTP", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na...", transport_module.CUT, False),
    ],
    ids=["nothing", "no-http", "cut"],
)
def test_what_is_no_whole_answer(answer: bytes, said: str, silent: bool) -> None:
    server = Scripted(PLAIN, answer)
    with pytest.raises(TransportError, match=said) as raised:
        asked(server, 2)
    assert len(server.heads) == 2, "a request that may have been answered is not sent again"
    assert (raised.value.silent, raised.value.unreachable) == (silent, False)


def test_a_connection_that_gave_no_http_is_not_used_again() -> None:
    """Although it is open."""
    server = Scripted(PLAIN, b"HTTP/9 nonsense\r\n\r\n", PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})
    with pytest.raises(TransportError):
        transport.post(server.url, {})
    assert transport.post(server.url, {}).data == b"{}"
    assert server.connections == 2


class Counted:
    """How often urllib3 itself asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        urlopen = HTTPConnectionPool.urlopen

        def counted(pool: HTTPConnectionPool, *arguments: Any, **settings: Any) -> Any:
            self.times += 1
            return urlopen(pool, *arguments, **settings)

        monkeypatch.setattr(HTTPConnectionPool, "urlopen", counted)


def test_what_was_asked_once_is_asked_past_urllib3(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the header that http.client wrote, and the length of each body."""
    server, urllib3 = Scripted(*[PLAIN] * 4), Counted(monkeypatch)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    for prompt in ("x", "Content-Length: 14", "\r\nContent-Length: 14\r\n", "x" * 100_000):
        transport.post(server.url, {"prompt": prompt})
    assert (urllib3.times, server.connections) == (1, 1)
    first, *others = server.heads
    lengths = (b"31", b"39", b"100013")
    assert others == [first.replace(b"Length: 14\r", b"Length: %b\r" % length) for length in lengths]


def test_another_header_is_written_by_http_client_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is renewed; another address; a request without a body."""
    server, urllib3 = Scripted(*[PLAIN] * 6), Counted(monkeypatch)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    other = server.url.replace("v1", "v2")
    asked = [(server.url, "a"), (server.url, "a"), (server.url, "b"), (server.url, "b"), (other, "b"), (other, "b")]
    times = []
    for url, token in asked:
        transport.post(url, {}, {"Authorization": token})
        times.append(urllib3.times)
    assert times == [1, 1, 2, 2, 3, 3]
    tokens = [head.split(b"Authorization: ")[1][:1].decode() for head in server.heads]
    paths = ["v2" if b"/v2" in head else "v1" for head in server.heads]
    assert [(path, token) for path, token in zip(paths, tokens, strict=True)] == [
        ("v2" if url == other else "v1", token) for url, token in asked
    ]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: b", "a\nX-Evil: b", "a\r\n\r\nb"])
def test_a_header_with_lines_in_it_is_refused(value: str) -> None:
    server = Scripted(PLAIN, PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})
    with pytest.raises(ValueError, match="Invalid header value"):
        transport.post(server.url, {}, {"Authorization": value})
    assert transport.post(server.url, {}).data == b"{}"
    assert not any(b"Evil" in head for head in server.heads)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokenPipeError(errno.EPIPE, "gone"), None),
        (ConnectionResetError(errno.ECONNRESET, "gone"), None),
        (OSError(errno.ENETDOWN, "down"), "closed before the whole answer came"),
        (TimeoutError(errno.ETIMEDOUT, "late"), "no whole answer within 5 s"),
        (ssl.SSLError(1, "bad record"), "TLS failed: .*bad record"),
    ],
    ids=["pipe", "reset", "other", "late", "tls"],
)
def test_what_goes_wrong_in_sending(error: OSError, told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hangs up while we send may have answered; such an answer counts. Other errors end the connection."""
    server = Scripted(PLAIN, PLAIN, PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})

    def failing(write: Callable[..., Any]) -> Callable[..., Any]:
        def fails(connected: socket.socket, data: bytes) -> Any:
            ours = bytes(data).startswith(b"POST")
            written = write(connected, data) if told is None or not ours else None
            if ours:
                raise error
            return written

        return fails

    with monkeypatch.context() as patched:
        for name in ("sendall", "send"):
            patched.setattr(socket.socket, name, failing(getattr(socket.socket, name)))
        if told is None:
            assert transport.post(server.url, {}).data == b"{}"
        else:
            with pytest.raises(TransportError, match=told):
                transport.post(server.url, {})
    assert transport.post(server.url, {}).data == b"{}"
    assert server.connections == (1 if told is None else 2)


def test_a_new_connection_beside_is_asked_past_urllib3_too(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the time of connecting to be made in, and that of the request to be used. Nobody else waits for it."""
    server, urllib3 = (
        Scripted(*[PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")] * 3),
        Counted(monkeypatch),
    )
    times: list[object] = []
    threads: list[threading.Thread] = []
    connect = HTTPConnection.connect

    def timed(connection: HTTPConnection) -> None:
        times.append(connection.timeout)
        threads.append(threading.current_thread())
        connect(connection)

    monkeypatch.setattr(HTTPConnection, "connect", timed)
    monkeypatch.setattr(transport_module, "CONNECT_TIMEOUT_S", 3.0)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    assert [transport.post(server.url, {}).data for _ in range(3)] == [b"{}"] * 3
    assert (urllib3.times, server.connections) == (1, 3)
    assert times == [3.0] * 3
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [way == "thread"] * 3


def test_connecting_counts_within_the_time_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first request, and of those past urllib3."""
    server = Scripted(*[PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")] * 2)
    connected: list[float] = []
    left: list[float] = []
    connect, begin = HTTPConnection.connect, Watch.begin

    def slow(connection: HTTPConnection) -> None:
        connect(connection)
        time.sleep(0.2)
        connected.append(time.monotonic())

    def noted(watch: Watch, waits: socket.socket, deadline: float) -> None:
        left.append(deadline - connected[-1])
        begin(watch, waits, deadline)

    monkeypatch.setattr(HTTPConnection, "connect", slow)
    monkeypatch.setattr(Watch, "begin", noted)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    for number in (1, 2):
        transport.post(server.url, {})
        assert len(connected) == number
    assert len(left) >= 2
    assert max(left) <= TIMEOUT_S - 0.2


def test_a_request_without_a_body_is_no_pattern_for_others() -> None:
    server = Scripted(*[PLAIN] * 3)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    assert [transport.get(server.url).data, transport.post(server.url, {}).data] == [b"{}"] * 2
    assert transport.get(server.url).data == b"{}"
    assert [head.split()[0] for head in server.heads] == [b"GET", b"POST", b"GET"]


def test_whoever_asks_no_more_leaves_no_connection(way: str) -> None:
    """At once: Python looks for cycles seldom."""
    server = Scripted(PLAIN, PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})
    gc.disable()
    try:
        del transport
        assert server.hung_up.wait(60), way
    finally:
        gc.enable()


def test_nobody_is_there_any_more() -> None:
    server = Scripted(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)
    transport.post(server.url, {})
    assert server.hung_up.wait(60)
    server.ended.wait(60)
    with pytest.raises(TransportError, match="no connection could be made") as raised:
        transport.post(server.url, {})
    assert raised.value.unreachable


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectTimeoutError(None, "late"), "no connection in time"),
        (ssl.SSLCertVerificationError("not trusted"), "TLS failed: .*not trusted"),
        (CertificateError("another name"), "TLS failed: .*another name"),
    ],
    ids=["late", "certificate", "name"],
)
def test_what_goes_wrong_in_connecting(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, whether urllib3 makes the first request of all or a later one has a connection of its own."""
    server = Scripted(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), PLAIN)
    transport = Transport(server.url, timeout_s=TIMEOUT_S, connections=1)

    def failing(_connection: HTTPConnection) -> None:
        raise error

    for first in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(HTTPConnection, "connect", failing)
            with pytest.raises(TransportError, match=told) as raised:
                transport.post(server.url, {})
        assert raised.value.unreachable, first
        assert transport.post(server.url, {}).data == b"{}"
