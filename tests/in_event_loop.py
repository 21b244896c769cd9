"""Whatever is asked in a thread of its own is to end the same in an event loop."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest
from eval_factory.endpoint.event_loop import EventLoop
from eval_factory.endpoint.socket_calls import receive, send_all

from eval_factory.endpoint import waiting

T = TypeVar("T")
LARGE = bytes(range(256)) * (1 << 14)
"""4 MB: more than the system takes at once."""


def in_a_loop(function: Callable[[], T]) -> T:
    """What it returns, or raises."""
    return EventLoop(1).run(lambda _: function(), [None])[0]


def insiders(slot: Callable[[], AbstractContextManager[float]]) -> list[int]:
    """How many are inside when each of twenty comes in, where eight at a time want to."""
    inside, seen = 0, []

    def process(_: int) -> None:
        nonlocal inside
        with slot():
            inside += 1
            seen.append(inside)
            waiting.elsewhere(time.sleep, 0.01)
            inside -= 1

    EventLoop(8).run(process, range(20))
    return seen


def runs_in(way: str, owner: type[Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method of this name is run as the way says."""
    method = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        return in_a_loop(lambda: method(*args, **kwargs))

    if way == "loop":
        monkeypatch.setattr(owner, name, run)


RUN: dict[str, Callable[[Callable[[], bytes]], bytes]] = {"thread": lambda function: function(), "loop": in_a_loop}
WAYS = tuple(RUN)


def all_is_sent_and_the_answer_read(near: socket.socket, far: socket.socket, way: str) -> None:
    """By one who reads slowly; over a connection that was used either way before."""
    for time_left in (7.0, 0.0):
        near.settimeout(time_left)
        heard = bytearray()

        def answer(heard: bytearray = heard) -> None:
            while len(heard) < len(LARGE) and (piece := far.recv(1 << 20)):
                heard.extend(piece)
                time.sleep(0.001)
            far.sendall(b"heard")

        other = threading.Thread(target=answer)
        other.start()

        def ask() -> bytes:
            send_all(near, LARGE)
            return receive(near, 100)

        assert RUN[way](ask) == b"heard"
        other.join()
        assert heard == LARGE
        assert near.gettimeout() == (None if way == "thread" else 0.0)
