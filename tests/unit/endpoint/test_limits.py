"""Whose turn it is; what headers ask for, in the forms that providers send. The sending itself is in tests/faults."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from typing import Any

import pytest

from eval_factory.endpoint import limits
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.limits import (
    DECREASE,
    MINUTE_S,
    Limit,
    LocalAdmission,
    asked_pause,
    max_answer_tokens,
)
from in_the_loop import insiders


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"llm_provider-retry-after": "60"}, 60.0),
        ({"LLM_Provider-Retry-After-Ms": "250"}, 0.25),
        ({"retry-after": "3", "llm_provider-retry-after": "60"}, 3.0),
        ({"x-ratelimit-reset-requests": "1s"}, 1.0),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-reset-requests": "12"}, 12.0),
        ({"llm_provider-x-ratelimit-reset-requests": "8s"}, 8.0),
        ({"x-ratelimit-reset": "9"}, 9.0),
        ({"ratelimit-reset": "11", "Retry-After": "soon"}, 11.0),
    ],
)
def test_what_the_headers_ask_for(headers: dict[str, str], seconds: float) -> None:
    assert asked_pause(headers) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry-After": "soon"},
        {"Retry-After": "9" * 5000},
        {"Retry-After": "-3"},
        {"Retry-After": "nan"},
        {"Retry-After": "1e999"},
        {"Retry-After": "Fri, 31 Dec 99999 23:59:59 GMT"},
        {"x-ratelimit-reset-tokens": "m"},
        {"x-ratelimit-reset-tokens": "2026-13-45T00:00:00Z"},
        {"x-ratelimit-reset-tokens": ""},
        {"retry-after-ms": "x"},
    ],
)
def test_what_says_nothing(headers: dict[str, str]) -> None:
    assert asked_pause(headers) is None


def test_points_in_time() -> None:
    later = datetime.now(timezone.utc) + timedelta(seconds=90)
    anthropic = {"anthropic-ratelimit-input-tokens-reset": later.strftime("%Y-%m-%dT%H:%M:%SZ")}
    http_date = {"Retry-After": formatdate(time.time() + 90, usegmt=True)}
    seconds, milliseconds = (
        {"X-RateLimit-Reset": str(int(time.time() * by + 90 * by))} for by in (1, 1000)
    )
    assert all(
        85 < (asked_pause(one) or 0) <= 91 for one in (anthropic, http_date, seconds, milliseconds)
    )
    assert asked_pause({"X-RateLimit-Reset": "1700000000"}) == 0
    assert asked_pause({"anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z"}) == 0


def test_of_several_limits_that_which_is_used_up_counts() -> None:
    resets = {"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "50s"}
    assert asked_pause(resets) == 50
    assert (
        asked_pause(
            {**resets, "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "70"}
        )
        == 2
    )
    assert asked_pause({**resets, "x-ratelimit-remaining-requests": "5"}) == 50
    day = {"x-ratelimit-reset-requests": "5h0m0s", "x-ratelimit-remaining-requests": "900"}
    assert (
        asked_pause(
            {**day, "x-ratelimit-remaining-tokens": "70", "x-ratelimit-reset-tokens": "50s"}
        )
        is None
    )
    both = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "4",
    }
    assert asked_pause({**both, "anthropic-ratelimit-tokens-reset": "40"}) == 4


CHAT = {
    "messages": [{"role": "system", "content": "x" * 40}, {"role": "user", "content": "é" * 20}],
    "max_tokens": 7,
}


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (CHAT, 27),
        ({**CHAT, "n": 3}, 41),
        ({"prompt": "x" * 8, "max_completion_tokens": 5}, 7),
        ({}, 0),
        ({"prompt": "x" * 8, "max_tokens": None}, 2),
        ({"messages": ["odd", {"content": None}], "max_tokens": "9"}, 0),
    ],
)
def test_the_tokens_of_a_request_are_its_text_and_what_it_is_granted(
    body: Mapping[str, Any], tokens: int
) -> None:
    assert limits.estimated_tokens(body) == tokens


def test_granted() -> None:
    assert max_answer_tokens({"max_tokens": 5, "max_completion_tokens": 9}) == 9
    assert max_answer_tokens({"max_tokens": True}) == max_answer_tokens({"max_tokens": -5}) == 0
    assert max_answer_tokens({"max_tokens": 5, "n": 0}) == 5


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def limit_of(most: int, clock: Clock, *keys: str) -> Limit[str]:
    limit: Limit[str] = Limit(EndpointLimits(most), clock=clock)
    for key in keys:
        limit.acquire(key)
    return limit


def granted(limit: Limit[str]) -> str:
    return "".join(limit.granted())


def test_so_many_are_in_and_the_others_follow_in_the_order_of_coming(clock: Clock) -> None:
    limit = limit_of(2, clock, *"cadb")
    assert (granted(limit), granted(limit)) == ("ca", "")
    limit.release("a")
    assert granted(limit) == "d"
    limit.release("c")
    limit.release("d")
    assert granted(limit) == "b"


def test_a_lower_priority_goes_before_whoever_came_first(clock: Clock) -> None:
    limit = limit_of(1, clock)
    for key, priority in (("late", 1), ("first", 0), ("second", 0), ("gone", 0), ("last", 2)):
        limit.acquire(key, priority=priority)
    limit.release("gone")
    order = []
    while key := granted(limit):
        order.append(key)
        limit.release(key)
    assert order == ["first", "second", "late", "last"]


def test_fewer_for_all_after_a_refusal_and_once_for_those_under_way_together(clock: Clock) -> None:
    limit = limit_of(10, clock, *"abcdefghij")
    assert len(granted(limit)) == 10
    for refused, left in (("ab", int(10 * DECREASE)), ("a", int(10 * DECREASE * DECREASE))):
        clock.now += 1
        for key in refused:
            limit.too_many(key, None)
        for key in "abcdefghij":
            limit.release(key)
            limit.acquire(key)
        assert len(granted(limit)) == left


def test_more_again_as_answers_come_and_only_then(clock: Clock) -> None:
    limit = limit_of(2, clock, *"ab")
    assert granted(limit) == "ab"
    limit.too_many("a", None)
    limit.release("a")
    limit.release("b")
    limit.release("nobody", answered=True)
    limit.acquire("c")
    limit.acquire("d")
    assert granted(limit) == "c"
    limit.release("d", answered=True)  # it had no slot, and asked nothing
    limit.acquire("d")
    assert granted(limit) == ""
    limit.release("c", answered=True)
    limit.acquire("c")
    assert granted(limit) == "dc"


def test_nobody_gets_a_slot_in_a_pause(clock: Clock) -> None:
    limit = limit_of(10, clock, *"ab")
    assert granted(limit) == "ab"
    limit.too_many("a", 5.0)
    limit.too_many("b", 2.0)  # the longer pause counts
    limit.release("a")
    assert limit.seconds_to_next() is None, "nobody waits"
    limit.acquire("c")
    assert (granted(limit), limit.seconds_to_next()) == ("", 5.0)
    clock.now += 4.5
    assert (granted(limit), limit.seconds_to_next()) == ("", 0.5)
    limit.too_many("b", 1.0)
    assert limit.seconds_to_next() == 1.0
    clock.now += 1.0
    assert (limit.seconds_to_next(), granted(limit)) == (0.0, "c")


def test_only_who_has_a_slot_can_say_that_there_are_too_many_and_who_waits_no_more_gets_none(
    clock: Clock,
) -> None:
    limit = limit_of(1, clock, *"abc")
    assert granted(limit) == "a"
    limit.too_many("b", 60.0)
    limit.too_many("nobody", 60.0)
    assert limit.seconds_to_next() is None
    for key in ("b", "nobody", "a"):
        limit.release(key)
    assert granted(limit) == "c"


@pytest.mark.parametrize(
    ("requests", "tokens", "asked", "at_once"),
    [
        (4, None, [0] * 12, 4),
        (None, 5000, [2400] * 6, 2),
        (100, 1000, [10**9] * 3, 1),
        (2, 5000, [1] * 6, 2),
        (None, 5000, [0] * 9, 9),
        (None, 3, [1] * 9, 3),
    ],
)
def test_so_much_a_minute(
    requests: int | None, tokens: int | None, asked: list[int], at_once: int, clock: Clock
) -> None:
    """What is larger than the limit takes all of it."""
    limit: Limit[int] = Limit(EndpointLimits(99, requests, tokens), clock=clock)
    for number, of_request in enumerate(asked):
        limit.acquire(number, of_request)
    times = list[float]()
    while True:
        now = list(limit.granted())
        assert now == list(range(len(times), len(times) + len(now))), "in the order of coming"
        times += [clock.now] * len(now)
        if (seconds := limit.seconds_to_next()) is None:
            break
        assert seconds > 0
        clock.now += seconds
    assert len(times) == len(asked)
    assert all(
        later - earlier >= MINUTE_S for earlier, later in zip(times, times[at_once:], strict=False)
    )
    assert times[-1] - times[0] <= MINUTE_S * ((len(asked) - 1) // at_once) + 0.01
    assert 60 < MINUTE_S <= 61, "the endpoint counts arrivals"


def test_a_minute_slides(clock: Clock) -> None:
    limit: Limit[str] = Limit(EndpointLimits(9, None, 10), clock=clock)
    for key, tokens, seconds, wait in (
        ("a", 6, 0, None),
        ("b", 4, 20, None),
        ("c", 5, 10, MINUTE_S - 30),
    ):
        clock.now += seconds
        limit.acquire(key, tokens)
        assert (granted(limit), limit.seconds_to_next()) == (key if wait is None else "", wait)
    limit.acquire("d", 1)
    assert granted(limit) == "", "nobody passes who came first"
    clock.now += MINUTE_S - 30
    assert granted(limit) == "cd"


def test_who_waits_no_more_for_a_minute_holds_nobody_up(clock: Clock) -> None:
    limit: Limit[str] = Limit(EndpointLimits(9, None, 10), clock=clock)
    for key, tokens in (("a", 6), ("b", 6), ("c", 4)):
        limit.acquire(key, tokens)
    assert granted(limit) == "a"
    limit.release("b")
    assert granted(limit) == "c"


def waits(admission: LocalAdmission) -> threading.Thread:
    """A thread that asks for a slot, and for its minute."""

    def ask() -> None:
        with admission.slot({"max_tokens": 10}):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(0.1)
    return thread


def test_no_more_than_the_limit_are_inside_whoever_asks() -> None:
    admission = LocalAdmission(EndpointLimits(3))
    inside = 0
    seen = []

    def work(_: int) -> None:
        nonlocal inside
        with admission.slot():
            inside += 1
            seen.append(inside)
            time.sleep(0.01)
            inside -= 1

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, range(20)))
    assert (len(seen), max(seen)) == (20, 3)
    seen = insiders(admission.slot)
    assert (len(seen), max(seen)) == (20, 3)


def test_fewer_at_once_after_a_refusal_and_more_after_an_answer() -> None:
    admission = LocalAdmission(EndpointLimits(2))
    with contextlib.suppress(KeyError), admission.slot() as slot:
        admission.too_many(slot, 100.0)  # who was refused waits alone
        raise KeyError
    with admission.slot():
        waiting = waits(admission)
        assert waiting.is_alive()
    waiting.join(30)
    with admission.slot():  # both were answered
        waits(admission).join(30)


def test_in_an_event_loop_others_go_on_while_one_waits_for_its_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MINUTE_S", 0.3)
    admission = LocalAdmission(EndpointLimits(9, 1))
    seen = list[int]()

    def process(number: int) -> None:
        with admission.slot({}) if number < 2 else contextlib.nullcontext():
            seen.append(number)

    map_at_once(process, range(6), 2)
    assert seen[-1] in (0, 1), "whoever came second"
    assert sorted(seen) == list(range(6))


def test_after_the_stop_nobody_waits() -> None:
    admission = LocalAdmission(EndpointLimits(1, None, 10))
    with ExitStack() as stack:
        stack.enter_context(admission.slot({"max_tokens": 10}))
        for_a_minute = waits(admission)
        for_a_slot = waits(admission)
        assert (for_a_minute.is_alive(), for_a_slot.is_alive()) == (True, True)
        stack.callback(for_a_minute.join, 30)
        stack.callback(for_a_slot.join, 30)
        admission.stop()
    assert (for_a_minute.is_alive(), for_a_slot.is_alive()) == (False, False)
    with LocalAdmission(EndpointLimits(1)).slot({"max_tokens": 10**9}):  # no limit, no wait
        pass
