"""Judges who agree by chance, and judges who do not."""

from __future__ import annotations

import random

from eval_factory.scoring.chance_agreement import chance_p
from known import there


def marks(*numbers: int) -> dict[int, dict[str, float]]:
    return {answer: {"accuracy": float(mark)} for answer, mark in enumerate(numbers)}


def test_equal_marks_of_all_answers_show_nothing() -> None:
    assert chance_p({"a": marks(*[4] * 30), "b": marks(*[4] * 30)}) == 1.0


def test_judges_who_agree_on_a_rare_mark_alone_show_little() -> None:
    """Alpha is 1 then: that both hit the same of ten answers has a chance of one in ten."""
    rare = [5] * 9 + [1]
    p = there(chance_p({"a": marks(*rare), "b": marks(*rare)}))
    assert 0.08 < p < 0.12


def test_judges_who_follow_the_answers_are_shown_to_agree() -> None:
    first = [1, 2, 3, 4, 5] * 6
    second = [1, 2, 3, 5, 4] * 6
    assert there(chance_p({"a": marks(*first), "b": marks(*second)})) <= 0.001


def test_one_judge_has_no_p_value() -> None:
    assert chance_p({"a": marks(1, 2, 3), "b": {}}) is None


def test_judges_who_mark_at_random_are_seldom_shown_to_agree() -> None:
    """Three criteria of an answer have the same mark: they are one piece of evidence."""
    chance = random.Random(1)  # noqa: S311 - no secret
    found = []
    for _ in range(40):
        given: dict[str, dict[int, dict[str, float]]] = {"a": {}, "b": {}}
        for judge in given:
            for answer in range(25):
                mark = float(chance.choice([4, 5, 5, 5]))
                given[judge][answer] = dict.fromkeys("xyz", mark)
        found.append(there(chance_p(given)) <= 0.05)
    assert sum(found) <= 5
