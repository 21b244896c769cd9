"""HELM's leaderboards: metric groups, mean win rates, and the ranks that chance leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.analysis.win_rates import (
    GroupScore,
    LeaderboardColumn,
    WinRate,
    group_scores,
    win_rates,
)
from eval_factory.core.results import Score, Stats, TaskResult
from stored_results import result

MAIN = Score(
    0.5,
    Stats(4, 0.5, stddev=None, stderr=None, ci_low=0.3, ci_high=0.7, ci_method=None),
    "exact_match",
    "test",
    None,
    higher_is_better=True,
)
BIAS = "bias_metric:mode=representation,demographic_category=race"


def made(**scores: Score) -> TaskResult:
    return replace(result([]), scores={"exact_match": MAIN, **scores})


def test_a_run_without_such_scores_has_none() -> None:
    assert list(group_scores(made())) == []
    assert (
        list(
            group_scores(
                replace(made(ece_10_bin=replace(MAIN, metric="ece_10_bin")), main_metric="gone")
            )
        )
        == []
    )


def test_each_group_takes_its_metrics_in_helms_order() -> None:
    found = made(
        toxic=replace(MAIN, metric="toxic_frac", value=0.1),
        bias=replace(MAIN, metric=BIAS),
        fair=replace(MAIN, perturbation="fairness.worst"),
        robust=replace(MAIN, perturbation="robustness.worst"),
        ece=replace(MAIN, metric="ece_10_bin"),
    )
    told = [(one.group, one.label, one.lower_is_better) for one in group_scores(found)]
    assert told == [
        ("calibration", "ece", True),
        ("robustness", "robust", False),
        ("fairness", "fair", False),
        ("bias", "bias", True),
        ("toxicity", "toxic", True),
    ]
    assert list(group_scores(found))[-1] == GroupScore(
        "toxicity", "toxic", 0.1, 0.3, 0.7, 4, lower_is_better=True
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation": "robustness"},
        {"perturbation": "robustness.worst", "split": "valid"},
        {"perturbation": "robustness.worst", "metric": "quasi_exact_match"},
        {"metric": "ece_10_bin", "perturbation": "robustness.worst"},
        {"metric": "ece_1_bin"},
    ],
    ids=[
        "not the worst of each",
        "other split",
        "other metric",
        "perturbed calibration",
        "other bins",
    ],
)
def test_what_is_nearly_one_is_none(changes: dict[str, Any]) -> None:
    assert list(group_scores(made(other=replace(MAIN, **changes)))) == []


MODELS = ("a", "b", "c")
CHAIN = frozenset({("a", "b"), ("a", "c"), ("b", "c")})


def rates(*columns: LeaderboardColumn) -> list[float | None]:
    return [one.win_rate for one in win_rates(MODELS, columns, with_ranks=False)]


def column(*values: float, lower: bool | None = False, **tests: Any) -> LeaderboardColumn:
    return LeaderboardColumn("x", dict(zip("abcdefgh", values, strict=False)), lower, **tests)


def test_a_win_rate_is_the_mean_share_of_models_that_are_beaten() -> None:
    assert rates(column(0.9, 0.5, 0.1)) == [1, 0.5, 0]
    assert rates(column(0.9, 0.5, 0.1), column(0.9, 0.1, 0.5)) == [1, 0.25, 0.25]
    assert rates(column(0.9, 0.5, 0.1, lower=True)) == [0, 0.5, 1]
    found = win_rates(
        MODELS,
        [column(0.9, 0.5, 0.1), LeaderboardColumn("y", {"a": 0.1, "b": 0.2}, False)],
        with_ranks=False,
    )
    assert [(one.win_rate, one.columns) for one in found] == [(0.5, 2), (0.75, 2), (0, 1)], (
        "c has no value in y"
    )


@pytest.mark.parametrize("third", [0.1, 0.7])
def test_the_mean_is_rounded_once(third: float) -> None:
    """As HELM's, statistics.mean: the sum of 1, 1/2 and 0 thirds has no error of its own."""
    (first, *_) = rates(column(0.9, 0.5, 0.1), column(0.5, 0.9, third), column(0.1, 0.5, 0.9))
    assert first == pytest.approx((1 + (0.5 if third == 0.1 else 0) + 0) / 3, abs=0)


