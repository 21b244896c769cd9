"""Whoever waits has a thread of its own where no event loop runs it."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from eval_factory.endpoint.event_loop import EventLoop

from eval_factory.endpoint import waiting
from in_event_loop import in_a_loop


def test_without_a_loop_it_is_done_here() -> None:
    assert waiting.running_loop() is None
    assert waiting.elsewhere(threading.current_thread) is threading.current_thread()
    assert waiting.elsewhere(int, "11", base=2) == 3
    done: Future[str] = Future()
    done.set_result("done")
    assert waiting.result_of(done) == "done"


def test_in_a_loop_it_is_done_in_another_thread() -> None:
    """Which no loop runs."""

    def look() -> tuple[threading.Thread, waiting.Loop | None]:
        return threading.current_thread(), waiting.running_loop()

    here, loop = in_a_loop(look)
    assert here is threading.current_thread()
    assert isinstance(loop, EventLoop)
    there, none = in_a_loop(lambda: waiting.elsewhere(look))
    assert there is not threading.current_thread()
    assert none is None
    assert in_a_loop(lambda: waiting.elsewhere(int, "11", base=2)) == 3
    assert waiting.running_loop() is None


def test_what_is_raised_comes_here() -> None:
    failed: Future[str] = Future()
    failed.set_exception(KeyError("future"))
    with pytest.raises(KeyError, match="future"):
        waiting.result_of(failed)
    with pytest.raises(KeyError, match="future"):
        in_a_loop(lambda: waiting.result_of(failed))
    with pytest.raises(ValueError, match="invalid literal"):
        in_a_loop(lambda: waiting.elsewhere(int, "x"))


def test_a_loop_within_a_loop_gives_back_the_first() -> None:
    def within() -> tuple[bool, bool]:
        outer = waiting.running_loop()
        inner = in_a_loop(waiting.running_loop)
        return inner is outer, waiting.running_loop() is outer

    assert in_a_loop(within) == (False, True)
