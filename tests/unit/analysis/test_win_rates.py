"""HELM's leaderboards: metric groups, mean win rates, and the ranks that chance leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.analysis.win_rates import Column, GroupScore, WinRate, group_scores, win_rates
from eval_factory.core.results import Score, Stats, TaskResult
from stored_results import result

MAIN = Score(0.5, Stats(4, 0.5, None, None, 0.3, 0.7, None), "exact_match", "test", None, higher_is_better=True)
BIAS = "bias_metric:mode=representation,demographic_category=race"


def made(**scores: Score) -> TaskResult:
    return replace(result([]), scores={"exact_match": MAIN, **scores})


def test_a_run_without_such_scores_has_none() -> None:
    assert list(group_scores(made())) == []
    assert list(group_scores(replace(made(ece_10_bin=replace(MAIN, metric="ece_10_bin")), main_metric="gone"))) == []


def test_each_group_takes_its_metrics_in_helms_order() -> None:
    found = made(
        toxic=replace(MAIN, metric="toxic_frac", value=0.1), bias=replace(MAIN, metric=BIAS),
        fair=replace(MAIN, perturbation="fairness.worst"), robust=replace(MAIN, perturbation="robustness.worst"),
        ece=replace(MAIN, metric="ece_10_bin"),
    )  # fmt: skip
    told = [(one.group, one.label, one.lower_is_better) for one in group_scores(found)]
    assert told == [
        ("calibration", "ece", True), ("robustness", "robust", False), ("fairness", "fair", False),
        ("bias", "bias", True), ("toxicity", "toxic", True),
    ]  # fmt: skip
    assert list(group_scores(found))[-1] == GroupScore("toxicity", "toxic", 0.1, 0.3, 0.7, 4, lower_is_better=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation": "robustness"},  # not the worst of each instance
        {"perturbation": "robustness.worst", "split": "valid"},
        {"perturbation": "robustness.worst", "metric": "quasi_exact_match"},
        {"metric": "ece_10_bin", "perturbation": "robustness.worst"},
        {"metric": "ece_1_bin"},
    ],
    ids=["not worst", "other split", "other metric", "perturbed calibration", "other bins"],
)
def test_what_is_nearly_one_is_none(changes: dict[str, Any]) -> None:
    assert list(group_scores(made(other=replace(MAIN, **changes)))) == []


MODELS = ("a", "b", "c")
CHAIN = frozenset({("a", "b"), ("a", "c"), ("b", "c")})


def rates(columns: list[Column], models: tuple[str, ...] = MODELS) -> list[float | None]:
    return [one.win_rate for one in win_rates(models, columns, tested=False)]


def ranks(columns: list[Column], models: tuple[str, ...] = MODELS) -> list[tuple[int | None, int | None]]:
    return [(one.best_rank, one.worst_rank) for one in win_rates(models, columns, tested=True)]


def column(*values: float, lower: bool | None = False, **tests: Any) -> Column:
    return Column("x", dict(zip("abcdefgh", values, strict=False)), lower, **tests)


def test_a_win_rate_is_the_mean_share_of_models_that_are_beaten() -> None:
    assert rates([column(0.9, 0.5, 0.1)]) == [1, 0.5, 0]
    assert rates([column(0.9, 0.5, 0.1), column(0.9, 0.1, 0.5)]) == [1, 0.25, 0.25]


def test_where_lower_is_better_the_lower_value_wins() -> None:
    assert rates([column(0.9, 0.5, 0.1, lower=True)]) == [0, 0.5, 1]


def test_a_column_without_a_direction_and_one_with_a_single_value_do_not_count() -> None:
    found = win_rates(
        MODELS, [column(1, 2, 3, lower=None), Column("y", {"a": 1.0}, lower_is_better=False)], tested=True
    )
    assert found == tuple(WinRate(model, None, 0) for model in MODELS)


def test_a_model_without_a_value_is_not_among_the_others_of_that_column() -> None:
    found = win_rates(MODELS, [column(0.9, 0.5, 0.1), Column("y", {"a": 0.1, "b": 0.2}, False)], tested=False)
    assert [(one.win_rate, one.columns) for one in found] == [(0.5, 2), (0.75, 2), (0, 1)]


def test_comparisons_that_show_a_difference_are_counted_and_those_that_leave_it_open() -> None:
    columns = [column(0.9, 0.5, 0.1, shown=CHAIN), column(0.9, 0.5, 0.1, shown=frozenset({("a", "c")})), column(1, 1)]
    found = win_rates(MODELS, columns, tested=True)
    assert [(one.won, one.lost, one.undecided) for one in found] == [(3, 0, 2), (1, 1, 3), (0, 3, 1)]


def test_where_nothing_is_certain_every_rank_is_open() -> None:
    assert ranks([column(0.9, 0.5, 0.1, shown=CHAIN)]) == [(1, 3)] * 3


def test_what_is_certain_in_the_only_column_orders_the_models() -> None:
    assert ranks([column(0.9, 0.5, 0.1, certain=CHAIN)]) == [(1, 1), (2, 2), (3, 3)]
    assert ranks([column(0.9, 0.5, 0.1, certain=frozenset({("a", "c")}))]) == [(1, 2), (1, 3), (2, 3)]


def test_a_certain_win_in_one_column_may_be_lost_in_another() -> None:
    assert ranks([column(0.9, 0.1, certain=frozenset({("a", "b")})), column(0.9, 0.1)], ("a", "b")) == [(1, 2)] * 2
    both = column(0.9, 0.1, certain=frozenset({("a", "b")}))
    assert ranks([both, column(0.1, 0.9, certain=frozenset({("b", "a")}))], ("a", "b")) == [(1, 2)] * 2
    assert ranks([both, both, column(0.9, 0.1)], ("a", "b")) == [(1, 1), (2, 2)]


def test_of_two_of_which_one_is_certainly_better_it_has_a_win_more() -> None:
    """Of four models, what the other two do is open: the least of a's wins is 1 of 3, the most of b's 2 of 3."""
    assert ranks([column(0.9, 0.5, 0.4, 0.1, certain=frozenset({("a", "b")}))], ("a", "b", "c", "d")) == [
        (1, 3), (2, 4), (1, 4), (1, 4)
    ]  # fmt: skip


def test_models_of_different_columns_are_apart_where_the_least_is_above_the_greatest() -> None:
    first = column(0.9, 0.5, 0.1, certain=CHAIN)
    pair = frozenset({("a", "b")})
    assert ranks([first, Column("y", {"a": 0.9, "b": 0.1}, False, pair, pair)]) == [(1, 1), (2, 2), (3, 3)]
    assert ranks([first, Column("y", {"b": 0.9, "c": 0.1}, False)]) == [(1, 1), (2, 3), (2, 3)]
    assert ranks([first, *[Column("y", {"a": 0.9, "b": 0.1}, False)] * 3]) == [(1, 2), (1, 2), (3, 3)]


def test_seven_benchmarks_with_the_same_winner_show_that_it_is_better_and_six_do_not() -> None:
    assert ranks([column(0.9, 0.1)] * 7, ("a", "b")) == [(1, 1), (2, 2)]
    assert ranks([column(0.1, 0.9)] * 7, ("a", "b")) == [(2, 2), (1, 1)]
    assert ranks([column(0.9, 0.1)] * 6, ("a", "b")) == [(1, 2)] * 2
    assert ranks([column(0.9, 0.1)] * 7 + [column(0.1, 0.9)], ("a", "b")) == [(1, 2)] * 2


def test_columns_of_one_source_are_one_in_the_test_over_benchmarks() -> None:
    variants = [replace(column(0.9, 0.1), source="medec")] * 2
    others = [replace(column(0.9, 0.1), source=f"task {number}") for number in range(5)]
    assert ranks(variants + others, ("a", "b")) == [(1, 2)] * 2  # six sources
    assert ranks([*variants, *others, column(0.9, 0.1)], ("a", "b")) == [(1, 1), (2, 2)]
    against = [replace(column(0.1, 0.9), source="task 0")] * 2  # a win and two defeats on the same questions
    assert ranks([*against, *others, *[column(0.9, 0.1)] * 4], ("a", "b")) == [(1, 2)] * 2


def test_tests_over_benchmarks_are_corrected_for_the_pairs() -> None:
    """The p value of the sign flips is 1/64 with 7 benchmarks and 1/256 with 9; three pairs make three times as much."""
    assert ranks([column(0.9, 0.5, 0.1)] * 7) == [(1, 3)] * 3
    assert ranks([column(0.9, 0.5, 0.1)] * 9) == [(1, 1), (2, 2), (3, 3)]


def test_a_model_without_any_column_has_no_rank_and_takes_none() -> None:
    found = win_rates(("a", "z", "b"), [column(0.9, 0.1)] * 7, tested=True)
    assert found[1] == WinRate("z", None, 0)
    assert [(one.best_rank, one.worst_rank) for one in found] == [(1, 1), (None, None), (2, 2)]


@pytest.mark.parametrize("third", [0.1, 0.7])
def test_the_mean_is_rounded_once(third: float) -> None:
    """As HELM's, statistics.mean: the sum of 1, 1/2 and 0 thirds has no error of its own."""
    (first, *_) = rates([column(0.9, 0.5, 0.1), column(0.5, 0.9, third), column(0.1, 0.5, 0.9)])
    assert first == pytest.approx((1 + (0.5 if third == 0.1 else 0) + 0) / 3, abs=0)
