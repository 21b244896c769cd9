"""A suite's results in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis import suite_messages as words
from eval_factory.analysis.suite_results import CellResult, SuiteResults, suite_results
from eval_factory.analysis.win_rates import GroupScore, WinRate
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import Stats
from eval_factory.report.verdicts import Verdict
from facts import says
from stored_results import PROVENANCE, instance
from stored_suite import cell, cells, share

ONE = CellResult(
    "a",
    "x",
    RunStatus.COMPLETE,
    Path("x"),
    main_metric="m",
    value=0.712,
    ci_low=0.6,
    ci_high=0.8,
    n=1200,
    reportable=True,
    scale=(0.0, 1.0),
    unit="share",
)


def of(*found: CellResult, **changes: Any) -> SuiteResults:
    return replace(
        SuiteResults(RunStatus.PARTIAL, ("a", "b"), ("x",), found, (), (), {}, (), ()), **changes
    )


def test_how_much_of_the_suite_there_is() -> None:
    whole = of(ONE, replace(ONE, target="b"), status=RunStatus.COMPLETE)
    says(words.completeness_sentence(whole), "Complete: 2 runs", "2 models", "1 benchmark")
    states = ("complete", "missing", "failed", "partial", "waiting", "missing")
    says(
        words.completeness_sentence(
            of(*(replace(ONE, status=RunStatus(status)) for status in states))
        ),
        "Not complete: 1 of",
        "6 runs",
        "2 models",
        "1 benchmark",
        "1 partial",
        "1 failed",
        "1 waiting",
        "2 missing",
    )
    all_complete = of(ONE, replace(ONE, target="b"))
    says(words.completeness_sentence(all_complete), "Not complete: 2 of", "2 runs", "none")


def test_a_value_is_told_in_the_unit_of_its_metric_and_else_the_status() -> None:
    assert (words.score_text(ONE), words.interval_text(ONE)) == ("71.2 %", "60.0 % to 80.0 %")
    rated = replace(ONE, value=3.456, scale=(1.0, 5.0), unit="rating")
    assert words.score_text(rated) == "3.46 of 5"
    assert words.score_text(replace(ONE, value=None, status=RunStatus.FAILED)) == "failed"
    assert words.score_text(None) == "-"
    assert (
        words.interval_text(replace(ONE, ci_low=None))
        == words.interval_text(replace(ONE, ci_high=None))
        == ""
    )


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({}, []),
        ({"reportable": False}, ["not reportable"]),
        ({"status": "partial"}, ["partial"]),
        ({"status": "partial", "reportable": False}, ["not reportable", "partial"]),
        ({"status": "failed", "value": None, "reportable": False}, []),
    ],
    ids=["none", "not reportable", "partial", "both", "no value"],
)
def test_a_value_has_its_marks(changes: dict[str, Any], marks: list[str]) -> None:
    assert [mark.text for mark in words.marks(replace(ONE, **changes))] == marks


@pytest.mark.parametrize(
    ("verdict", "colour"),
    [
        (Verdict.GOOD, None),
        (Verdict.CHANCE, "warn"),
        (Verdict.OWN_JUDGE, "warn"),
        (Verdict.BELOW, "bad"),
        (Verdict.DEMO, "demo"),
    ],
)
def test_a_doubt_has_its_colour(verdict: Verdict, colour: str | None) -> None:
    marks = list(words.marks(replace(ONE, verdict=verdict, unreadable=3)))
    assert [mark.colour for mark in marks[:-1]] == ([] if colour is None else [colour])
    assert marks[-1].text.startswith("3 answers")


@pytest.mark.parametrize(
    ("cost", "unpriced", "said"),
    [
        (None, 0, "-"),
        (0.0, 0, "0 USD"),
        (0.012345, 0, "0.01235 USD"),
        (1234.5, 0, "1,234.50 USD"),
        (1.0, 3, "at least 1.00 USD"),
    ],
)
def test_what_a_run_cost(cost: float | None, unpriced: int, said: str) -> None:
    assert words.token_and_cost_texts(replace(ONE, cost=cost, unpriced=unpriced))[2] == said


def test_what_all_cost_is_at_least_that_of_the_runs_with_a_price() -> None:
    paid = replace(ONE, cost=1.5)
    assert words.total_cost_sentence(of(ONE)) == ""
    says(str(words.total_cost_sentence(of(paid, paid))), "cost 3.00 USD")
    says(str(words.total_cost_sentence(of(paid, ONE))), "at least 1.50 USD")
    says(str(words.total_cost_sentence(of(paid, replace(paid, unpriced=1)))), "at least 3.00 USD")


def test_a_win_rate_and_the_comparisons_that_decide_it() -> None:
    one = WinRate("a", 0.5, 2, 1, 3, won=3, lost=0, undecided=5)
    none = WinRate("b", None, 0)
    assert words.win_rate_table([none, one]).rows == [
        ["a", "0.500", "1 to 3", "3 won, 0 lost, 5 open", "2"],
        ["b", "-", "-", "-", "0"],
    ]
    assert words.win_rate_table([one], with_comparisons=False).rows == [
        ["a", "0.500", "1 to 3", "2"]
    ]
    rates = [
        WinRate(name, rate, 1)
        for name, rate in (("a", 0.2), ("b", None), ("c", 0.9), ("d", 0.2), ("e", 0.0))
    ]
    assert [row[0] for row in words.win_rate_table(rates).rows] == ["c", "a", "d", "e", "b"], (
        "the best first, none last"
    )


def test_pairs_as_rows(tmp_path: Path) -> None:
    given = cells(
        tmp_path,
        {"x": {"a": "1" * 30 + "0" * 10, "b": "0" * 30 + "1" * 10, "c": "1" * 28 + "0" * 12}},
    )
    given.append(
        cell(tmp_path, "d", "x", "10" * 20, provenance=replace(PROVENANCE, errata_version=9))
    )
    (benchmark,) = suite_results(given).benchmarks
    ab, ac, bc = words.pair_rows([benchmark])
    assert ab == ["x", "a", "b", "a is better", "40", "-50.0", "-71.6 to -19.6", "0.0067"]
    assert (ac[5], ac[3], bc[3]) == ("-5.0", "no difference is shown", "c is better")
    refused = ["a and d were scored with different lists of known defects: errata 3 and 9"]
    assert words.refused_pairs(benchmark)[0] == ("a and d", refused)
    (benchmark,) = suite_results(
        cells(tmp_path / "equal", {"x": {"a": "1" * 10, "b": "1" * 10}})
    ).benchmarks
    assert [row[5:] for row in words.pair_rows([benchmark])] == [["0.0", "-27.8 to +27.8", "1"]], (
        "without a sign"
    )


def test_differences_of_what_is_no_share_are_in_their_own_unit(tmp_path: Path) -> None:
    stats = Stats.without_interval(2, 3.0)
    scores = {"exact_match": share("11", stats=stats, scale=(1.0, 5.0), unit="rating")}
    given = [
        cell(tmp_path, name, "x", "11", scores=scores, instances=[instance("q0", rating)])
        for name, rating in (("a", 2.0), ("b", 3.5))
    ]
    (benchmark,) = suite_results(given).benchmarks
    (row,) = words.pair_rows([benchmark])
    assert row[4:] == ["1", "+1.5", "-", "-"]


def test_scores_of_other_groups_are_rows_with_a_value_a_target() -> None:
    robust = GroupScore("robustness", "m+worst", 0.25, None, None, 9, lower_is_better=False)
    ece = GroupScore("calibration", "ece_10_bin", 0.123456, None, None, 9, lower_is_better=True)
    found = [
        replace(ONE, group_scores=(robust, ece)),
        replace(ONE, target="b", group_scores=(robust,)),
    ]
    assert {group: table.rows for group, table in words.group_tables(of(*found)).items()} == {
        "calibration": [["x", "ece_10_bin", "0.1235", "-"]],
        "robustness": [["x", "m+worst", "0.25", "0.25"]],
    }
    assert words.group_tables(of(ONE, evaluations=("x", "y"))) == {}
    assert words.group_tables(of(found[1]))["robustness"].rows == [["x", "m+worst", "-", "0.25"]]
