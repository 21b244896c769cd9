"""Whether a score may be reported, and what is said where it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.results import Instances, TaskResult
from eval_factory.scoring.reportable import is_reportable, why_not_reportable
from unit.scoring.test_collect import FOUR, result_of, state

WHOLE = Instances(requested=4, scored=4, failed=0, empty=0, truncated=0, filtered=0)


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    return result_of(tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR})


def test_a_score_needs_its_instances_and_nothing_against_it() -> None:
    assert is_reportable("m", {"m"}, WHOLE, 1.0)
    assert is_reportable("m", {"m"}, replace(WHOLE, scored=3), 0.75)
    assert not is_reportable("m", {"m"}, replace(WHOLE, scored=3), 0.76)
    assert not is_reportable("m", {"n"}, WHOLE, 0.0)
    assert not is_reportable("m", {"m"}, WHOLE, 0.0, ["a reason"])


def test_nothing_is_said_of_what_may_be_reported(result: TaskResult) -> None:
    assert why_not_reportable(result, 1.0) is None


def short_of(result: TaskResult, *reasons: str, scored: int = 4, to_ask: bool = True) -> str:
    instances = replace(result.validity.instances, scored=scored)
    validity = replace(result.validity, instances=instances, not_reportable=reasons)
    short = replace(result, validity=validity, reportable=False, something_to_ask=to_ask)
    return why_not_reportable(short, 1.0) or ""


def test_too_few_instances_are_said_with_what_to_do(result: TaskResult) -> None:
    coverage = "NOT REPORTABLE: coverage 0.7500, min_coverage is 1\n  "
    again = "run the same command again to ask for what is missing"
    assert short_of(result, scored=3) == coverage + again
    done = "nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
    assert short_of(result, scored=3, to_ask=False) == coverage + done


def test_other_reasons_stand_alone_or_beside(result: TaskResult) -> None:
    assert short_of(result, "one", "two") == "NOT REPORTABLE: one\nNOT REPORTABLE: two"
    both = short_of(result, "one", scored=3).splitlines()
    assert both[0] == "NOT REPORTABLE: coverage 0.7500, min_coverage is 1"
    assert both[-1] == "NOT REPORTABLE: one"


def test_a_main_metric_that_is_absent_is_said(result: TaskResult) -> None:
    absent = replace(result, scores={})
    none = "NOT REPORTABLE: HELM computed no main metric; validity.notes say why"
    assert short_of(absent, to_ask=False) == none
    assert short_of(absent).startswith("NOT REPORTABLE: coverage 1.0000, min_coverage is 1\n  run the same command")
    assert short_of(absent, "one", to_ask=False) == f"{none}\nNOT REPORTABLE: one"
