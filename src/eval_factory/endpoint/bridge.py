"""Lets plain functions wait for work that an asyncio loop does, because HELM calls plain functions.

A process has a single loop, which runs in its own thread. Plain threads block while they wait for
the loop. Functions that `map_at_once` calls run in the loop's thread, in greenlets: while a
greenlet waits, other greenlets run (SQLAlchemy uses the same pattern). Greenlets are faster than
threads: switching between a hundred threads takes as much CPU time as their requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

_start_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def the_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, and start it first if necessary."""
    global _loop
    with _start_lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
            # Assign last: after an interruption of the lines above, `_loop` must not be a loop that
            # no thread runs.
            _loop = loop
        return _loop


def _reset_after_fork() -> None:
    """Forget the loop in a forked process, because a fork does not copy the loop's thread."""
    global _loop, _start_lock
    _loop = None
    _start_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


class _LoopGreenlet(greenlet):  # type: ignore[misc]
    """A greenlet that runs a plain function in the loop's thread."""

    outcome: Any = None
    """The (result, error) of the work that the greenlet waited for; one of the two is None.

    `wait_for` clears the outcome at once, so that a large answer does not stay in memory.
    """


def is_in_loop() -> bool:
    """Return True if the caller runs in a greenlet of the loop's thread."""
    return isinstance(getcurrent(), _LoopGreenlet)


def wait_for(work: Coroutine[Any, Any, T] | Future[T]) -> T:
    """Wait for work, and return its result; the errors of the work are raised."""
    current = getcurrent()
    if isinstance(work, Future):
        if not isinstance(current, _LoopGreenlet) or work.done():
            return work.result()
        # A cancelled greenlet must not cancel a future for which other callers may wait too.
        awaited: Awaitable[T] = asyncio.shield(asyncio.wrap_future(work))
    elif isinstance(current, _LoopGreenlet):
        awaited = work
    else:
        future = asyncio.run_coroutine_threadsafe(work, the_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
    # Hand the work to `_run`, which awaits it, stores the outcome and switches back.
    current.parent.switch(awaited)
    (value, error) = current.outcome
    current.outcome = None
    if error is not None:
        try:
            raise error
        finally:
            del error  # else this frame and the error's traceback would refer to each other
    return value  # type: ignore[no-any-return]


def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a slow function that does not use the loop, without blocking the loop.

    A caller in a greenlet of the loop waits while another thread runs the function; any other
    caller runs the function itself.
    """
    if is_in_loop():
        return wait_for(asyncio.to_thread(function, *args, **kwargs))
    return function(*args, **kwargs)


def give_way() -> None:
    """Let all other greenlets run first that can run now."""
    if is_in_loop():
        wait_for(asyncio.sleep(0))


def pause(stop: threading.Event, seconds: float) -> None:
    """Wait for `seconds`, but return soon after `stop` is set."""
    if is_in_loop():
        wait_for(_pause(stop, seconds))
    else:
        stop.wait(seconds)


async def _pause(stop: threading.Event, seconds: float) -> None:
    """Wait in the loop as `pause` does; look at `stop` every 0.1 seconds."""
    end = time.monotonic() + seconds
    while not stop.is_set():
        remaining = end - time.monotonic()
        if remaining <= 0:
            return
        await asyncio.sleep(min(0.1, remaining))


def map_at_once(process: Callable[[Item], T], items: Sequence[Item], at_once: int) -> list[T]:
    """Call `process` with each item, and return the results in the order of the items.

    `process` may wait by the functions of this module, and may call `map_at_once` itself. Each call
    gets a copy of the caller's context variables; a greenlet has no context variables of its own.

    Args:
        process: is called with each item.
        items: the items.
        at_once: the maximum number of calls at the same time.

    Raises:
        Exception: the error of the first item, in their order, whose call failed. After an error,
            no further item is started, and the running calls are awaited.
        BaseException: an interruption of a call or of this thread. It is raised at once, and the
            running calls are cancelled.
    """
    calls = _Calls(process, items)
    running = calls.run(greenlets=min(at_once, len(items)))
    try:
        wait_for(running)
    except BaseException:
        # The interruption hit this function, not one of its calls. `wait_for` has cancelled the
        # calls. In a greenlet, `wait_for` has also awaited their end; a plain thread awaits it now.
        if not is_in_loop():
            calls.wait_for_end(running)
        raise
    if calls.interruption is not None:
        raise calls.interruption
    if calls.failures:
        first_failed = min(calls.failures)
        raise calls.failures[first_failed]
    return calls.results


class _Calls(Generic[Item, T]):
    """The calls of a function with many items, which several greenlets make.

    Attributes:
        results: the results of the calls, in the order of the items.
        failures: the errors of the failed calls, by the numbers of their items.
        interruption: the interruption of a call, such as a KeyboardInterrupt; None without one.
    """

    def __init__(self, process: Callable[[Item], T], items: Sequence[Item]) -> None:
        self.results: list[Any] = [None] * len(items)
        self.failures: dict[int, Exception] = {}
        self.interruption: BaseException | None = None
        self._process = process
        self._remaining = iter(enumerate(items))
        self._context = copy_context()
        self._has_begun = threading.Event()  # set when the loop begins `run`
        self._has_ended = threading.Event()  # set when all greenlets of `run` have ended

    async def run(self, greenlets: int) -> None:
        """Make the calls in this number of greenlets, and wait until all greenlets have ended.

        An interruption of a call is stored and not raised, because raising it would end the loop.
        """
        self._has_begun.set()
        tasks = [asyncio.ensure_future(_run(self._call_until_the_end)) for _ in range(greenlets)]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:  # of a greenlet after an interruption, or of this coroutine
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.interruption is None:
                raise
        finally:
            self._has_ended.set()

    def _call_until_the_end(self) -> None:
        """Make one call after another, until no item remains or a call fails.

        Raises:
            asyncio.CancelledError: a call was interrupted, or this greenlet was cancelled.
        """
        try:
            for number, item in self._remaining:  # all greenlets share the iterator
                if self.failures:
                    return
                self._call(number, item)
        except (asyncio.CancelledError, GreenletExit):
            raise
        except BaseException as error:
            self.interruption = self.interruption or error
            # This ends the greenlet's task as a cancelled one, so that `run` cancels the others.
            raise asyncio.CancelledError from None

    def _call(self, number: int, item: Item) -> None:
        """Call the function with an item, and store the result or the error."""
        try:
            self.results[number] = self._context.copy().run(self._process, item)
        except Exception as error:
            self.failures[number] = error

    def wait_for_end(self, running: Coroutine[Any, Any, None]) -> None:
        """Wait until the cancelled coroutine `running` of `run` has ended."""
        # The loop works in the order in which it gets its work: if the loop got `running`, then
        # `running` has begun before this sleep ends.
        wait_for(asyncio.sleep(0))
        if self._has_begun.is_set():
            self._has_ended.wait()
        else:  # the interruption came before the loop got the coroutine
            running.close()


async def _run(function: Callable[[], None]) -> None:
    """Call a function in a greenlet, and await the work for which it waits."""
    runner = _LoopGreenlet(function)
    # `switch` runs the function until it calls `wait_for`, and returns the work to await; after the
    # end of the function, `runner` is dead.
    awaited: Awaitable[Any] = runner.switch()
    while not runner.dead:
        try:
            runner.outcome = (await awaited, None)
        except BaseException as error:  # also a cancellation: `wait_for` raises it in the function
            runner.outcome = (None, error)
        awaited = runner.switch()
