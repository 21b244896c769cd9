"""What headers ask for, in the forms that providers send; what is counted; the sending itself is in tests/faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from typing import Any

import pytest

from eval_factory.endpoint import limits
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.limits import MINUTE_MS, Patience, RateLimiter, asked_pause, estimated_tokens, granted_tokens


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
        {}, {"Retry-After": "soon"}, {"Retry-After": "9" * 5000}, {"Retry-After": "-3"}, {"Retry-After": "nan"},
        {"Retry-After": "1e999"}, {"Retry-After": "Fri, 31 Dec 99999 23:59:59 GMT"}, {"x-ratelimit-reset-tokens": "m"},
        {"x-ratelimit-reset-tokens": "2026-13-45T00:00:00Z"}, {"x-ratelimit-reset-tokens": ""}, {"retry-after-ms": "x"},
    ],
)  # fmt: skip
def test_what_says_nothing(headers: dict[str, str]) -> None:
    assert asked_pause(headers) is None


def test_points_in_time() -> None:
    later = datetime.now(timezone.utc) + timedelta(seconds=90)
    anthropic = {"anthropic-ratelimit-input-tokens-reset": later.strftime("%Y-%m-%dT%H:%M:%SZ")}
    assert 85 < (asked_pause(anthropic) or 0) <= 90
    assert 85 < (asked_pause({"Retry-After": formatdate(time.time() + 90, usegmt=True)}) or 0) <= 91
    assert 85 < (asked_pause({"X-RateLimit-Reset": str(int(time.time() + 90))}) or 0) <= 90
    assert 85 < (asked_pause({"X-RateLimit-Reset": str(int(time.time() * 1000 + 90_000))}) or 0) <= 90
    assert asked_pause({"X-RateLimit-Reset": "1700000000"}) == 0
    assert asked_pause({"anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z"}) == 0


def test_of_several_limits_that_which_is_used_up_counts() -> None:
    resets = {"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "50s"}
    assert asked_pause({**resets, "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "70"}) == 2
    assert asked_pause({**resets, "x-ratelimit-remaining-requests": "5", "x-ratelimit-remaining-tokens": "70"}) == 50
    both = {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "4"}
    assert asked_pause({**both, "anthropic-ratelimit-tokens-reset": "40"}) == 4


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    return clock


def test_a_limit_is_borne_until_its_window_has_passed(clock: Clock) -> None:
    patience = Patience()
    first = clock.now
    assert patience.bears(first)
    clock.now += limits.WINDOW_S - 1
    assert patience.bears(first)
    clock.now += 1
    assert not patience.bears(first)
    assert not patience.bears(clock.now)  # nor of another request


def test_and_for_longer_while_others_are_answered(clock: Clock) -> None:
    patience, first = Patience(), clock.now
    while clock.now - first < limits.PATIENCE_S:
        assert patience.bears(first)
        clock.now += 100
        patience.answered()
    assert not patience.bears(first)  # a prompt may be larger than the limit
    assert patience.bears(clock.now)


CHAT = {"messages": [{"role": "system", "content": "x" * 40}, {"role": "user", "content": "é" * 20}], "max_tokens": 7}


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (CHAT, 27), ({**CHAT, "n": 3}, 41), ({"prompt": "x" * 8, "max_completion_tokens": 5}, 7), ({}, 0),
        ({"prompt": "x" * 8, "max_tokens": None}, 2), ({"messages": ["odd", {"content": None}], "max_tokens": "9"}, 0),
    ],
)  # fmt: skip
def test_the_tokens_of_a_request_are_its_text_and_what_it_is_granted(body: Mapping[str, Any], tokens: int) -> None:
    assert estimated_tokens(body) == tokens


def test_granted() -> None:
    assert granted_tokens({"max_tokens": 5, "max_completion_tokens": 9}) == 9
    assert granted_tokens({"max_tokens": True}) == 0
    assert granted_tokens({"max_tokens": -5}) == 0
    assert granted_tokens({"max_tokens": 5, "n": 0}) == 5


def taken(limiter: RateLimiter, bodies: list[dict[str, Any]]) -> list[float]:
    """When each request was let through, in order of time."""
    times: list[float] = []

    def one(body: dict[str, Any]) -> None:
        limiter.wait(body, threading.Event())
        times.append(time.monotonic())

    with ThreadPoolExecutor(len(bodies)) as pool:
        list(pool.map(one, bodies))
    return sorted(times)


def test_so_many_requests_in_an_interval_whoever_asks() -> None:
    times = taken(RateLimiter(4, None, per_ms=200), [{}] * 12)
    assert all(later - earlier > 0.15 for earlier, later in zip(times, times[4:], strict=False))


def test_in_an_event_loop_others_go_on_while_one_waits_for_its_minute() -> None:
    limiter, stop, seen = RateLimiter(1, None, per_ms=300), threading.Event(), []

    def process(number: int) -> None:
        if number < 2:
            limiter.wait({}, stop)
        seen.append(number)

    map_at_once(process, range(6), 2)
    assert seen[-1] in (0, 1), "whoever came second at the limiter"
    assert sorted(seen) == list(range(6))


def test_so_many_tokens_in_an_interval() -> None:
    times = taken(RateLimiter(None, 5000, per_ms=200), [{"max_tokens": 2400}] * 6)
    assert all(later - earlier > 0.15 for earlier, later in zip(times, times[2:], strict=False))


def test_a_request_that_is_larger_than_the_limit_takes_it_whole() -> None:
    times = taken(RateLimiter(100, 1000, per_ms=200), [{"max_tokens": 10**9}] * 2)
    assert times[1] - times[0] > 0.15


def test_who_has_no_limit_does_not_wait() -> None:
    RateLimiter(None, None).wait({"max_tokens": 10**9}, threading.Event())


def test_whoever_waits_for_a_turn_is_let_go_when_all_is_over() -> None:
    limiter, stop = RateLimiter(1, None), threading.Event()
    limiter.wait({}, stop)
    waiting = threading.Thread(target=limiter.wait, args=({}, stop))
    waiting.start()
    stop.set()
    waiting.join(10)
    assert not waiting.is_alive()


def test_each_step_tries_once_more_until_it_ends() -> None:
    assert 60_000 < MINUTE_MS <= 61_000, "the endpoint counts arrivals"
    limiter = RateLimiter(1, 4000, per_ms=60_000)
    assert list(limiter.tries(4000)) == []
    waiting = limiter.tries(1)
    assert [next(waiting), next(waiting), next(waiting)] == [None, None, None]
    by_tokens = RateLimiter(None, 4000)
    assert list(by_tokens.tries(2000)) == list(by_tokens.tries(2000)) == []
    assert next(by_tokens.tries(1), "through") is None
