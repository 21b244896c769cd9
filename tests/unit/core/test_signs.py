"""Tests that each sign has words for every part of a report that shows it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from eval_factory.core.results import Instances
from eval_factory.core.signs import ANSWER_SIGNS, SIGNS
from eval_factory.report.page.document import page_script
from eval_factory.report.page.instance_data import page_signs_of
from eval_factory.report.result_sentences import problem_counts
from eval_factory.scoring.readability import Readability
from stored_results import criterion, instance

NO_SIGNS = {
    "requested",
    "scored",
    "unreadable",
    "identical",
    "read_by_rule",
    "read_by_asking",
    "unread",
}
"""The counts of `Instances` without a sign: sums, and counts of answers to further questions."""
COUNTS = {sign.count for sign in SIGNS.values() if sign.count is not None}


def test_each_count_of_instances_is_that_of_a_sign_or_named_as_none() -> None:
    assert {field.name for field in fields(Instances)} - NO_SIGNS == COUNTS


def test_each_sign_has_a_label_of_its_own() -> None:
    labels = [sign.label for sign in SIGNS.values()]
    assert len(set(labels)) == len(labels)
    assert all(labels)


def test_the_page_has_the_label_of_each_sign() -> None:
    table = re.search(r"^const SIGNS = (.*);$", page_script(), re.MULTILINE)
    assert table is not None
    columns = json.loads(table[1])
    assert list(columns) == list(SIGNS)
    for name, (label, label_of_values, is_listed) in columns.items():
        sign = SIGNS[name]
        shown = (sign.label, sign.label_of_values, sign.is_listed)
        assert (label, label_of_values, is_listed) == shown


@pytest.mark.parametrize("name", [name for name, sign in SIGNS.items() if sign.count is not None])
def test_the_first_screen_tells_of_each_trouble(name: str) -> None:
    counts = dict.fromkeys((field.name for field in fields(Instances)), 0)
    counts[str(SIGNS[name].count)] = 3
    told = list(problem_counts(Instances(**counts)))
    if name == "thinking_stripped":  # removed thinking is not a problem
        assert told == []
    else:
        assert told == [(3, SIGNS[name].trouble, name)]


def test_troubles_come_in_one_order_the_failed_first() -> None:
    severities = [sign.severity for sign in SIGNS.values() if sign.trouble]
    assert sorted(severities) == list(range(1, len(severities) + 1))
    told = [name for _, _, name in problem_counts(Instances(*range(1, len(fields(Instances)) + 1)))]
    assert told[:3] == ["failed", "filtered", "empty"]


def test_the_signs_of_an_answer_are_those_that_reading_finds() -> None:
    assert tuple(Readability(None, lambda _state: None).signs) == ANSWER_SIGNS


def test_the_page_can_flag_an_instance_with_each_sign_but_right_and_wrong() -> None:
    lost = [
        criterion(8, "not met", one=False, two=True),
        criterion(-8, "met", one=True),
        criterion(1, "unjudged"),
    ]
    flags: set[str] = set()
    for record in (
        instance("a", 1.0, signs=ANSWER_SIGNS, finish_reason="length", unjudged=True),
        instance("b", 1.0, injection=("x",), criteria=tuple(lost)),
        instance("c", 1.0, completion=" "),
        instance("d", None),
        instance("e", None, finish_reason="content_filter"),
    ):
        flags.update(page_signs_of(record))
    assert flags == SIGNS.keys() - {"right", "wrong"}


def test_the_page_of_results_explains_each_count_of_a_sign() -> None:
    page = (Path(__file__).parents[3] / "docs" / "results.md").read_text()
    assert [count for count in COUNTS if f"`{count}`" not in page] == []


def test_a_row_lists_no_sign_that_its_score_says_or_that_is_no_trouble() -> None:
    unlisted = {name for name, sign in SIGNS.items() if not sign.is_listed}
    assert unlisted == {"wrong", "right", "failed", "thinking_stripped", "criterion_not_met"}
