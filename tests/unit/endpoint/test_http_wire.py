"""Answers as servers send them, and as none should: on a socket, and beside what urllib3 makes of them; connections."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import urllib3

from eval_factory.endpoint import http_wire, odd_headers
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.http_wire import Doubt, TransportError
from facts import says
from token_answers import forget_proxies_and_certificates
from unit.endpoint.test_connections import Scripted

TIMEOUT_S = 20.0
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CUT = "the connection was closed before the whole answer came"
INVALID = "the answer is not valid HTTP"
NO_HTTP = "what came is not HTTP"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


@pytest.fixture(params=[False, True], ids=["new-connection", "kept-connection"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a new connection, and over one that has answered before."""
    monkeypatch.setattr(Server, "has_answered", request.param)


class Server(Scripted):
    """Gives one answer, and hangs up or goes on; then a good answer."""

    has_answered = False

    def __init__(self, answer: bytes, hangs_up: bool = False) -> None:
        super().__init__(answer, GOOD, hangs_up=hangs_up)

    def asked_before(self) -> Transport:
        """Ask the wire; it was answered once already, or not yet."""
        asked = Transport(self.url, timeout_s=TIMEOUT_S)
        if self.has_answered:
            self._answers.insert(0, GOOD)
            assert asked.post(self.url, {}).data == b"{}"
        return asked


def answer(
    *lines: str, body: bytes = b"", status: str = "200 OK", version: str = "HTTP/1.1"
) -> bytes:
    return "\r\n".join([f"{version} {status}", *lines, "", ""]).encode() + body


TWO = "Content-Length: 2"
CHUNKED = "Transfer-Encoding: chunked"
ZIPPED = gzip.compress(b"abc")
BROTLI = bytes.fromhex("0b018061626303")  # abc
ZSTD = bytes.fromhex("28b52ffd2003190000616263")  # abc
SECOND = answer("Content-Length: 4", body=b"evil")


def ours(server: Server) -> tuple[Any, Any]:
    """Status and body, or the error; the second answer, and on how many connections."""
    asked = server.asked_before()
    first: Any
    try:
        reply = asked.post(server.url, {})
        first = (reply.status, reply.data)
    except TransportError as error:
        first = str(error)
    return first, (asked.post(server.url, {}).data, server.connections)


def urllib3s(server: Server) -> tuple[int, bytes]:
    reply = urllib3.request(
        "POST", server.url, body=b"{}", retries=False, redirect=False, timeout=0.5
    )
    return reply.status, reply.data