def test_a_column_without_a_direction_and_one_with_a_single_value_do_not_count() -> None:
    columns = [
        column(1, 2, 3, lower=None),
        LeaderboardColumn("y", {"a": 1.0}, lower_is_better=False),
    ]
    assert win_rates(MODELS, columns, with_ranks=True) == tuple(
        WinRate(model, None, 0) for model in MODELS
    )


def test_comparisons_that_show_a_difference_are_counted_and_those_that_leave_it_open() -> None:
    columns = [
        column(0.9, 0.5, 0.1, shown=CHAIN),
        column(0.9, 0.5, 0.1, shown=frozenset({("a", "c")})),
        column(1, 1),
    ]
    found = win_rates(MODELS, columns, with_ranks=True)
    assert [(one.won, one.lost, one.undecided) for one in found] == [
        (3, 0, 2),
        (1, 1, 3),
        (0, 3, 1),
    ]


A_B = frozenset({("a", "b")})
WON = column(0.9, 0.1)
LOST = column(0.1, 0.9)
THREE = column(0.9, 0.5, 0.1)
SURE = replace(WON, certain=A_B)
FIRST = replace(THREE, certain=CHAIN)
VARIANTS = [replace(WON, source="medec")] * 2
OTHERS = [replace(WON, source=f"task {number}") for number in range(5)]
APART = [(1, 1), (2, 2)]
OPEN = [(1, 2)] * 2
IN_ORDER = [(1, 1), (2, 2), (3, 3)]
RANKS: dict[str, tuple[list[LeaderboardColumn], list[tuple[int, int]]]] = {
    "nothing is certain": ([replace(THREE, shown=CHAIN)], [(1, 3)] * 3),
    "all is certain in the only column": ([FIRST], IN_ORDER),
    "one pair is": ([replace(THREE, certain=frozenset({("a", "c")}))], [(1, 2), (1, 3), (2, 3)]),
    "a certain win may be lost in another": ([SURE, WON], OPEN),
    "or is, for certain": ([SURE, replace(LOST, certain=frozenset({("b", "a")}))], OPEN),
    "two of three are certain": ([SURE, SURE, WON], APART),
    # What the other two of four do is open: the least of a's wins is 1 of 3, the most of b's 2 of 3.
    "of two of which one is certainly better it has a win more": (
        [column(0.9, 0.5, 0.4, 0.1, certain=A_B)],
        [(1, 3), (2, 4), (1, 4), (1, 4)],
    ),
    "other columns: the least above the greatest": (
        [FIRST, LeaderboardColumn("y", {"a": 0.9, "b": 0.1}, False, A_B, A_B)],
        IN_ORDER,
    ),
    "other columns: of the two last": (
        [FIRST, LeaderboardColumn("y", {"b": 0.9, "c": 0.1}, False)],
        [(1, 1), (2, 3), (2, 3)],
    ),
    "other columns: more of them": (
        [FIRST, *[LeaderboardColumn("y", {"a": 0.9, "b": 0.1}, False)] * 3],
        [(1, 2), (1, 2), (3, 3)],
    ),
    "seven with the same winner show it": ([WON] * 7, APART),
    "and the same loser": ([LOST] * 7, [(2, 2), (1, 1)]),
    "six do not": ([WON] * 6, OPEN),
    "nor do seven and one against it": ([WON] * 7 + [LOST], OPEN),
    "columns of one source are one: six of them": (VARIANTS + OTHERS, OPEN),
    "seven": ([*VARIANTS, *OTHERS, WON], APART),
    "a win and two defeats on the same questions": (
        [*[replace(LOST, source="task 0")] * 2, *OTHERS, *[WON] * 4],
        OPEN,
    ),
    # The p value of the sign flips is 1/64 with 7 benchmarks and 1/256 with 9; three pairs make three times as much.
    "corrected for three pairs: seven": ([THREE] * 7, [(1, 3)] * 3),
    "nine": ([THREE] * 9, IN_ORDER),
}


@pytest.mark.parametrize("what", RANKS)
def test_ranks(what: str) -> None:
    columns, ranks = RANKS[what]
    found = win_rates("abcd"[: len(ranks)], columns, with_ranks=True)
    assert [(one.best_rank, one.worst_rank) for one in found] == ranks


def test_a_model_without_any_column_has_no_rank_and_takes_none() -> None:
    found = win_rates(("a", "z", "b"), [WON] * 7, with_ranks=True)
    assert found[1] == WinRate("z", None, 0)
    assert [(one.best_rank, one.worst_rank) for one in found] == [(1, 1), (None, None), (2, 2)]
