"""How a request waits: in its thread, or in an event loop, where others go on meanwhile.

Whatever may take long on a request's way says so by one of these; `eval_factory.endpoint.event_loop` is the loop.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Loop(Protocol):
    """What runs many requests in one thread. Each of these returns in the request that called it."""

    def elsewhere(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns, called in a thread of its own. Raises what it raises."""

    def result_of(self, future: Future[T]) -> T:
        """The result, when there is one. Raises the future's exception."""

    def until_ready(self, connected: socket.socket, events: int) -> None:
        """Return when the socket may be read from or written to; `events` as `selectors` has them."""

    def at_end_of_round(self, function: Callable[[], None]) -> None:
        """Return after the function was called, once for all that wait for it."""


class _Here(threading.local):
    loop: Loop | None = None


_here = _Here()


def running_loop() -> Loop | None:
    """The loop that runs this request; None: it has a thread of its own."""
    return _here.loop


@contextmanager
def run_by(loop: Loop) -> Iterator[None]:
    """What this thread does meanwhile is run by the loop."""
    before, _here.loop = _here.loop, loop
    try:
        yield
    finally:
        _here.loop = before


def elsewhere(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what may take long."""
    loop = _here.loop
    return function(*args, **kwargs) if loop is None else loop.elsewhere(function, *args, **kwargs)


def result_of(future: Future[T]) -> T:
    """The result, when there is one. Raises the future's exception."""
    loop = _here.loop
    return future.result() if loop is None else loop.result_of(future)
