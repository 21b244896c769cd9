"""Tests of what a panel's ledger says on the screen: what it can find, and what it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.monitor.ledger import History
from eval_factory.monitor.report import (
    assumed_findings_lines,
    limits_out_of_reach,
    power_lines,
    status_lines,
)
from facts import says
from invented_ledger import HEAD, Invented, limit, rich


def with_power(needed: int | None, repeats: int = 5, **of_limit: Any) -> str:
    made = Invented()
    power = {
        "finds": [
            {"drop": 0.1, "share": 0.975, "weeks": 5},
            {"drop": 0.05, "share": 0.1, "weeks": None},
        ]
    }
    made.baseline(
        [limit(**of_limit)],
        repeats=[{}] * repeats,
        power={"notes": {**power, "needed": needed, "drop": 0.1}},
    )
    return "\n".join(power_lines(made.baseline_line))


def test_what_is_found_and_how_many_runs_it_takes() -> None:
    said = with_power(5)
    says(said, "notes: 6.8 %", "flip")
    says(said, "10.0 points in 98", "after 5 looks", "5.0 points in 10")
    says(said, "5 runs", "baseline are enough")
    assert "left out" not in said


def test_a_baseline_that_is_too_short_is_said_with_what_to_do() -> None:
    said = with_power(10)
    assert "needs 10 runs" in said
    assert "set baseline.repeats to 10" in said


def test_a_panel_that_is_too_small_is_said() -> None:
    said = with_power(None)
    says(said, "notes (10.0 points)", "a larger `size`")
    assert "are enough" not in said


@pytest.mark.parametrize(
    ("of_limit", "is_out_of_reach"),
    [
        ({"baseline": 0.1, "max_drop": 0.1}, True),
        ({"baseline": 0.11, "max_drop": 0.1}, False),
        ({"baseline": 0.95, "max_drop": 0.1, "higher_is_better": False}, True),
        ({"baseline": 0.85, "max_drop": 0.1, "higher_is_better": False}, False),
        ({"baseline": 1.0, "max_drop": 0.5, "scale": [1.0, 5.0]}, True),
        ({"baseline": 1.5, "max_drop": 0.4, "scale": [1.0, 5.0]}, False),
    ],
)
def test_a_limit_that_no_score_can_break_is_said(
    of_limit: dict[str, Any], is_out_of_reach: bool
) -> None:
    made = Invented()
    made.baseline([limit(**of_limit)])
    said = "\n".join(limits_out_of_reach(made.baseline_line))
    assert ("notes cannot raise an alarm" in said) is is_out_of_reach
    assert ("smaller max_drop" in said) is is_out_of_reach


def test_instances_that_are_left_out_are_counted() -> None:
    says(with_power(5, left_out=3), "left out", "3 of notes")


@pytest.mark.parametrize(
    "words",
    [
        "ALARM: letters is 0.3 worse, since about look 12",
        "THE ANSWERS NAME ANOTHER MODEL",
        "something changed in letters",
        "change 1, ",
        "note of A. Clinician",
        HEAD,
    ],
)
def test_the_screen_has_what_matters(words: str) -> None:
    assert words in "\n".join(status_lines("clinic", rich().history))


def test_without_a_baseline_there_is_nothing_to_say() -> None:
    assert status_lines("clinic", History([])) == ["clinic: no baseline yet"]


def test_what_is_assumed_is_said_to_be() -> None:
    lines = list(assumed_findings_lines({0.1: [{"drop": 0.1, "share": 1.0, "weeks": 1}]}))
    says(lines[0], "80 % right answers", "assumed")
    says(lines[1], "10 %", "flip", "10.0 points in 100", "after 1 look")


def test_a_look_says_the_range_the_evidence_and_what_differs() -> None:
    made = Invented()
    made.baseline([limit()])
    dates = {"since": 20, "since_range": [17, 23]}
    alarm = {"what": "harm", "names": ["notes"], "drops": {"notes": 0.13}, **dates}
    made.look({"notes": (0.7, 25.0)}, alarm=alarm, differ={"answers": 31, "of": 98})
    for shown in ("\n".join(status_lines("clinic", made.history)), made.page()):
        says(shown, "from 17 to 23", "most likely 20", "of the 20", "31 of 98")


def test_a_look_stands_beside_the_baseline_as_its_own_rule_reads_it() -> None:
    """Else a better reader looks like a better model."""
    made = Invented()
    made.baseline([limit(baseline=0.53)], reader=1)
    made.look({"notes": (0.73, 0.9)}, reader=2, baseline_again=[limit(baseline=0.72)])
    said = "\n".join(status_lines("clinic", made.history))
    assert "0.72" in said
    assert "0.53" not in said
    page = made.page()
    assert "0.72" in page
    assert "0.53" not in page