@pytest.mark.parametrize(
    ("sent", "first", "connections"),
    [
        (answer(TWO, body=b"ab"), (200, b"ab"), 1),
        (answer("content-LENGTH:2", body=b"ab"), (200, b"ab"), 1),
        (
            answer(CHUNKED, body=b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-T: 1\r\n\r\n"),
            (200, b"abcde"),
            1,
        ),
        (answer("Connection: close", TWO, body=b"abjunk"), (200, b"ab"), 2),
        (answer(TWO, body=b"ab", version="HTTP/1.0"), (200, b"ab"), 2),
        (answer(TWO, "Connection: keep-alive", body=b"ab", version="HTTP/1.0"), (200, b"ab"), 1),
        (answer(status="100 Continue") + GOOD, (200, b"{}"), 1),
        (
            answer("Content-Encoding: gzip", f"Content-Length: {len(ZIPPED)}", body=ZIPPED),
            (200, b"abc"),
            1,
        ),
        (
            answer("Content-Encoding: br", f"Content-Length: {len(BROTLI)}", body=BROTLI),
            (200, b"abc"),
            1,
        ),
        (
            answer("Content-Encoding: zstd", f"Content-Length: {len(ZSTD)}", body=ZSTD),
            (200, b"abc"),
            1,
        ),
        (answer("Location: /x", "Content-Length: 0", status="302 Found"), (302, b""), 1),
        (answer(status="204 No Content"), (204, b""), 1),
        (answer(TWO, status="304 Not Modified"), (304, b""), 1),
        (answer(TWO, status="401 Unauthorized", body=b"no"), (401, b"no"), 1),
        (answer(TWO, status="500", body=b"no"), (500, b"no"), 1),
        (answer(TWO, CHUNKED, body=b"3\r\nabc\r\n0\r\n\r\n"), (200, b"abc"), 2),
        (
            answer("transfer-encoding: Chunked", TWO, body=b"3\r\nabc\r\n0\r\n\r\n"),
            (200, b"abc"),
            2,
        ),
        (answer(TWO, body=b"ab").replace(b"\r", b""), (200, b"ab"), 1),
        (answer("X-A: 1", TWO, body=b"ab").replace(b"\r", b"", 2), (200, b"ab"), 1),
        (answer(CHUNKED).replace(b"\r", b"") + b"2\r\nab\r\n0\r\n\r\n", (200, b"ab"), 1),
    ],
    ids=[
        "length",
        "small-letters",
        "chunked",
        "close",
        "old",
        "old-kept",
        "continue",
        "gzip",
        "brotli",
        "zstd",
        "redirect",
        "no-content",
        "not-modified",
        "refused",
        "no-reason",
        "length-and-chunks",
        "chunks-and-length",
        "line-feeds",
        "some-line-feeds",
        "line-feeds-and-chunks",
    ],
)
def test_what_urllib3_reads_is_read_as_it_does(
    sent: bytes, first: tuple[int, bytes], connections: int
) -> None:
    assert ours(Server(sent)) == (first, (b"{}", connections))
    assert urllib3s(Server(sent)) == first


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    sent = answer(body=b"ab")
    assert ours(Server(sent, hangs_up=True)) == ((200, b"ab"), (b"{}", 2))
    assert urllib3s(Server(sent, hangs_up=True)) == (200, b"ab")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (answer(TWO, "Content-Length: 3", body=b"abc"), INVALID),
        (answer(TWO, CHUNKED, body=b"{}"), INVALID),
        (answer(TWO, "Transfer-Encoding: identity", body=b"ab"), INVALID),
        (answer("Content-Length: -1", body=b"ab"), INVALID),
        (answer(f"Content-Length: {10**30}", body=b"ab"), INVALID),
        (answer(CHUNKED, body=b"10000000000000000\r\nab"), INVALID),
        (answer(CHUNKED, body=b"-2\r\nab\r\n0\r\n\r\n"), INVALID),
        (answer("Content-Length: 2\0", body=b"ab"), INVALID),
        (answer("nonsense", TWO, body=b"ab"), INVALID),
        (answer(TWO, status="2000 OK", body=b"ab"), INVALID),
        (
            answer("Upgrade: x", "Connection: upgrade", status="101 X"),
            "changes to another protocol",
        ),
        (answer("Content-Length: 3", body=b"ab"), CUT),
        (answer("Transfer-Encoding: gzip", body=b"ab"), "Content-Encoding"),
        (b"junk\r\n" + GOOD, NO_HTTP),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NO_HTTP),
        (b"\x15\x03\x01\x00\x02\x02F", "speaks TLS: the address has to begin with https://"),
    ],
    ids=[
        "two-lengths",
        "length-and-no-chunks",
        "length-and-identity",
        "negative",
        "large-length",
        "large-chunk",
        "negative-chunk",
        "nul",
        "no-colon",
        "status",
        "upgrade",
        "short",
        "not-chunked",
        "junk-before",
        "http2",
        "tls",
    ],
)
def test_what_is_not_valid_is_refused(sent: bytes, said: str) -> None:
    """llhttp guesses less than urllib3; the connection is not used again, and the next one is."""
    first, rest = ours(Server(sent, hangs_up=True))
    assert said in first
    assert rest == (b"{}", 2)


@pytest.mark.parametrize("more", [SECOND, b"junk"])
def test_what_comes_after_an_answer_answers_nothing(more: bytes) -> None:
    """urllib3 drops it unseen, and uses the connection again."""
    assert ours(Server(GOOD + more)) == ((200, b"{}"), (b"{}", 2))


@pytest.mark.parametrize(
    ("sent", "status", "data", "headers"),
    [
        (
            answer("X-A: 1", status="103 Early Hints") + answer(TWO, body=b"ab"),
            200,
            b"ab",
            {"content-length": "2"},
        ),
        (
            answer("retry-AFTER:  7 ", "X-A: 1", "x-a: 2", TWO, status="429 Slow", body=b"no"),
            429,
            b"no",
            {"retry-after": "7", "x-a": "2", "content-length": "2"},
        ),
        (
            answer(CHUNKED, body=b"1\r\na\r\n0\r\nRetry-After: 9\r\n\r\n"),
            200,
            b"a",
            {"transfer-encoding": "chunked"},
        ),
    ],
    ids=["hints are none", "however they are written", "trailers are none"],
)
def test_headers(sent: bytes, status: int, data: bytes, headers: dict[str, str]) -> None:
    """http.client skips a 100 only."""
    server = Server(sent)
    reply = server.asked_before().post(server.url, {})
    assert (reply.status, reply.data, dict(reply.headers)) == (status, data, headers)


