"""Criteria of instances -> what a page shows of them."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.report.page import instance_data
from eval_factory.report.page.instance_data import MAX_LOST, MAX_WORDS, UNDECIDED, LostPoints, LostScore, shortened_text
from eval_factory.scoring.rubric import VERDICTS
from stored_results import criterion, instance


def test_every_verdict_is_known() -> None:
    assert {verdict: instance_data._SHARES.get(verdict) for verdict in VERDICTS.values()} == {
        verdict: share for share, verdict in VERDICTS.items()
    }


@pytest.mark.parametrize(
    ("points", "verdict", "lost"),
    [
        (8, "met", 0), (8, "not met", 8), (8, "tied", 4), (8, "unjudged", None),
        (-5, "met", 5), (-5, "not met", 0), (-5, "tied", 2.5), (-5, "unjudged", None),
    ],
)  # fmt: skip
def test_what_a_criterion_costs(points: float, verdict: str, lost: float | None) -> None:
    assert instance_data.points_lost(criterion(points, verdict)) == lost


@pytest.mark.parametrize(
    ("made", "signs"),
    [
        (criterion(8, "met", one=True), []), (criterion(8, "not met", one=False), [instance_data.NOT_MET]),
        (criterion(-8, "not met", one=False), []), (criterion(-8, "met", one=True), [instance_data.HARM]),
        (criterion(8, "tied", one=True, two=False), [instance_data.DISAGREE]), (criterion(8, "tied", one=True, two=True), []),
        (criterion(8, "tied", one=False, two="nothing"), [UNDECIDED]),
        (criterion(8, "met", one=True, two="HTTP 500"), [UNDECIDED]), (criterion(8, "unjudged"), [UNDECIDED]),
    ],
)  # fmt: skip
def test_by_what_an_instance_is_chosen(made: dict[str, Any], signs: list[str]) -> None:
    record = instance("q", 0.5, criteria=(criterion(1, "met", one=True), made))
    assert list(instance_data.criterion_signs(record)) == signs
    failed = instance("q", None, criteria=(made,))
    assert list(instance_data.criterion_signs(failed)) == []


CRITERIA = [
    criterion(3, "met", "axis:a", text="first", one=True),
    criterion(2, "not met", "axis:a", "private", text="second", one=False, two="HTTP 500"),
    criterion(9, "unjudged", text="third", one="nothing"),
    criterion(-7, "met", text="fourth", one=True),
    criterion(7, "not met", text="fifth", one=False),
]


def test_what_cost_most_comes_first_then_what_nobody_decided() -> None:
    rows = instance_data.criteria_rows(CRITERIA, with_texts=True)
    assert [(row[0], row[1], row[5]) for row in rows] == [
        (4, "fourth", 7), (5, "fifth", 7), (2, "second", 2), (3, "third", None), (1, "first", 0),
    ]  # fmt: skip
    assert rows[2] == [
        2, "second", 2, ["axis:a", "private"], "not met", 2, [["one", 0, "words of one"], ["two", None, "HTTP 500"]],
    ]  # fmt: skip


def test_without_texts_numbers_and_tags_of_groups_are_left() -> None:
    rows = instance_data.criteria_rows(CRITERIA, with_texts=False, tags={"axis:a"})
    assert rows[2] == [2, None, 2, ["axis:a"], "not met", 2, [["one", 0, None], ["two", None, None]]]
    assert not any(word in str(rows) for word in ("first", "private", "words", "HTTP"))


def test_long_texts_are_cut_and_say_so() -> None:
    assert shortened_text("x" * MAX_WORDS) == "x" * MAX_WORDS
    long = "x" * (MAX_WORDS + 1)
    assert shortened_text(long) == f"{'x' * MAX_WORDS} … (2,001 characters: results.jsonl)"
    one = criterion(1, "met", *[f"{number}{long}" for number in range(instance_data.MAX_TAGS + 1)], text=long, one=True)
    one["judges"]["one"]["explanation"] = long
    ((_, words, _, tags, _, _, judges),) = instance_data.criteria_rows([one], with_texts=True)
    assert {len(text) for text in (words, judges[0][2], tags[0])} == {
        len(shortened_text(long)),
        len(shortened_text(f"1{long}")),
    }
    assert len(tags) == instance_data.MAX_TAGS


def test_tags_that_groups_name_anyway() -> None:
    groups = {"axis": ("a", "b"), "criterion_theme": ("c",), "tag": ("urgent",)}
    assert instance_data.tags_of_groups(groups) == {"axis:a", "axis:b", "theme:c", "tag:urgent", "urgent"}


def test_what_costs_most_over_all_answers() -> None:
    points = LostPoints()
    shared = [criterion(4, verdict, "axis:a", "axis:a", text="shared", one=True) for verdict in ("not met", "met")]
    assert points.add([shared[0], criterion(2, "not met", "axis:a", "rare", text="alone", one=False)]) == (0, 1, 2, 3)
    assert points.add([shared[1], criterion(1, "unjudged", "axis:a", text="other")]) == ()
    assert points.add([shared[0], criterion(-6, "met", "axis:b", text="harm", one=True)]) == (0, 1, 5, 6)
    assert points.add([criterion(-6, "met", "axis:b", text="harm", one=True)]) == (5, 6)
    most = points.most()
    assert list(most.values()) == [
        LostScore("axis:b", True, 2, 2, 12.0), LostScore("axis:a", True, 4, 2, 10.0),
        LostScore("harm", False, 2, 2, 12.0), LostScore("shared", False, 3, 2, 8.0),
    ]  # fmt: skip
    assert list(most) == [5, 0, 6, 1]


def test_a_criterion_that_one_answer_has_twice_is_not_one_of_several_answers() -> None:
    points = LostPoints()
    points.add([criterion(4, "not met", text="twice"), criterion(4, "not met", text="twice")])
    assert points.most() == {}


def test_the_list_is_bounded_and_ties_are_in_order() -> None:
    points = LostPoints()
    many = [criterion(1, "not met", f"axis:{number:03}", text=f"text {number:03}") for number in range(2 * MAX_LOST)]
    for _ in range(2):
        points.add(many)
    labels = [one.label for one in points.most().values()]
    assert labels == [f"{what}{n:03}" for what in ("axis:", "text ") for n in range(MAX_LOST)]


def test_without_texts_only_tags_of_groups_are_counted() -> None:
    points = LostPoints(with_texts=False, tags={"axis:a"})
    for _ in range(2):
        assert points.add([criterion(4, "not met", "axis:a", "private", text="secret")]) == (0,)
    assert [one.label for one in points.most().values()] == ["axis:a"]
