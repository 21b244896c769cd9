from __future__ import annotations

from collections.abc import Iterator

import pytest

from eval_factory.endpoint.limit_server import SharedRate, SharedSlots
from eval_factory.endpoint.limits import DECREASE, RateLimiter


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def slots_of(most: int, clock: Clock, *keys: str) -> SharedSlots[str]:
    slots: SharedSlots[str] = SharedSlots(most, clock=clock)
    for key in keys:
        slots.want(key)
    return slots


def test_so_many_are_in_and_the_others_follow_in_the_order_of_coming(clock: Clock) -> None:
    slots = slots_of(2, clock, "c", "a", "d", "b")
    assert list(slots.let_in()) == ["c", "a"]
    assert list(slots.let_in()) == []
    slots.leave("a")
    assert list(slots.let_in()) == ["d"]
    slots.leave("c")
    slots.leave("d")
    assert list(slots.let_in()) == ["b"]


def test_a_lower_rank_goes_before_whoever_came_first(clock: Clock) -> None:
    slots = slots_of(1, clock)
    for key, rank in (("late", 1), ("first", 0), ("second", 0), ("gone", 0), ("last", 2)):
        slots.want(key, rank)
    slots.leave("gone")
    order = []
    while let_in := list(slots.let_in()):
        order += let_in
        slots.leave(let_in[0])
    assert order == ["first", "second", "late", "last"]


def test_who_waits_no_more_is_not_let_in(clock: Clock) -> None:
    slots = slots_of(1, clock, "a", "b", "c")
    assert list(slots.let_in()) == ["a"]
    slots.leave("b")
    slots.leave("nobody")
    slots.leave("a")
    assert list(slots.let_in()) == ["c"]


def test_fewer_for_all_after_a_refusal_and_once_for_those_under_way_together(clock: Clock) -> None:
    slots = slots_of(10, clock, *"abcdefghij")
    assert len(list(slots.let_in())) == 10
    clock.now += 1
    slots.too_many("a", None)
    slots.too_many("b", None)  # began before
    for key in "abcdefghij":
        slots.leave(key)
        slots.want(key)
    assert len(list(slots.let_in())) == int(10 * DECREASE) == 7
    clock.now += 1
    slots.too_many("a", None)
    for key in "abcdefghij":
        slots.leave(key)
        slots.want(key)
    assert len(list(slots.let_in())) == int(10 * DECREASE * DECREASE) == 4


def test_more_again_as_answers_come_and_only_then(clock: Clock) -> None:
    slots = slots_of(2, clock, "a", "b")
    assert list(slots.let_in()) == ["a", "b"]
    slots.too_many("a", None)
    slots.leave("a")
    slots.leave("b")
    slots.leave("nobody", answered=True)
    for key in "cd":
        slots.want(key)
    assert list(slots.let_in()) == ["c"]
    slots.leave("d", answered=True)  # it had no place, and asked nothing
    slots.want("d")
    assert list(slots.let_in()) == []
    slots.leave("c", answered=True)
    slots.want("c")
    assert list(slots.let_in()) == ["d", "c"]


def test_nobody_is_let_in_while_the_endpoint_is_left_alone(clock: Clock) -> None:
    slots = slots_of(10, clock, "a", "b")
    assert slots.closed_for() == 0
    assert list(slots.let_in()) == ["a", "b"]
    slots.too_many("a", 5.0)
    slots.too_many("b", 2.0)  # the longer pause counts
    slots.leave("a")
    slots.want("c")
    assert list(slots.let_in()) == []
    clock.now += 4.5
    assert slots.closed_for() == 0.5
    assert list(slots.let_in()) == []
    slots.too_many("b", 1.0)
    assert slots.closed_for() == 1.0
    clock.now += 1.0
    assert slots.closed_for() == 0
    assert list(slots.let_in()) == ["c"]
    clock.now += 100
    slots.too_many("c", 3.0)
    assert slots.closed_for() == 3.0


def test_only_who_has_a_place_can_say_that_there_are_too_many(clock: Clock) -> None:
    slots = slots_of(1, clock, "a", "b")
    assert list(slots.let_in()) == ["a"]
    slots.too_many("b", 60.0)
    slots.too_many("nobody", 60.0)
    assert slots.closed_for() == 0


class Turns(RateLimiter):
    """Lets a request through after as many tries as it has tokens."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def tries(self, tokens: int) -> Iterator[None]:
        yield from [None] * tokens


def test_a_minute_is_given_in_the_order_of_coming() -> None:
    rate: SharedRate[str] = SharedRate(Turns())
    assert not rate.anybody_waits
    for key, tokens in (("a", 0), ("b", 2), ("c", 0), ("d", 1)):
        rate.want(key, tokens)
    assert list(rate.let_through()) == ["a"]  # c could, but b came before
    assert rate.anybody_waits
    rate.leave("d")
    rate.leave("nobody")
    assert list(rate.let_through()) == []
    assert list(rate.let_through()) == ["b", "c"]
    assert not rate.anybody_waits
