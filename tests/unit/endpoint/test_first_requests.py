from __future__ import annotations

from eval_factory.endpoint.retrying_client import FirstRequests


def test_the_last_of_the_first_says_why() -> None:
    first = FirstRequests(3)
    numbers = [first.start() for _ in range(5)]
    assert numbers[:3] == [0, 1, 2]
    assert first.failed(numbers[3], "later") is None  # of many at once, those that fail end sooner
    assert first.failed(numbers[0], "HTTP 500: a") is None
    assert first.failed(numbers[2], "HTTP 400: b") is None
    assert first.failed(numbers[1], "HTTP 500: a") == ("HTTP 500: a", "HTTP 400: b", "HTTP 500: a")


def test_one_answer_is_enough() -> None:
    first = FirstRequests(2)
    numbers = [first.start(), first.start()]
    first.answered()
    assert [first.failed(number, "x") for number in numbers] == [None, None]


def test_never() -> None:
    first = FirstRequests(0)
    assert [first.failed(first.start(), "x") for _ in range(3)] == [None] * 3
