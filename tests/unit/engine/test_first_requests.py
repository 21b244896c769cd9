from __future__ import annotations

from eval_factory.engine import first_requests
from eval_factory.engine.first_requests import FirstRequests, grouped, shortened


def test_the_last_of_the_first_says_why() -> None:
    first = FirstRequests(3)
    numbers = [first.begin() for _ in range(5)]
    assert numbers[:3] == [0, 1, 2]
    assert first.failed(numbers[3], "later") is None  # of many at once, those that fail end sooner
    assert first.failed(numbers[0], "HTTP 500: a") is None
    assert first.failed(numbers[2], "HTTP 400: b") is None
    assert first.failed(numbers[1], "HTTP 500: a") == "  2 x HTTP 500: a\n  1 x HTTP 400: b"


def test_one_answer_is_enough() -> None:
    first = FirstRequests(2)
    numbers = [first.begin(), first.begin()]
    first.answered()
    assert [first.failed(number, "x") for number in numbers] == [None, None]


def test_who_answered_before_is_not_stopped() -> None:
    first = FirstRequests(1, answered=True)
    assert first.failed(first.begin(), "x") is None


def test_never() -> None:
    first = FirstRequests(0)
    assert [first.failed(first.begin(), "x") for _ in range(3)] == [None] * 3


def test_causes_that_differ_in_a_number_are_one() -> None:
    causes = [f"HTTP 400: request {number:08x}-ab has {number} tokens" for number in range(4)]
    assert grouped(causes) == "  4 x HTTP 400: request 00000000-ab has 0 tokens"


def test_the_rest_is_counted() -> None:
    causes = ["a", "a", "a", "b", "b", "c", "c", "d", "e"]
    assert grouped(causes) == "  3 x a\n  2 x b\n  2 x c\n  2 x something else"


def test_long_causes_are_cut() -> None:
    longest = "x" * first_requests.SHOWN_LENGTH
    assert shortened(longest) == longest
    assert shortened(longest + "y") == longest + " ..."
    assert grouped([longest + "y"]).endswith("x ...")
