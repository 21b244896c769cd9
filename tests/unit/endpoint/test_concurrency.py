from __future__ import annotations

import threading
import time

from eval_factory.endpoint.concurrency import DECREASE, AdaptiveLimit


def test_no_more_than_the_limit_are_inside() -> None:
    limit = AdaptiveLimit(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with limit.slot():
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


def test_down_once_for_requests_that_were_under_way_together() -> None:
    limit = AdaptiveLimit(10)
    with limit.slot() as first, limit.slot() as second:
        limit.too_many(first)
        limit.too_many(second)
    assert limit.limit == 10 * DECREASE
    with limit.slot() as later:
        limit.too_many(later)
    assert limit.limit == 10 * DECREASE * DECREASE


def test_never_below_one_and_up_again() -> None:
    limit = AdaptiveLimit(4)
    for _ in range(30):
        with limit.slot() as since:
            limit.too_many(since)
    assert limit.limit == 1.0
    for _ in range(40):
        limit.answered()
    assert limit.limit == 4.0


def test_one_place_more_for_a_round_of_answers_not_for_each() -> None:
    limit = AdaptiveLimit(10)
    with limit.slot() as since:
        limit.too_many(since)
    before = limit.limit
    for _ in range(int(before)):
        limit.answered()
    assert before < limit.limit <= before + 1
