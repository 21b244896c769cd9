"""A rubric's criteria on a page: rows, signs, and what they cost."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from eval_factory.core.signs import DISAGREE, HARM, NOT_MET, UNDECIDED
from eval_factory.report.page import criteria, shortened_texts
from eval_factory.report.page.criteria import TotalLoss
from eval_factory.report.page.shortened_texts import MAX_SHORT_TEXT
from eval_factory.scoring.rubric import VERDICTS
from stored_results import criterion, instance


def test_every_verdict_is_known() -> None:
    shares = {verdict: share for share, verdict in VERDICTS.items()}
    assert {verdict: criteria._SHARES.get(verdict) for verdict in VERDICTS.values()} == shares


@pytest.mark.parametrize(
    ("points", "verdict", "lost"),
    [
        (8, "met", 0),
        (8, "not met", 8),
        (8, "tied", 4),
        (8, "unjudged", None),
        (-5, "met", 5),
        (-5, "not met", 0),
        (-5, "tied", 2.5),
        (-5, "unjudged", None),
    ],
)
def test_what_a_criterion_costs(points: float, verdict: str, lost: float | None) -> None:
    assert criteria.points_lost(criterion(points, verdict)) == lost


@pytest.mark.parametrize(
    ("made", "signs"),
    [
        (criterion(8, "met", one=True), []),
        (criterion(8, "not met", one=False), [NOT_MET]),
        (criterion(-8, "not met", one=False), []),
        (criterion(-8, "met", one=True), [HARM]),
        (criterion(8, "tied", one=True, two=False), [DISAGREE]),
        (criterion(8, "tied", one=True, two=True), []),
        (criterion(8, "tied", one=False, two="nothing"), [UNDECIDED]),
        (criterion(8, "met", one=True, two="HTTP 500"), [UNDECIDED]),
        (criterion(8, "unjudged"), [UNDECIDED]),
    ],
)
def test_by_what_an_instance_is_chosen(made: dict[str, Any], signs: list[str]) -> None:
    record = instance("q", 0.5, criteria=(criterion(1, "met", one=True), made))
    assert list(criteria.criterion_signs(record)) == signs
    failed = instance("q", None, criteria=(made,))
    assert list(criteria.criterion_signs(failed)) == []


FIVE_CRITERIA = [
    criterion(3, "met", "axis:a", text="first", one=True),
    criterion(2, "not met", "axis:a", "private", text="second", one=False, two="HTTP 500"),
    criterion(9, "unjudged", text="third", one="nothing"),
    criterion(-7, "met", text="fourth", one=True),
    criterion(7, "not met", text="fifth", one=False),
]


def test_what_cost_most_comes_first_then_what_nobody_decided() -> None:
    rows = criteria.criteria_rows(FIVE_CRITERIA, with_texts=True)
    assert [(row[0], row[1], row[5]) for row in rows] == [
        (4, "fourth", 7),
        (5, "fifth", 7),
        (2, "second", 2),
        (3, "third", None),
        (1, "first", 0),
    ]
    assert rows[2] == [
        2,
        "second",
        2,
        ["axis:a", "private"],
        "not met",
        2,
        [["one", 0, "words of one"], ["two", None, "HTTP 500"]],
    ]


def test_long_texts_are_cut_and_say_so() -> None:
    assert shortened_texts.shortened_text("x" * MAX_SHORT_TEXT) == "x" * MAX_SHORT_TEXT
    long = "x" * (MAX_SHORT_TEXT + 1)
    assert (
        shortened_texts.shortened_text(long)
        == f"{'x' * MAX_SHORT_TEXT} … (2,001 characters: results.jsonl)"
    )
    one = criterion(
        1,
        "met",
        *[f"{number}{long}" for number in range(criteria.MAX_TAGS + 1)],
        text=long,
        one=True,
    )
    one["judges"]["one"]["explanation"] = long
    ((_, words, _, tags, _, _, judges),) = criteria.criteria_rows([one], with_texts=True)
    assert {len(text) for text in (words, judges[0][2], tags[0])} == {
        len(shortened_texts.shortened_text(long)),
        len(shortened_texts.shortened_text(f"1{long}")),
    }
    assert len(tags) == criteria.MAX_TAGS


def test_what_costs_most_over_all_answers_and_not_twice_in_one() -> None:
    points = criteria.LossCounter()
    shared = [
        criterion(4, verdict, "axis:a", "axis:a", text="shared", one=True)
        for verdict in ("not met", "met")
    ]
    assert points.add(
        [shared[0], criterion(2, "not met", "axis:a", "rare", text="alone", one=False)]
    ) == (0, 1, 2, 3)
    assert points.add([shared[1], criterion(1, "unjudged", "axis:a", text="other")]) == ()
    assert points.add([shared[0], criterion(-6, "met", "axis:b", text="harm", one=True)]) == (
        0,
        1,
        5,
        6,
    )
    assert points.add([criterion(-6, "met", "axis:b", text="harm", one=True)]) == (5, 6)
    most = points.costliest()
    assert list(most.values()) == [
        TotalLoss("axis:b", True, 2, 2, 12.0, answers=2),
        TotalLoss("axis:a", True, 4, 2, 10.0, answers=3),
        TotalLoss("harm", False, 2, 2, 12.0, answers=2),
        TotalLoss("shared", False, 3, 2, 8.0, answers=3),
    ]
    assert list(most) == [5, 0, 6, 1]


def test_the_list_is_bounded_and_ties_are_in_order() -> None:
    points = criteria.LossCounter()
    many = [
        criterion(1, "not met", f"axis:{number:03}", text=f"text {number:03}")
        for number in range(2 * criteria.MAX_LOST)
    ]
    for _ in range(2):
        points.add(many)
    labels = [one.label for one in points.costliest().values()]
    assert labels == [
        f"{what}{n:03}" for what, n in product(("axis:", "text "), range(criteria.MAX_LOST))
    ]
