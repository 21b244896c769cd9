"""Whether a score may be reported, and what is said where it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.results import Instances, TaskResult
from eval_factory.scoring.notes import _PROMPT, _TOKENS, MARKERS, is_reportable, why_not_reportable, why_unreadable
from unit.scoring.test_collect import FOUR, result_of, state


def instances(scored: int, requested: int = 8) -> Instances:
    return Instances(requested=requested, scored=scored, failed=0, empty=0, truncated=0, filtered=0)


@pytest.mark.parametrize(("scored", "minimum", "reportable"), [
    (8, 1.0, True), (7, 1.0, False), (6, 0.75, True), (5, 0.75, False), (0, 0.0, True), (0, 0.1, False),
])  # fmt: skip
def test_coverage_has_to_reach_the_minimum(scored: int, minimum: float, reportable: bool) -> None:
    assert is_reportable("em", ["em", "f1"], instances(scored), minimum) is reportable


def test_without_a_main_score_nothing_is_reportable() -> None:
    assert not is_reportable("em", ["f1"], instances(8), 0.0)
    assert not is_reportable("em", [], instances(8), 0.0)


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    """Two of four instances failed."""
    made = result_of(
        tmp_path, states=[state(n, "yes" if n < 2 else None) for n in range(4)], values={"exact_match": FOUR}
    )
    return replace(made, reportable=False)


def test_what_is_missing_can_be_asked_for(result: TaskResult) -> None:
    assert why_not_reportable(replace(result, something_to_ask=True), 0.75) == (
        "NOT REPORTABLE: coverage 0.5000, min_coverage is 0.75\n  run the same command again to ask for what is missing"
    )


def test_where_nothing_is_left_to_ask_less_may_be_accepted(result: TaskResult) -> None:
    assert why_not_reportable(replace(result, something_to_ask=False), 1.0) == (
        "NOT REPORTABLE: coverage 0.5000, min_coverage is 1\n"
        "  nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
    )


def test_a_main_metric_that_helm_did_not_compute_is_said(result: TaskResult) -> None:
    """But only where asking again cannot bring it."""
    none = replace(result, scores={}, something_to_ask=False)
    assert why_not_reportable(none, 1.0) == "NOT REPORTABLE: HELM computed no main metric; validity.notes say why"
    assert "coverage 0.5000" in str(why_not_reportable(replace(none, something_to_ask=True), 1.0))


@pytest.fixture
def whole(tmp_path: Path) -> TaskResult:
    return result_of(tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR})


def short_of(whole: TaskResult, *reasons: str, scored: int = 4, to_ask: bool = True) -> str:
    counts = replace(whole.validity.instances, scored=scored)
    validity = replace(whole.validity, instances=counts, not_reportable=reasons)
    short = replace(whole, validity=validity, reportable=False, something_to_ask=to_ask)
    return why_not_reportable(short, 1.0) or ""


def test_other_reasons_stand_alone_or_beside(whole: TaskResult) -> None:
    assert short_of(whole, "one", "two") == "NOT REPORTABLE: one\nNOT REPORTABLE: two"
    both = short_of(whole, "one", scored=3).splitlines()
    assert both[0] == "NOT REPORTABLE: coverage 0.7500, min_coverage is 1"
    assert both[-1] == "NOT REPORTABLE: one"


def test_a_main_metric_that_is_absent_is_said(whole: TaskResult) -> None:
    absent = replace(whole, scores={})
    none = "NOT REPORTABLE: HELM computed no main metric; validity.notes say why"
    assert short_of(absent, to_ask=False) == none
    assert short_of(absent).startswith("NOT REPORTABLE: coverage 1.0000, min_coverage is 1\n  run the same command")
    assert short_of(absent, "one", to_ask=False) == f"{none}\nNOT REPORTABLE: one"


TEN = Instances(requested=12, scored=10, failed=2, empty=0, truncated=0, filtered=0)


@pytest.mark.parametrize(("count", "readable"), [(0, True), (1, True), (2, False), (10, False)])
def test_so_many_answers_may_say_nothing(count: int, *, readable: bool) -> None:
    assert (why_unreadable(replace(TEN, unreadable=count), 0.1) == ()) is readable


def told(**counts: int) -> list[str]:
    (reason,) = why_unreadable(replace(TEN, **counts), 0.1)
    return reason.split("\n  ")


def test_what_to_set_follows_from_what_is_most_frequent() -> None:
    first, *advice = told(unreadable=9, unparsed=2, thinking_unfinished=4)
    assert first == (
        "9 of 10 answers say nothing that can be scored (4 cut off while the model was thinking, 3 empty,"
        " 2 not in the form that the benchmark asks for); max_unreadable is 0.1"
    )
    assert advice[:-1] == [_TOKENS, _PROMPT, MARKERS]
    assert "extra.max_unreadable accepts more" in advice[-1]
    first, *advice = told(unreadable=2, unparsed=2)
    assert "(2 not in the form that the benchmark asks for);" in first
    assert advice[:-1] == [_PROMPT, MARKERS]
