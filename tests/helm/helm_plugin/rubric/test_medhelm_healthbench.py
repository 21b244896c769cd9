"""medhelm's HealthBench, as far as it needs no medhelm: what is written down of the judges' decisions.

tests/integration/test_medhelm.py has the rest.
"""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm.judge_output import UnusableJudgeOutput
from eval_factory.helm_plugin.rubric.criterion_judge import (
    NotJudged,
    _read_mark,
    _scored_annotation,
)
from facts import says

RUBRIC = [{"points": 6}, {"points": 2}]


def share(rubrics: list[Any], decided: list[Any]) -> float | None:
    """As medhelm's, of positive points; None of a rubric that is empty."""
    met = sum(
        one["points"]
        for one, said in zip(rubrics, decided, strict=False)
        if said["criteria_met"] is True
    )
    return met / sum(one["points"] for one in rubrics) if rubrics else None


def said(*met: object) -> list[Any]:
    return [
        NotJudged("gone") if one is None else {"criteria_met": one, "explanation": "x"}
        for one in met
    ]


def test_each_judge_by_its_own_decisions_and_who_left_one_out_has_not_judged() -> None:
    outcomes = {"a": said(True, False), "b": said(None, True), "c": said(False, True)}
    found = _scored_annotation(outcomes, RUBRIC, share, has_mark=False, professional=False)
    assert {name: found[name]["accuracy"]["score"] for name in ("a", "c")} == {"a": 0.75, "c": 0.25}
    assert found["c"]["accuracy"]["criteria"] == said(False, True)
    assert found["eval_factory_decisions"] == {"a": [True, False], "c": [False, True]}
    (reason,) = found["eval_factory_not_judged"].items()
    assert reason[0] == "b"
    says(reason[1], "1 of 2 decisions", "gone")


def test_professional_keeps_the_first_judges_decisions_and_halves_with_the_mark() -> None:
    outcomes = {"a": said(True, False, 4), "b": said(False, False, 10)}
    found = _scored_annotation(outcomes, RUBRIC, share, has_mark=True, professional=True)
    assert found["a"]["accuracy"]["score"] == pytest.approx((0.75 + 0.4) / 2)
    assert found["b"]["accuracy"]["score"] == pytest.approx((0.75 + 1.0) / 2)
    assert found["eval_factory_decisions"] == {"a": [True, False], "b": [False, False]}


def test_a_rubric_without_a_score_and_a_judge_who_said_nothing() -> None:
    found = _scored_annotation({"a": said()}, [], share, has_mark=False, professional=False)
    assert found == {"eval_factory_not_judged": {"a": found["eval_factory_not_judged"]["a"]}}
    assert "add up to 0" in found["eval_factory_not_judged"]["a"]


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ('{"criteria_met": 8, "explanation": "x"}', 8),
        ('Well: {"criteria_met": 1}', 1),
        ('{"criteria_met": 10}', 10),
        ('{"criteria_met": 0}', None),
        ('{"criteria_met": 11}', None),
        ('{"criteria_met": "8"}', None),
        ("8", None),
        ('{"criteria_met": true}', None),
        ('{"criteria_met": 7.5}', None),
        ('{"criteria_met": 3} {"criteria_met": 4}', None),
    ],
)
def test_a_mark_is_one_whole_number_from_1_to_10(text: str, mark: int | None) -> None:
    if mark is None:
        with pytest.raises(UnusableJudgeOutput):
            _read_mark(text)
    else:
        assert _read_mark(text)["criteria_met"] == mark
