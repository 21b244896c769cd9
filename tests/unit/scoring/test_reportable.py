"""Tests of whether a score may be reported, and what is said where it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.results import DEMO, TaskResult
from eval_factory.scoring.reportable import (
    Unreadable,
    failure_in,
    unreadable_reasons,
    why_not_reportable,
)
from facts import each_says, says
from unit.scoring.test_collect import FOUR, result_of, state


@pytest.mark.parametrize(
    ("answered", "minimum", "reportable"),
    [
        (4, 1.0, True),
        (3, 1.0, False),
        (3, 0.75, True),
        (2, 0.75, False),
        (1, 0.25, True),
        (0, 0.0, False),
    ],
)
def test_coverage_has_to_reach_the_minimum_and_without_a_main_score_nothing_is_reportable(
    answered: int, minimum: float, reportable: bool, tmp_path: Path
) -> None:
    states = [state(i, "yes" if i < answered else None) for i in range(4)]
    flags = {"config.params.extra.min_coverage": minimum}
    found = result_of(tmp_path, flags, states=states, values={"exact_match": FOUR})
    assert found.validity.instances.coverage == answered / 4
    assert found.reportable is reportable


@pytest.fixture
def whole(tmp_path: Path) -> TaskResult:
    return result_of(
        tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR}
    )


def short_of(
    whole: TaskResult, *reasons: str, scored: int = 4, to_ask: bool = True, minimum: float = 1.0
) -> str:
    counts = replace(whole.validity.instances, scored=scored)
    validity = replace(whole.validity, instances=counts, not_reportable=reasons)
    short = replace(whole, validity=validity, reportable=False, something_to_ask=to_ask)
    return why_not_reportable(short, minimum) or ""


def test_what_is_missing_can_be_asked_for_or_less_may_be_accepted(whole: TaskResult) -> None:
    each_says(
        short_of(whole, scored=2, minimum=0.75).splitlines(),
        ["NOT REPORTABLE: ", "coverage 0.5000", "min_coverage is 0.75"],
        ["same command again"],
    )
    each_says(
        short_of(whole, scored=2, to_ask=False).splitlines(),
        ["NOT REPORTABLE: ", "coverage 0.5000", "min_coverage is 1"],
        ["nothing is left", "validity.notes", "extra.min_coverage"],
    )


def test_other_reasons_stand_alone_or_beside(whole: TaskResult) -> None:
    assert short_of(whole, "first", "second").splitlines() == [
        "NOT REPORTABLE: first",
        "NOT REPORTABLE: second",
    ]
    both = short_of(whole, "one", scored=3).splitlines()
    says(both[0], "NOT REPORTABLE: ", "coverage 0.7500", "min_coverage is 1")
    assert both[-1] == "NOT REPORTABLE: one"


def test_a_main_metric_that_is_absent_is_said(whole: TaskResult) -> None:
    """But only where asking again cannot bring it."""
    absent = replace(whole, scores={})
    none = short_of(absent, to_ask=False)
    says(none, "NOT REPORTABLE: ", "no main metric", "validity.notes")
    says(short_of(absent), "NOT REPORTABLE: ", absent.main_metric, "no value", "same command")
    assert short_of(absent, "one", to_ask=False) == f"{none}\nNOT REPORTABLE: one"


def test_so_many_answers_may_say_nothing() -> None:
    readable = [
        unreadable_reasons(count, 10, 0.1, {Unreadable.UNPARSED: count}) == ()
        for count in (0, 1, 2, 10)
    ]
    assert readable == [True, True, False, False]


KEYS = {
    Unreadable.UNPARSED: "custom_system_prompt",
    Unreadable.UNFINISHED: "num_output_tokens",
    Unreadable.CUT_OFF: "num_output_tokens",
    Unreadable.FULL_WINDOW: "num_ctx",
    Unreadable.IN_REASONING: "--reasoning-parser",
    Unreadable.ENDED: "params_to_remove",
}


def test_each_kind_of_unreadable_answers_is_a_reason_with_one_advice() -> None:
    """The most frequent kind first, with the key to set."""
    assert list(KEYS) == list(Unreadable)
    counts = {kind: number for number, kind in enumerate(KEYS, start=1)}
    reasons = [reason.split("\n") for reason in unreadable_reasons(21, 40, 0.1, counts)]
    assert [lines[0].split()[0] for lines in reasons] == ["6", "5", "4", "3", "2", "1"]
    assert all("21 of 40" in first and "max_unreadable is 0.1" in first for first, _ in reasons)
    for key, (_, advice) in zip(reversed(KEYS.values()), reasons, strict=True):
        assert key in advice
        assert ("num_output_tokens" in advice) is (key == "num_output_tokens")


def test_a_single_kind_is_not_counted_twice() -> None:
    (reason,) = unreadable_reasons(2, 10, 0.1, {Unreadable.UNPARSED: 2})
    assert reason.count("of 10") == 1


@pytest.mark.parametrize("reasons", [(DEMO,), (DEMO, "one")])
def test_a_demo_alone_is_no_failure(whole: TaskResult, reasons: tuple[str, ...]) -> None:
    """The exit code stays 0, as the tutorial has it; any other reason makes it 1."""
    message = short_of(whole, *reasons)
    assert message.startswith("NOT REPORTABLE: demo")
    assert "target.api_endpoint.url" in message
    assert failure_in(message) == (None if reasons == (DEMO,) else message)
