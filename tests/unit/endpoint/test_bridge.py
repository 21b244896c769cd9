"""Plain functions that wait: of many threads, and side by side in the loop's."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import Future

import pytest

from eval_factory.endpoint import bridge
from eval_factory.endpoint.bridge import map_at_once
from in_the_loop import in_the_loop

ENOUGH_S = 60


@pytest.mark.parametrize("items", [0, 1, 3, 100])
def test_results_are_in_the_order_of_the_items(items: int) -> None:
    """Whoever comes back first; and in one thread."""
    threads = set()

    def process(number: int) -> int:
        threads.add(threading.current_thread())
        if number % 3:
            bridge.run_in_thread(abs, number)
        return number * number

    assert map_at_once(process, range(items), 8) == [number * number for number in range(items)]
    assert len(threads) == min(1, items)


@pytest.mark.parametrize(("at_once", "items", "most"), [(1, 5, 1), (4, 20, 4), (8, 3, 3)])
def test_so_many_go_on_at_once(at_once: int, items: int, most: int) -> None:
    inside = 0
    seen = []
    all_are_in: Future[None] = Future()

    def process(_: int) -> None:
        nonlocal inside
        inside += 1
        seen.append(inside)
        if inside == most and not all_are_in.done():
            all_are_in.set_result(None)
        bridge.wait_for(all_are_in)
        inside -= 1

    map_at_once(process, range(items), at_once)
    assert (len(seen), max(seen)) == (items, most)


def test_the_first_failure_by_the_order_of_items_is_raised() -> None:
    """Those that are under way are waited for; no other is started, not by those either that have done nothing so far."""
    seen = []
    late = Future[None]()

    def process(number: int) -> None:
        seen.append(f"begins {number}")
        if number < 2:
            bridge.wait_for(late)
        if number == 0:
            raise KeyError("the first item")
        if number == 2:
            threading.Timer(0.05, late.set_result, (None,)).start()
            raise ValueError("failed first")
        seen.append(f"ends {number}")

    with pytest.raises(KeyError, match="the first item"):
        map_at_once(process, range(10), 3)
    assert seen == ["begins 0", "begins 1", "begins 2", "ends 1"]
    begun = []

    def fails(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        map_at_once(fails, range(20), 8)
    assert begun == [0]


@pytest.mark.parametrize("way", [KeyboardInterrupt, SystemExit, "as by Ctrl-C"])
def test_what_ends_a_program_ends_it_at_once(
    way: type[BaseException] | str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for what the others wait for, and what they hold is given back; the loop goes on."""
    given_back = []
    late = Future[None]()

    def process(number: int) -> None:
        try:
            if number == 3 and isinstance(way, type):
                raise way
            if number == 3:  # while the loop's thread works
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            bridge.wait_for(late)
        finally:
            given_back.append(number)

    with pytest.raises(way if isinstance(way, type) else KeyboardInterrupt):
        map_at_once(process, range(10), 4)
    assert sorted(given_back) == [0, 1, 2, 3]
    late.set_result(None)  # what comes after it is nobody's
    gc.collect()
    assert caplog.text == ""
    assert map_at_once(abs, [-1], 1) == [1]


def test_what_is_called_side_by_side_may_call_others_so() -> None:
    met = threading.Barrier(4)

    def process(number: int) -> list[int]:
        return map_at_once(
            lambda other: bridge.run_in_thread(met.wait, ENOUGH_S) * 0 + number * other, range(2), 2
        )

    assert map_at_once(process, range(2), 2) == [[0, 0], [0, 1]]


def test_without_the_loop_it_is_done_here_and_in_the_loop_in_another_thread() -> None:
    assert not bridge.is_in_loop()
    assert bridge.run_in_thread(threading.current_thread) is threading.current_thread()
    done: Future[str] = Future()
    done.set_result("done")
    assert bridge.wait_for(done) == "done"
    here, is_inside = in_the_loop(lambda: (threading.current_thread(), bridge.is_in_loop()))
    there, too = in_the_loop(
        lambda: bridge.run_in_thread(lambda: (threading.current_thread(), bridge.is_in_loop()))
    )
    assert (is_inside, too) == (True, False)
    assert len({here, there, threading.current_thread()}) == 3


def test_what_is_raised_comes_here() -> None:
    failed: Future[str] = Future()
    failed.set_exception(KeyError("future"))

    async def fails() -> None:
        raise LookupError("coroutine")

    for run in (lambda function: function(), in_the_loop):
        with pytest.raises(KeyError, match="future"):
            run(lambda: bridge.wait_for(failed))
        with pytest.raises(ValueError, match="invalid literal"):
            run(lambda: bridge.run_in_thread(int, "x"))
        with pytest.raises(LookupError, match="coroutine"):
            run(lambda: bridge.wait_for(fails()))


def test_nobody_holds_what_was_waited_for() -> None:
    """An answer may be large, and who asked may pause after it."""

    class Answer:
        pass

    async def answer() -> Answer:
        return Answer()

    def process(_: int) -> int:
        bridge.wait_for(answer())
        bridge.give_way()
        return sum(isinstance(one, Answer) for one in gc.get_objects())

    gc.disable()
    try:
        assert map_at_once(process, range(3), 3) == [0, 0, 0]
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_pause_ends_when_it_is_told_to(way: str) -> None:
    stop = threading.Event()
    run = in_the_loop if way == "loop" else (lambda function: function())
    begun = time.monotonic()
    run(lambda: bridge.pause(stop, 0.05))
    assert time.monotonic() - begun >= 0.05
    threading.Timer(0.05, stop.set).start()
    run(lambda: bridge.pause(stop, ENOUGH_S))
    assert time.monotonic() - begun < ENOUGH_S / 2


def test_others_go_on_while_one_pauses() -> None:
    seen: list[int] = []

    def process(number: int) -> None:
        if number == 0:
            bridge.pause(threading.Event(), 0.2)
        seen.append(number)

    map_at_once(process, range(5), 2)
    assert seen == [1, 2, 3, 4, 0]


def test_an_interruption_before_anything_has_begun_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed_over = asyncio.run_coroutine_threadsafe

    def interrupted_once(*_: object) -> Future[None]:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", handed_over)
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        map_at_once(abs, [-1], 1)
    assert map_at_once(abs, [-1], 1) == [1]
