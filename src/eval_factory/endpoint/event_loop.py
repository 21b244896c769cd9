"""Many requests in one thread: each in a greenlet, which gives way to the others while it waits.

Threads of one Python process run one at a time, and hand over at every wait: with a hundred of them that takes as much
of the processor as their requests do.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

from eval_factory.endpoint import waiting

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

ROUND = 16
"""So many go on before what is called at the end of a round: more of them would wait for each other."""
HEARD = 4096
"""Bytes of the bell, one for each that comes back; where some are left, it is looked again."""


class EventLoop:
    """A `Loop` (`eval_factory.endpoint.waiting`) for one call of `run`, in the thread that calls it."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._new: deque[greenlet] = deque()
        """They have done nothing so far."""
        self._ready: deque[greenlet] = deque()
        self._at_end: dict[Callable[[], None], list[greenlet]] = {}
        self._returned: deque[greenlet] = deque()
        """Of those that wait for another thread: they may go on."""
        self._busy = 0

    def run(self, process: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
        """The results of `process`, in the order of the items.

        Raises:
            Exception: what `process` raised first, by that order. No other item is begun then; those that are under way
                are waited for.
            BaseException: any other, at once; those that are under way are told to end.
        """
        results: list[Any] = [None] * len(items)
        failures: dict[int, Exception] = {}
        left = iter(enumerate(items))

        def work() -> None:
            for number, item in left:
                if failures:
                    break
                try:
                    results[number] = process(item)
                except Exception as error:
                    failures[number] = error
            self._busy -= 1

        with ExitStack() as stack:
            self._main = getcurrent()
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._bell, self._wire = (stack.enter_context(end) for end in socket.socketpair())
            self._selector.register(self._bell, selectors.EVENT_READ)
            self._helpers = stack.enter_context(ThreadPoolExecutor(self._at_once, thread_name_prefix="waits"))
            stack.enter_context(waiting.run_by(self))
            workers = [greenlet(work) for _ in range(min(self._at_once, len(items)))]
            stack.callback(_abandon, workers)
            self._new.extend(workers)
            self._busy = len(workers)
            while self._busy:
                self._round()
        if failures:
            raise failures[min(failures)]
        return results

    def elsewhere(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.result_of(self._helpers.submit(function, *args, **kwargs))

    def result_of(self, future: Future[T]) -> T:
        waits = getcurrent()
        future.add_done_callback(lambda _: self._come_back(waits))
        self._main.switch()
        return future.result()

    def until_ready(self, connected: socket.socket, events: int) -> None:
        self._selector.register(connected, events, getcurrent())
        self._main.switch()

    def at_end_of_round(self, function: Callable[[], None]) -> None:
        self._at_end.setdefault(function, []).append(getcurrent())
        self._main.switch()

    def _come_back(self, waits: greenlet) -> None:
        """Called in any thread."""
        self._returned.append(waits)
        with suppress(OSError):  # the loop was interrupted, and is closed
            self._wire.send(b"!")

    def _round(self) -> None:
        if not self._ready:
            self._look()
        for _ in range(min(len(self._ready), ROUND)):
            self._ready.popleft().switch()
        at_end, self._at_end = self._at_end, {}
        for function, waits in at_end.items():
            function()
            self._ready.extendleft(reversed(waits))

    def _look(self) -> None:
        """Find those that may go on; only where there are none, begin another: connections are made one by one, and
        the first are answered meanwhile."""
        for key, _ in self._selector.select(0 if self._new else None):
            if key.fileobj is self._bell:
                self._bell.recv(HEARD)
                while self._returned:
                    self._ready.append(self._returned.popleft())
            else:
                self._selector.unregister(key.fileobj)
                self._ready.append(key.data)
        if self._new and not self._ready:
            self._ready.append(self._new.popleft())


def _abandon(workers: Sequence[greenlet]) -> None:
    """Have those that still wait give back what they hold."""
    for worker in workers:
        if worker:  # begun, and not at its end
            worker.throw()