def test_what_is_not_coded_as_it_says_is_refused() -> None:
    """Its end is known, so that the connection is used again."""
    first, rest = ours(Server(answer("Content-Encoding: gzip", TWO, body=b"ab")))
    says(first, "Content-Encoding")
    assert rest == (b"{}", 1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_has_a_largest_size(
    more: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that comes, and of a body when it is unpacked."""
    monkeypatch.setattr(http_wire, "MAX_BODY", 100_000)
    size = 100_000 - (0 if packed else len(answer("Content-Length: 99999"))) + more
    body, coding = (
        (gzip.compress(b"a" * size), ["Content-Encoding: gzip"]) if packed else (b"a" * size, [])
    )
    sent = answer(*coding, f"Content-Length: {len(body)}", body=body)
    # of a packed one the end is known: the connection is used again
    ends = bool(more) and not packed
    first, (_, connections) = ours(Server(sent, hangs_up=ends))
    assert first == (
        f"{http_wire._TOO_LARGE}; {http_wire.PAID_AGAIN}" if more else (200, b"a" * size)
    )
    assert connections == 1 + ends


def test_doubt_is_told_once_whether_it_comes_before_or_after() -> None:
    told = list[str]()
    doubt = Doubt()
    doubt.when_raised(lambda: told.append("before"))
    assert (told, doubt.is_raised) == ([], False)
    doubt.raise_it()
    doubt.raise_it()
    doubt.when_raised(lambda: told.append("after"))
    assert (told, doubt.is_raised) == (["before", "after"], True)


PACKED = gzip.compress(b"ab")
ODD = [
    answer("X-A: a\r\n b\r\n\tc", TWO, body=b"ab"),
    answer(TWO, TWO, body=b"ab"),
    answer("Content-Length: 2, 2", body=b"ab"),
    answer("X-A : a", TWO, body=b"ab"),
    answer("Content-Length : 2", body=b"ab"),
    answer("X-A: \u00fc", TWO, body=b"ab"),
    answer("X-\u00fc: a", TWO, body=b"ab"),
    answer("X-A: a\r\n b", "Transfer-Encoding: chunked", body=b"2\r\nab\r\n0\r\n\r\n"),
    answer("X-A : a", TWO, body=b"ab").replace(b"\r", b""),
    answer("X-Nul: a\0b", TWO, body=b"ab"),
    answer("X-Return: a\rb", TWO, body=b"ab"),
    answer("X-Colours: \x1b[0m\x7f", TWO, body=b"ab"),
    answer(TWO, body=b"ab", version="HTTP/1.1 "),
    answer(TWO, body=b"ab", version="HTTP/1.1\t"),
    answer(TWO, body=b"ab", version="HTTP/1.2"),
    answer(CHUNKED, body=b"2 \r\nab\r\n0\r\n\r\n"),
    answer(
        "Transfer-Encoding: gzip, chunked",
        body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(PACKED), PACKED),
    ),
    answer(f"Content-Length: {len(PACKED)}", body=PACKED),
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_heads_are_read_as_the_standard_allows(odd: bytes) -> None:
    assert ours(Server(odd)) == ((200, b"ab"), (b"{}", 1))


def test_a_body_that_was_unpacked_on_the_way_is_read() -> None:
    """Its field says gzip still."""
    assert ours(Server(answer("Content-Encoding: gzip", TWO, body=b"{}")))[0] == (200, b"{}")


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_what_is_coded_but_not_in_chunks_ends_with_its_connection(coding: str) -> None:
    body = PACKED if coding == "gzip" else b"ab"
    sent = answer(f"Transfer-Encoding: {coding}", body=body)
    assert ours(Server(sent, hangs_up=True)) == ((200, b"ab"), (b"{}", 2))


@pytest.mark.parametrize("at", [20, 25, 30])
def test_an_odd_head_is_read_wherever_it_is_split(at: int) -> None:
    head = answer("X-A: a\r\n b", TWO, body=b"ab")
    assert odd_headers.end_of_head(head[:at]) is None
    end = odd_headers.end_of_head(head)
    assert odd_headers.readable_head(head[:end]).split(b"\r\n")[1] == b"X-A: a b"


@pytest.mark.parametrize("lengths", [("2", "3"), ("2, 3",), ("2", "2, 3")])
def test_two_lengths_that_differ_are_refused(lengths: tuple[str, ...]) -> None:
    lines = [f"Content-Length: {length}" for length in lengths]
    first, _ = ours(Server(answer(*lines, body=b"abc")))
    assert "not valid HTTP" in first
