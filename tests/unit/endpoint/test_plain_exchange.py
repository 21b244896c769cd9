"""Which answers are plain, and that all others are handed on with every byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from eval_factory.endpoint import plain_exchange
from eval_factory.endpoint.plain_exchange import LARGEST_PLAIN, Exchanged, exchange, plain_head, request_bytes

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
TIMEOUT_S = 5.0


def head_of(*lines: str, status: str = "HTTP/1.1 200 OK") -> plain_exchange.PlainHead | None:
    data = "\r\n".join([status, *lines]).encode()
    return plain_head(data + b"\r\n\r\n", len(data))


def test_where_a_plain_body_begins_and_ends() -> None:
    found = head_of("Content-Length: 7", "X-One:  two ")
    assert found is not None
    assert found.headers == {"content-length": "7", "x-one": "two"}
    begin = len("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-One:  two \r\n\r\n")
    assert (found.begin, found.end) == (begin, begin + 7)


@pytest.mark.parametrize("status", ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 200 Fine"])
def test_plain_statuses(status: str) -> None:
    assert head_of("Content-Length: 1", "Connection: Keep-Alive", status=status) is not None


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ("HTTP/1.0 200 OK", ("Content-Length: 1",)),
        ("HTTP/1.1 2000 OK", ("Content-Length: 1",)),
        ("HTTP/1.1 100 Continue", ("Content-Length: 1",)),
        ("HTTP/1.1 429 Too Many", ("Content-Length: 1",)),
        ("HTTP/1.1 200 OK", ()),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "Content-Length: 1")),
        ("HTTP/1.1 200 OK", ("Content-Length: 1, 1",)),
        ("HTTP/1.1 200 OK", ("Content-Length: -1",)),
        ("HTTP/1.1 200 OK", ("Content-Length: 0000000001",)),
        ("HTTP/1.1 200 OK", (f"Content-Length: {LARGEST_PLAIN + 1}",)),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "Connection: close")),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "Transfer-Encoding: chunked")),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "Content-Encoding: gzip")),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "X-Folded: a", " b: c")),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "no field")),
    ],
    ids=[
        "old", "longer-status", "continue", "refused", "no-length", "two-lengths", "list", "negative", "digits", "large",
        "closes", "chunked", "gzip", "folded", "no-colon",
    ],
)  # fmt: skip
def test_what_is_left_to_urllib3(status: str, lines: tuple[str, ...]) -> None:
    assert head_of(*lines, status=status) is None


def test_the_largest_plain_answer() -> None:
    found = head_of(f"Content-Length: {LARGEST_PLAIN}")
    assert found is not None
    assert found.end - found.begin == LARGEST_PLAIN


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nb", "a\rb", "käse"])
def test_values_that_need_a_check(value: str) -> None:
    assert request_bytes("host", "/v1", {"Authorization": value}, b"") is None


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_S)
    with ours, theirs:
        yield ours, theirs


def test_an_answer_in_pieces(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends

    def answer() -> None:
        assert theirs.recv(100) == b"request"
        for place in range(len(PLAIN)):
            theirs.sendall(PLAIN[place : place + 1])

    thread = threading.Thread(target=answer)
    thread.start()
    came = exchange(ours, b"request")
    thread.join()
    assert came.body == b"{}"
    assert came.data == PLAIN


@pytest.mark.parametrize("sent", [PLAIN[:-1], PLAIN + b"x", PLAIN[:20], b"", b"HTTP/1.1 500 No\r\n\r\nsorry"])
def test_what_is_not_whole_is_handed_on(ends: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    ours, theirs = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    assert exchange(ours, b"request") == Exchanged(sent, None)


def test_a_header_without_an_end(ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_exchange, "LARGEST_HEAD", 10)
    ours, theirs = ends
    theirs.sendall(b"HTTP/1.1 20")
    assert exchange(ours, b"request") == Exchanged(b"HTTP/1.1 20", None)


def test_a_server_that_hangs_up_while_it_is_sent_to(ends: tuple[socket.socket, socket.socket]) -> None:
    """Its answer may have come before."""
    ours, theirs = ends
    theirs.sendall(PLAIN)
    theirs.close()
    assert exchange(ours, b"x" * (8 << 20)).body == b"{}"


def test_silence_and_half_an_answer_are_told_apart(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        exchange(ours, b"request")
    theirs.sendall(PLAIN[:10])
    assert exchange(ours, b"request") == Exchanged(PLAIN[:10], None)
