"""Many requests in one thread."""

from __future__ import annotations

import gc
import selectors
import socket
import threading
from concurrent.futures import Future
from itertools import chain
from typing import Any

import pytest
from eval_factory.endpoint.event_loop import ROUND, EventLoop

from eval_factory.endpoint import waiting

ENOUGH_S = 60


def loop_here() -> waiting.Loop:
    loop = waiting.running_loop()
    assert loop is not None
    return loop


def done(value: Any = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("items", [0, 1, 3, 100])
def test_results_are_in_the_order_of_the_items(items: int) -> None:
    """Whoever comes back first."""
    threads = set()

    def process(number: int) -> int:
        threads.add(threading.current_thread())
        if number % 3:
            waiting.elsewhere(abs, number)
        return number * number

    assert EventLoop(8).run(process, range(items)) == [number * number for number in range(items)]
    assert threads <= {threading.current_thread()}


@pytest.mark.parametrize(("at_once", "items", "most"), [(1, 5, 1), (4, 20, 4), (8, 3, 3)])
def test_so_many_go_on_at_once(at_once: int, items: int, most: int) -> None:
    inside, seen = 0, []
    all_are_in: Future[None] = Future()

    def process(_: int) -> None:
        nonlocal inside
        inside += 1
        seen.append(inside)
        if inside == most and not all_are_in.done():
            all_are_in.set_result(None)
        waiting.result_of(all_are_in)
        inside -= 1

    EventLoop(at_once).run(process, range(items))
    assert (len(seen), max(seen)) == (items, most)


def test_each_may_wait_in_a_thread_of_its_own() -> None:
    """None of them waits for another's thread."""
    everybody = threading.Barrier(16)
    assert sorted(EventLoop(16).run(lambda _: waiting.elsewhere(everybody.wait, ENOUGH_S), range(16))) == list(
        range(16)
    )


def test_who_can_go_on_goes_before_another_begins() -> None:
    seen: list[str] = []

    def process(number: int) -> None:
        seen.append(f"begins {number}")
        waiting.result_of(done())
        seen.append(f"ends {number}")

    EventLoop(3).run(process, range(3))
    assert seen == [f"{what} {number}" for number in range(3) for what in ("begins", "ends")]


def test_the_first_failure_by_the_order_of_items_is_raised() -> None:
    """Those that are under way are waited for; no other is begun."""
    seen, late = [], Future[None]()

    def process(number: int) -> None:
        seen.append(f"begins {number}")
        if number == 0:
            waiting.result_of(late)
            raise KeyError("the first item")
        if number == 1:
            waiting.result_of(late)
        if number == 2:
            threading.Timer(0.05, late.set_result, (None,)).start()
            raise ValueError("failed first")
        seen.append(f"ends {number}")

    with pytest.raises(KeyError, match="the first item"):
        EventLoop(3).run(process, range(10))
    assert seen == ["begins 0", "begins 1", "begins 2", "ends 1"]
    assert waiting.running_loop() is None


def test_after_a_failure_nothing_is_begun() -> None:
    """Not by those either that have done nothing so far."""
    begun = []

    def process(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        EventLoop(8).run(process, range(20))
    assert begun == [0]


def test_an_interruption_ends_it_at_once() -> None:
    """Nobody waits for what the others wait for, and what they hold is given back."""
    given_back = []

    def process(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt
        try:
            waiting.result_of(Future[None]())
        finally:
            given_back.append(number)

    with pytest.raises(KeyboardInterrupt):
        EventLoop(4).run(process, range(10))
    gc.collect()
    assert sorted(given_back) == [0, 1, 2]
    assert waiting.running_loop() is None


def test_what_comes_after_an_interruption_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    late: Future[None] = Future()

    def process(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt
        waiting.result_of(late)

    with pytest.raises(KeyboardInterrupt):
        EventLoop(2).run(process, range(2))
    late.set_result(None)
    assert caplog.text == ""


def test_it_waits_for_what_a_socket_brings_and_takes() -> None:
    near, far = socket.socketpair()
    with near, far:
        seen: list[Any] = []

        def process(number: int) -> None:
            if number == 0:
                loop_here().until_ready(near, selectors.EVENT_READ)
                seen.append(near.recv(9))
                loop_here().until_ready(near, selectors.EVENT_READ)
                seen.append(near.recv(9))
            else:
                loop_here().until_ready(far, selectors.EVENT_WRITE)
                seen.append("may write")
                far.send(b"one")
                waiting.result_of(done())
                waiting.result_of(done())
                far.send(b"two")

        EventLoop(2).run(process, range(2))
    assert seen == ["may write", b"one", b"two"]


def test_the_end_of_a_round_comes_once_for_all_that_wait_for_it() -> None:
    """A round has so many at most: the first do not wait until all others came."""
    waits: list[int] = []
    together: list[list[int]] = []
    ended: list[int] = []

    def end() -> None:
        together.append(list(waits))
        waits.clear()

    def process(number: int) -> None:
        if number == 2 * ROUND:  # the last that begins: all others wait
            gate.set_result(None)
            return
        waiting.result_of(gate)
        waits.append(number)
        loop_here().at_end_of_round(end)
        ended.append(number)

    gate: Future[None] = Future()
    EventLoop(2 * ROUND + 1).run(process, range(2 * ROUND + 1))
    assert ended == list(chain.from_iterable(together))
    assert sorted(ended) == list(range(2 * ROUND))
    assert max(map(len, together)) == ROUND


def test_different_ends_of_a_round_are_each_called() -> None:
    called: list[int] = []
    ends = [lambda: called.append(0), lambda: called.append(1)]

    def process(number: int) -> None:
        if number == 4:  # the last that begins: all others wait
            gate.set_result(None)
            return
        waiting.result_of(gate)
        loop_here().at_end_of_round(ends[number % 2])

    gate: Future[None] = Future()
    EventLoop(5).run(process, range(5))
    assert sorted(called) == [0, 1]


def test_what_the_end_of_a_round_raises_ends_it() -> None:
    def end() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        EventLoop(2).run(lambda _: loop_here().at_end_of_round(end), range(4))


def test_many_threads_that_come_back_at_once_are_all_seen() -> None:
    """A bell that rang is not rung again until it was heard."""
    for _ in range(20):
        start = threading.Barrier(24)

        def process(number: int, start: threading.Barrier = start) -> int:
            for _ in range(5):
                waiting.elsewhere(start.wait, ENOUGH_S)
            return number

        assert EventLoop(24).run(process, range(24)) == list(range(24))


def test_it_leaves_no_thread_and_no_open_file() -> None:
    before = threading.active_count()
    loop = EventLoop(4)
    loop.run(lambda number: waiting.elsewhere(abs, number), range(8))
    assert threading.active_count() == before
    assert loop._bell.fileno() == loop._wire.fileno() == -1
    assert loop._selector.get_map() is None
