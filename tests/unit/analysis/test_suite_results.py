"""A suite's finished runs -> its results: scores, comparisons, ranks, win rates, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.suite_results import (
    CellResult,
    FinishedCell,
    LeftOut,
    RunUsage,
    suite_results,
)
from eval_factory.analysis.win_rates import GroupScore
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import Floor, Spent, SpentByRole, Usage
from eval_factory.report.verdicts import Verdict
from facts import each_says, says
from stored_results import CONFIG, PROVENANCE, instance, written
from stored_suite import cell, cells, made, share


@pytest.mark.parametrize(
    ("value", "reportable", "enters"),
    [
        (0.0, True, True),
        (0.5, False, False),
        (None, True, False),
        (None, False, False),
    ],
)
def test_a_reportable_value_alone_enters_win_rates(
    value: float | None, reportable: bool, enters: bool
) -> None:
    one = CellResult("a", "x", RunStatus.COMPLETE, Path("x"), value=value, reportable=reportable)
    assert one.enters_win_rates is enters


WELL = "1" * 30 + "0" * 10
ILL = "0" * 30 + "1" * 10
SAME = "1" * 20 + "0" * 20
PARTLY = "40.0 % of the answers are unreadable\n  grant more tokens"


def test_a_cell_has_what_its_result_says(tmp_path: Path) -> None:
    (one,) = suite_results([cell(tmp_path, "small", "medec_hot", "1110x")]).cells
    assert one == CellResult(
        "small",
        "medec_hot",
        RunStatus.COMPLETE,
        tmp_path / "small" / "medec_hot",
        model="org/small",
        task="medec_hot",
        main_metric="exact_match",
        value=0.75,
        ci_low=0.65,
        ci_high=0.85,
        n=4,
        higher_is_better=True,
        scale=(0.0, 1.0),
        unit="share",
        reportable=True,
        verdict=Verdict.GOOD,
        unreadable=0,
        requested=5,
        failed=0,
        coverage=0.8,
        prompt_tokens=1,
        completion_tokens=1,
        collected_by=PROVENANCE.eval_factory,
        usage=RunUsage(1, 1, 0, 0, 1.0, 0.1, 0.1, 0.1),
    )


def test_targets_and_evaluations_stand_in_the_order_of_the_suite(tmp_path: Path) -> None:
    results = suite_results(
        cells(tmp_path, {"x": {"b": SAME, "a": SAME}, "w": {"b": SAME, "a": SAME}})
    )
    assert (results.status, results.targets, results.evaluations) == (
        "complete",
        ("b", "a"),
        ("x", "w"),
    )
    assert [one.name for one in results.cells] == ["b/x", "a/x", "b/w", "a/w"]
    assert results.missing == ()
    assert results.cell("a", "w") is results.cells[3]
    assert results.cell("a", "v") is None


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (
            "failed",
            "HTTP 500\n  look",
            ("HTTP 500 look", "correct the cause that the reason names"),
        ),
        ("failed", None, ("it has no result", "correct the cause that the reason names")),
        (
            "missing",
            None,
            ("it was not started", "run the suite again: it starts the missing runs"),
        ),
        (
            "waiting",
            "queued in Slurm",
            ("queued in Slurm", "run the suite again: it adopts the runs that have ended"),
        ),
        ("missing", "the budget is used up", ("the budget is used up", "run the suite again")),
    ],
)
def test_of_what_failed_or_was_not_begun_nothing_is_read(
    tmp_path: Path, status: Any, reason: str | None, said: tuple[str, str]
) -> None:
    results = suite_results([replace(cell(tmp_path, "a", "x", SAME), status=status, reason=reason)])
    (one,) = results.cells
    assert (one.value, one.reportable, one.model, one.usage, one.status) == (
        None,
        False,
        None,
        None,
        status,
    )
    (missing,) = results.missing
    assert (missing.cell, missing.reason) == (one, said[0])
    assert missing.what_to_do.startswith(said[1])


def test_a_result_that_cannot_be_read_counts_as_failed(tmp_path: Path) -> None:
    gone = FinishedCell("a", "x", RunStatus.COMPLETE, tmp_path / "gone")
    without_instances = cell(tmp_path, "b", "x", SAME)
    (without_instances.folder / "results.jsonl").unlink()
    by_hand = cell(tmp_path, "d", "x", SAME)
    (by_hand.folder / "instances.jsonl").write_text("null\n" * len(SAME))
    results = suite_results([gone, without_instances, cell(tmp_path, "c", "x", SAME), by_hand])
    assert [one.status for one in results.cells] == ["failed", "failed", "complete", "failed"]
    says(str(results.cells[3].reason), "(TypeError: ")
    assert "there is no result" in str(results.cells[0].reason)
    says(str(results.cells[1].reason), "cannot be read")
    assert [one.cell.target for one in results.missing] == ["a", "b", "d"]
    assert results.status == "partial"


def test_a_run_without_its_main_score_is_missing_with_the_reason(tmp_path: Path) -> None:
    results = suite_results([cell(tmp_path, "a", "x", SAME, main_metric="f1", reportable=False)])
    (one,) = results.cells
    assert (one.main_metric, one.value, one.n, one.model) == ("f1", None, None, "org/a")
    assert one.usage is not None
    says(str(results.missing[0].reason), "no main score")
    assert "read the notes" in results.missing[0].what_to_do


def test_models_are_compared_benchmark_by_benchmark_as_compare_does(tmp_path: Path) -> None:
    given = cells(
        tmp_path, {"x": {"a": WELL, "b": ILL, "c": SAME}, "y": {"a": SAME, "b": SAME, "c": SAME}}
    )
    first, second = suite_results(given).benchmarks
    alone = compare([one.folder for one in given[:3]])
    found = [
        pair.comparison and (pair.comparison.paired, pair.comparison.p_holm) for pair in first.pairs
    ]
    assert found == [(one.paired, one.p_holm) for one in alone.comparisons]
    assert [(pair.a.label, pair.b.label) for pair in first.pairs] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert [(one.model.label, one.best, one.worst) for one in first.ranks] == [
        ("a", 1, 1),
        ("b", 2, 3),
        ("c", 2, 3),
    ]
    assert [(one.best, one.worst) for one in second.ranks] == [(1, 3)] * 3


def test_ranks_need_differences_that_hold_for_all_benchmarks_together(tmp_path: Path) -> None:
    """Seven right in one alone: p = 0.016, and 0.047 where three such benchmarks are corrected for their number."""
    given = {f"e{number}": {"a": "1" * 7 + "0" * 33, "b": "0" * 40} for number in range(3)}
    results = suite_results(cells(tmp_path, given))
    assert [(one.won, one.lost) for one in results.win_rates] == [(3, 0), (0, 3)]
    assert [(one.best_rank, one.worst_rank) for one in results.win_rates] == [(1, 2)] * 2
    alone = suite_results(cells(tmp_path / "one", {"e": given["e0"]}))
    assert [(one.best_rank, one.worst_rank) for one in alone.win_rates] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("tasks", "ranks"), [(7, [(1, 1), (2, 2)]), (6, [(1, 2), (1, 2)])])
def test_variants_of_a_task_count_once_where_benchmarks_are_the_sample(
    tmp_path: Path, tasks: int, ranks: list[tuple[int, int]]
) -> None:
    """The leads are too small to be shown in any of them."""
    found = [
        cell(tmp_path, target, f"e{number}", answers, task=f"t{min(number, tasks - 1)}")
        for number, (target, answers) in product(range(7), (("a", "1111"), ("b", "1110")))
    ]
    assert [(one.best_rank, one.worst_rank) for one in suite_results(found).win_rates] == ranks


def test_a_value_that_is_not_reportable_is_shown_and_wins_nothing(tmp_path: Path) -> None:
    given = cells(tmp_path, {"x": {"a": SAME, "b": ILL}})
    validity = replace(made("c", "x", WELL).validity, not_reportable=(PARTLY,))
    given.append(cell(tmp_path, "c", "x", WELL, reportable=False, validity=validity))
    results = suite_results(given)
    assert (results.cells[2].value, results.cells[2].reportable) == (0.75, False)
    each_says(results.cells[2].not_reportable, ["40.0 %", "unreadable"])
    assert [one.win_rate for one in results.win_rates] == [1, 0, None]
    (left,) = results.left_out
    assert left == LeftOut("x", "c", left.reason)
    says(left.reason, "not reportable", "40.0 %", "unreadable")
    (benchmark,) = results.benchmarks
    assert [pair.comparison is None for pair in benchmark.pairs] == [False, True, True]
    assert [one.model.label for one in benchmark.ranks] == ["a", "b"]
    assert [one.undecided for one in results.win_rates] == [1, 1, None]


def test_win_rates_are_over_the_benchmarks_that_every_model_has_as_reportable(
    tmp_path: Path,
) -> None:
    given = cells(tmp_path, {"x": {"a": WELL, "b": ILL}, "y": {"a": ILL}})
    given.append(cell(tmp_path, "b", "y", WELL, reportable=False))
    given += cells(tmp_path, {"z": {"a": WELL, "b": ILL, "c": ILL}})
    results = suite_results(given)
    assert [one.name for one in results.left_out] == ["b/y", "y", "x"]
    assert [one.win_rate for one in results.win_rates] == [1, 0.25, 0.25]
    assert {one.columns for one in results.win_rates} == {1}


def test_a_cell_below_the_best_score_without_a_model_says_so(tmp_path: Path) -> None:
    validity = made("a", "x", WELL).validity
    floor = Floor("always A", 0.9, 40, {"always A": 0.9})
    instances = replace(validity.instances, unreadable=7)
    validity = replace(validity, floors={"exact_match": floor}, instances=instances)
    (one,) = suite_results([cell(tmp_path, "a", "x", WELL, validity=validity)]).cells
    assert (one.verdict, one.floor, one.unreadable) == (Verdict.BELOW, 0.9, 7)
    assert one.floor_by == "always answering A"


def test_a_benchmark_whose_results_cannot_be_compared_is_left_out_with_the_reason(
    tmp_path: Path,
) -> None:
    given = cells(tmp_path, {"x": {"a": WELL, "b": ILL}, "y": {"a": ILL, "b": WELL}})
    given.append(cell(tmp_path, "c", "y", WELL, provenance=replace(PROVENANCE, errata_version=9)))
    results = suite_results(given)
    assert [one.win_rate for one in results.win_rates] == [1, 0, None]
    (left,) = results.left_out
    assert left == LeftOut("y", None, left.reason)
    says(left.reason, "a and c", "known defects", "errata 3 and 9")
    pairs = results.benchmarks[1].pairs
    assert [[reason.name for reason in pair.reasons] for pair in pairs] == [
        [],
        ["errata"],
        ["errata"],
    ]
    assert pairs[0].comparison is not None
    assert pairs[0].comparison.p_holm == pairs[0].comparison.paired.p_value


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda root: cell(
                root, "b", "x", SAME, scores={"exact_match": share(SAME, higher_is_better=None)}
            ),
            "it is not known whether a higher value is better",
        ),
        (
            lambda root: FinishedCell("b", "x", RunStatus.MISSING, root),
            "only one model has a value that counts",
        ),
    ],
    ids=["no direction", "one value"],
)
def test_what_counts_for_no_win_is_left_out(
    tmp_path: Path, change: Callable[[Path], FinishedCell], why: str
) -> None:
    results = suite_results([cell(tmp_path, "a", "x", WELL), change(tmp_path)])
    assert [one.win_rate for one in results.win_rates] == [None, None]
    assert results.left_out == (LeftOut("x", None, why),)


def well_and_ill(root: Path, **about: Any) -> list[FinishedCell]:
    found = (("a", WELL), ("b", ILL))
    return [
        cell(root, name, "x", answers, scores={"exact_match": share(answers, **about)})
        for name, answers in found
    ]


def test_where_lower_is_better_the_lower_value_wins(tmp_path: Path) -> None:
    results = suite_results(well_and_ill(tmp_path, higher_is_better=False))
    assert [(one.win_rate, one.won, one.best_rank) for one in results.win_rates] == [
        (0, 0, 2),
        (1, 1, 1),
    ]


def test_values_that_no_test_is_known_for_win_all_the_same(tmp_path: Path) -> None:
    """Such as an F1 of the whole, of which no instance has a value."""
    results = suite_results(well_and_ill(tmp_path, metric="macro_f1"))
    (pair,) = results.benchmarks[0].pairs
    assert (pair.comparison, [reason.name for reason in pair.reasons]) == (None, ["no_pairs"])
    assert [(one.win_rate, one.won, one.undecided) for one in results.win_rates] == [
        (1, 0, 1),
        (0, 0, 1),
    ]
    assert (results.left_out, results.benchmarks[0].ranks) == ((), ())


def worst_of_robustness(value: float) -> dict[str, Any]:
    worst = share(SAME, value=value, perturbation="robustness.worst")
    return {"exact_match": share(SAME), "exact_match@test+robustness.worst": worst}


def with_robustness(root: Path, target: str, value: float, **changes: Any) -> FinishedCell:
    return cell(root, target, "x", SAME, scores=worst_of_robustness(value), **changes)


def test_the_other_metric_groups_have_win_rates_of_their_own(tmp_path: Path) -> None:
    given = [
        with_robustness(tmp_path, "a", 0.2),
        with_robustness(tmp_path, "b", 0.4),
        cell(tmp_path, "c", "x", SAME),
    ]
    given.append(with_robustness(tmp_path, "d", 0.9, reportable=False))
    results = suite_results(given)
    score = GroupScore(
        "robustness", "exact_match@test+robustness.worst", 0.2, 0.4, 0.6, 40, lower_is_better=False
    )
    assert [one.group_scores for one in results.cells][::2] == [(score,), ()]
    assert list(results.group_win_rates) == ["robustness"]
    models = results.group_win_rates["robustness"]
    assert {one.best_rank for one in models} == {None}
    assert [(one.model, one.win_rate) for one in models] == [
        ("a", 0),
        ("b", 1),
        ("c", None),
        ("d", None),
    ]


def test_two_ways_of_asking_stand_side_by_side_without_a_win_or_a_difference(
    tmp_path: Path,
) -> None:
    reasoned = deepcopy(CONFIG)
    reasoned["config"]["params"]["extra"]["answer_style"] = "reasoned"
    given = [with_robustness(tmp_path, "a", 0.2), with_robustness(tmp_path, "b", 0.9)]
    result_of_b = made("b", "x", SAME, scores=worst_of_robustness(0.9))
    written(given[1].folder, result_of_b, reasoned)
    given += cells(tmp_path, {"y": {"a": WELL, "b": ILL}})
    results = suite_results(given)
    assert [one.value for one in results.cells] == [0.5, 0.5, 0.75, 0.25]
    assert [one.comparison is None for one in results.benchmarks[0].pairs] == [True]
    (left,) = results.left_out
    assert (left.evaluation, left.target) == ("x", None)
    says(left.reason, "answer_style", "reasoned", "letter")
    assert [one.columns for one in results.win_rates] == [1, 1]
    assert results.group_win_rates == {}


def test_what_was_paid_is_that_of_all_runs_and_what_it_took_stands_apart(tmp_path: Path) -> None:
    this = Spent(
        requests=3,
        cached=2,
        retries=1,
        prompt_tokens=10,
        completion_tokens=5,
        latency_p50_s=0.2,
        latency_p95_s=0.3,
    )
    whole = Spent(
        requests=9,
        cached=4,
        retries=2,
        prompt_tokens=30,
        completion_tokens=15,
        latency_p50_s=0.4,
        latency_p95_s=0.5,
    )
    usage = Usage(SpentByRole(this, {"model": this}), SpentByRole(whole, {"model": whole}), 3, 7.5)
    given = replace(cell(tmp_path, "a", "x", SAME, usage=usage), attempts=2)
    (one,) = suite_results([given]).cells
    assert (one.cost, one.unpriced, one.prompt_tokens, one.completion_tokens) == (None, 0, 30, 15)
    assert one.usage == RunUsage(2, 9, 2, 2, 7.5, 0.4, 0.5, 0.1)


def test_the_time_of_an_answer_is_that_of_the_main_split_with_nothing_perturbed(
    tmp_path: Path,
) -> None:
    records = [
        instance("q0", 1.0, latency_s=1.0),
        instance("q1", 1.0, latency_s=3.0),
        instance("q2", 1.0, latency_s=None),
        instance("q3", 1.0, latency_s=50.0, split="valid"),
        instance("q4", 1.0, latency_s=60.0, perturbation="typos"),
    ]
    given = [
        cell(tmp_path, name, "x", SAME, instances=found)
        for name, found in (("a", records), ("b", records[2:]))
    ]
    assert [one.usage and one.usage.inference_runtime_s for one in suite_results(given).cells] == [
        2.0,
        None,
    ]
