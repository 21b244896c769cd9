"""Sending and receiving, in a thread and in an event loop."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from eval_factory.endpoint.event_loop import EventLoop
from eval_factory.endpoint.socket_calls import receive, send_all

from eval_factory.endpoint import waiting
from in_event_loop import LARGE, RUN, WAYS, all_is_sent_and_the_answer_read


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.mark.parametrize("way", WAYS)
def test_all_is_sent_to_a_slow_reader_and_the_answer_read(way: str, pair: tuple[socket.socket, socket.socket]) -> None:
    all_is_sent_and_the_answer_read(*pair, way)


def test_others_go_on_while_one_waits(pair: tuple[socket.socket, socket.socket]) -> None:
    """For room to send, and for an answer."""
    near, far = pair
    third, fourth = socket.socketpair()
    with third, fourth:

        def process(number: int) -> bytes:
            if number == 0:  # waits until the other one reads
                send_all(near, LARGE[: 1 << 20])
                return b"sent"
            send_all(third, b"x")
            got = bytearray()
            while len(got) < 1 << 20:
                got += receive(far, 1 << 16)
            return bytes(got)

        far.setblocking(False)
        assert EventLoop(2).run(process, range(2)) == [b"sent", LARGE[: 1 << 20]]
        assert fourth.recv(9) == b"x"


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_a_connection(way: str, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.close()

    def read() -> bytes:
        return receive(near, 9)

    def send() -> bytes:
        send_all(near, b"x")
        return b""

    near.settimeout(None if way == "thread" else 0.0)
    assert RUN[way](read) == b""
    with pytest.raises(BrokenPipeError):
        RUN[way](send)


class Noting:
    """A loop that notes what it is to wait for; what is waited for comes."""

    def __init__(self, comes: Callable[[], object]) -> None:
        self.awaited: list[int] = []
        self._comes = comes

    def until_ready(self, _connected: socket.socket, events: int) -> None:
        self.awaited.append(events)
        self._comes()


class WantsTheOther:
    """A socket as TLS has it: it wants to read before it sends, and to write before it receives."""

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {"send": ssl.SSLWantReadError(), "recv": ssl.SSLWantWriteError()}

    def gettimeout(self) -> float:
        return 0.0

    def send(self, data: bytes) -> int:
        return int(self._first("send", len(data)))

    def recv(self, _size: int) -> bytes:
        return bytes(self._first("recv", b"answer"))

    def _first(self, name: str, result: Any) -> Any:
        if name in self._errors:
            raise self._errors.pop(name)
        return result


def test_it_waits_for_what_is_wanted(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    loop: Any = Noting(lambda: far.send(b"x"))
    near.setblocking(False)
    with waiting.run_by(loop):
        assert receive(near, 9) == b"x"
    assert loop.awaited == [selectors.EVENT_READ]
    loop = Noting(lambda: far.recv(1 << 20))
    with waiting.run_by(loop):
        send_all(near, LARGE[: 1 << 20])
    assert set(loop.awaited) == {selectors.EVENT_WRITE}
    loop, tls = Noting(lambda: None), cast(socket.socket, WantsTheOther())
    with waiting.run_by(loop):
        send_all(tls, b"request")
        assert receive(tls, 9) == b"answer"
    assert loop.awaited == [selectors.EVENT_READ, selectors.EVENT_WRITE]


def test_a_thread_is_not_told_that_nothing_came(pair: tuple[socket.socket, socket.socket]) -> None:
    """Only a loop knows how to wait; whoever receives without having sent finds out."""
    near, _ = pair
    near.setblocking(False)
    with pytest.raises(BlockingIOError):
        receive(near, 9)
