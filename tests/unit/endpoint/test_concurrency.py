from __future__ import annotations

import threading
import time

from eval_factory.endpoint.limits import DECREASE, AdaptiveConcurrency, AdaptiveLimit
from in_the_loop import insiders


def test_no_more_than_the_limit_are_inside() -> None:
    concurrency = AdaptiveConcurrency(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with concurrency.slot():
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == 3


def test_no_more_than_the_limit_are_inside_in_an_event_loop_either() -> None:
    seen = insiders(AdaptiveConcurrency(3).slot)
    assert (len(seen), max(seen)) == (20, 3)


def test_down_once_for_requests_that_were_under_way_together() -> None:
    concurrency = AdaptiveConcurrency(10)
    with concurrency.slot() as first, concurrency.slot() as second:
        concurrency.too_many(first)
        concurrency.too_many(second)
    assert concurrency.allowed == 10 * DECREASE
    with concurrency.slot() as later:
        concurrency.too_many(later)
    assert concurrency.allowed == 10 * DECREASE * DECREASE


def test_never_below_one_and_up_again() -> None:
    concurrency = AdaptiveConcurrency(4)
    for _ in range(30):
        with concurrency.slot() as since:
            concurrency.too_many(since)
    assert concurrency.allowed == 1.0
    for _ in range(40):
        concurrency.answered()
    assert concurrency.allowed == 4.0


def test_one_place_more_for_a_round_of_answers_not_for_each() -> None:
    concurrency = AdaptiveConcurrency(10)
    with concurrency.slot() as since:
        concurrency.too_many(since)
    before = concurrency.allowed
    for _ in range(int(before)):
        concurrency.answered()
    assert before < concurrency.allowed <= before + 1


def test_a_limit_counts_whole_places_and_one_at_least() -> None:
    limit = AdaptiveLimit(3)
    assert (limit.places, limit.is_whole) == (3, True)
    limit.too_many(1.0, 2.0)
    assert (limit.allowed, limit.places, limit.is_whole) == (3 * DECREASE, 2, False)
    limit.too_many(1.9, 2.5)  # it was under way already
    assert limit.places == 2
    limit.too_many(2.0, 3.0)
    limit.too_many(3.0, 4.0)
    limit.too_many(4.0, 5.0)
    assert (limit.allowed, limit.places) == (1.0, 1)
    limit.answered()
    assert (limit.allowed, limit.is_whole) == (2.0, False)
    limit.answered()
    limit.answered()
    limit.answered()
    assert (limit.allowed, limit.is_whole) == (3.0, True)
