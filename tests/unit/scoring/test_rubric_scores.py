"""The numbers of a rubric, of decisions about criteria."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eval_factory.core.results import Stats
from eval_factory.core.rubric_results import PairAgreement
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.rubric_scores import (
    JudgedCase,
    agreement_on,
    bounds_over_criteria,
    clipped,
    field_of,
    report_of,
    scores_by_tag,
)
from eval_factory.tasks.rubric.rubric_case import Criterion

GOOD = Criterion("good", 8, ("axis:accuracy", "urgent"))
SMALL = Criterion("small", 2, ("axis:completeness",))
BAD = Criterion("bad", -5, ("axis:accuracy",))
CRITERIA = (GOOD, SMALL, BAD)
METRIC = MetricValues("rubric_score", "rubric_score", None, merged=True)


def near(value: float) -> Any:
    """Equal but for rounding."""
    return pytest.approx(value)


def key(name: str) -> InstanceKey:
    return name, 0, None


def case(*votes: Mapping[str, bool | None]) -> JudgedCase:
    return JudgedCase(CRITERIA, votes)


def by_one(*met: bool | None) -> JudgedCase:
    return case(*({"a": one} for one in met))


FAILED = JudgedCase(CRITERIA, None)


def test_a_case_that_was_not_answered_has_no_score_and_all_its_bounds() -> None:
    assert (FAILED.score(), FAILED.score_by("a"), FAILED.shares()) == (None, None, [None] * 3)
    assert FAILED.bounds() == (near(-0.5), near(1.0))


def test_the_score_is_the_majoritys_and_each_judge_has_its_own() -> None:
    found = case(
        {"a": True, "b": True, "c": False}, {"a": False, "b": True, "c": None}, {"a": False, "b": None, "c": False}
    )
    assert found.shares() == [1.0, 0.5, 0.0]
    assert found.score() == near(0.9)
    assert found.score_by("a") == near(0.8)
    assert (found.score_by("b"), found.score_by("c"), found.score_by("d")) == (None, None, None)
    assert found.bounds() == (near(0.8), near(1.0)), "c may yet decide the second; not the third"


def score(value: float, low: float | None, high: float | None) -> Stats:
    return Stats(3, value, 0.1, 0.1, low, high, "x")


def test_a_benchmarks_score_is_clipped() -> None:
    found = clipped(METRIC.score(-0.2, score(-0.2, -0.5, 0.1)))
    assert (found.value, found.stats.mean, found.stats.ci_low, found.stats.ci_high) == (0.0, 0.0, 0.0, 0.1)
    found = clipped(METRIC.score(0.9, score(0.9, 0.8, 1.2)))
    assert (found.value, found.stats.ci_low, found.stats.ci_high) == (0.9, 0.8, 1.0)
    assert clipped(METRIC.score(0.5, score(0.5, None, None))).stats.ci_low is None


def test_bounds_count_open_criteria_both_ways_and_are_clipped() -> None:
    cases = {key("x"): by_one(True, True, False), key("y"): by_one(True, None, None), key("z"): FAILED}
    assert bounds_over_criteria(cases) == (near((1 + 0.3 - 0.5) / 3), 1.0)
    assert bounds_over_criteria({key("z"): by_one(False, False, True)}) == (0.0, 0.0)
    assert bounds_over_criteria({key("z"): JudgedCase((BAD,), None)}) is None


def test_scores_by_tag_are_of_the_criteria_with_it() -> None:
    cases = {key("x"): by_one(True, None, False), key("y"): by_one(True, True, True), key("z"): FAILED}
    found = scores_by_tag(METRIC, cases)
    assert found.keys() == {"axis", "tag"}
    accuracy = found["axis"]["accuracy"]["rubric_score"]
    assert accuracy.stats.count == 2
    assert accuracy.value == near((1 + 3 / 8) / 2)
    assert found["axis"]["completeness"]["rubric_score"].stats.count == 1
    assert found["tag"]["urgent"]["rubric_score"].value == 1.0
    as_zero = scores_by_tag(METRIC, cases, failed_as_zero=True)["axis"]["accuracy"]["rubric_score"]
    assert (as_zero.stats.count, as_zero.value) == (3, near((1 + 3 / 8) / 3)), "the answer that did not come, too"
    two = scores_by_tag(METRIC, {key("x"): by_one(False, True, True), key("y"): by_one(False, True, True)})
    assert two["axis"]["accuracy"]["rubric_score"].value == 0.0, "clipped"
    assert two["axis"]["completeness"]["rubric_score"].value == 1.0


def test_the_least_score_of_a_case_and_of_its_criteria_with_a_tag() -> None:
    criteria = (Criterion("good", 4, ("a",)), Criterion("bad", -6, ("a", "b")), Criterion("fine", 2, ("c",)))
    case = JudgedCase(criteria, None)
    assert case.lowest() == -1.0
    assert case.lowest("a") == -1.5
    assert (case.lowest("b"), case.lowest("c")) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        ("axis:x", ("axis", "x")),
        ("x", ("tag", "x")),
        (":x", ("tag", ":x")),
        ("x:", ("tag", "x:")),
        ("a:b:c", ("a", "b:c")),
    ],
)
def test_the_field_of_a_tag(tag: str, parts: tuple[str, str]) -> None:
    assert field_of(tag) == parts


def test_the_report_counts_what_judges_said() -> None:
    cases = {
        key("x"): case({"a": True, "b": True}, {"a": True, "b": False}, {"a": False, "b": False}),
        key("y"): case({"a": True, "b": None}, {"a": False, "b": False}, {"a": None, "b": None}),
        key("z"): FAILED,
    }
    found = report_of(cases, ["a", "b"])
    whole = found.criteria
    assert (whole.asked, whole.met, whole.not_met, whole.tied, whole.unjudged, whole.score) == (6, 2, 2, 1, 1, None)
    one, two = found.judges["a"], found.judges["b"]
    assert (one.asked, one.met, one.not_met, one.tied, one.unjudged, one.score) == (6, 3, 2, 0, 1, near(1.0))
    assert (two.met, two.not_met, two.unjudged, two.score) == (1, 3, 2, near(0.8))
    assert found.agreement == {"a/b": PairAgreement(4, 0.75, near(0.5))}
    assert found.unanimous == 0.75
    assert found.krippendorff_alpha == near(1 - 7 * 2 / (2 * 3 * 5))


def test_of_one_judge_there_is_no_agreement() -> None:
    found = report_of({key("x"): by_one(True, True, False)}, ["a"])
    assert (dict(found.agreement), found.unanimous) == ({}, None)
    both = report_of({key("x"): case({"a": True, "b": True}, {"a": True, "b": None}, {})}, ["a"])
    assert both.agreement == {}


def test_kappa_is_not_defined_where_both_always_say_the_same() -> None:
    found = report_of({key("x"): case(*[{"a": True, "b": True}] * 3)}, ["a", "b"])
    assert found.agreement["a/b"] == PairAgreement(3, 1.0, None)


@pytest.mark.parametrize(
    ("votes", "agreement"),
    [
        ({"a": True}, None),
        ({"a": True, "b": None}, None),
        ({"a": True, "b": True}, 1.0),
        ({"a": True, "b": False, "c": True}, near(1 / 3)),
    ],
)
def test_agreement_on_one_criterion(votes: dict[str, bool | None], agreement: float | None) -> None:
    assert agreement_on(votes) == agreement
