"""Computes the figures of HELM's leaderboards (metric groups, mean win rates), and possible ranks.

Win rates are computed as in `compute_aggregate_row_win_rates` of
helm/benchmark/presentation/summarize.py (crfm-helm 0.5.16). A column is one metric of one
benchmark. In each column, a model's win rate is the share of the other models that the model beats;
a tie counts one half. The mean win rate is the mean over the columns in which the model has a
value. A column is skipped if its better direction is not known, or if fewer than two models have a
value. `tests/helm` checks that these win rates equal HELM's to the last digit. The groups are
`metric_groups` of helm/benchmark/static/schema_classic.yaml, with the names of the scores in a
result. The possible ranks are an addition of this project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, permutations
from statistics import mean

from eval_factory.core.results import Scores, TaskResult
from eval_factory.scoring.intervals import holm_corrected
from eval_factory.scoring.paired import ALPHA, rank_intervals, sign_flip_p

# the names of the metric groups that are not in `GROUPS`
ACCURACY = "accuracy"
EFFICIENCY = "efficiency"
_WORST = ".worst"
"""The end of a perturbation's label for scores over the worst variant of each question."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("ece_10_bin",),
    "robustness": (),
    "fairness": (),
    "bias": (
        "bias_metric:mode=associations,demographic_category=race,target_category=profession",
        "bias_metric:mode=associations,demographic_category=gender,target_category=profession",
        "bias_metric:mode=representation,demographic_category=race",
        "bias_metric:mode=representation,demographic_category=gender",
    ),
    "toxicity": ("toxic_frac",),
}
"""The metrics of each metric group; a lower value of these metrics is better.

A group without metrics is scored by the main metric under the perturbation with the group's name.
Accuracy is left out because it is the main metric, and efficiency because times differ between
equal runs.
"""


@dataclass(frozen=True)
class GroupScore:
    """A score of a run that belongs to a metric group."""

    group: str
    label: str  # the score's name in the result
    value: float
    ci_low: float | None
    ci_high: float | None
    n: int  # the number of instances
    lower_is_better: bool | None  # None if not known


def group_scores(result: TaskResult) -> Iterator[GroupScore]:
    """Yield the scores of the metric groups that a run computed, on the split of its main score."""
    main = result.scores.get(result.main_metric)
    if main is None:
        return
    main_lower_is_better = None  # if not known
    if main.higher_is_better is not None:
        main_lower_is_better = not main.higher_is_better
    for group, metrics in GROUPS.items():
        if metrics:
            for metric in metrics:
                slice_of_metric = (metric, main.split, None)  # without a perturbation
                yield from _scores_over(slice_of_metric, group, result.scores, lower_is_better=True)
        else:
            worst = (main.metric, main.split, group + _WORST)
            yield from _scores_over(
                worst, group, result.scores, lower_is_better=main_lower_is_better
            )


def _scores_over(
    slice_of_metric: tuple[str | None, str | None, str | None],
    group: str,
    scores: Scores,
    *,
    lower_is_better: bool | None,
) -> Iterator[GroupScore]:
    """Yield the scores of a group that have this metric, split and perturbation.

    Args:
        slice_of_metric: the metric, the split and the perturbation.
        group: the group.
        scores: all scores of the run.
        lower_is_better: True if a lower score is better; None if not known.
    """
    for label, score in scores.items():
        if (score.metric, score.split, score.perturbation) == slice_of_metric:
            stats = score.stats
            yield GroupScore(
                group,
                label,
                score.value,
                ci_low=stats.ci_low,
                ci_high=stats.ci_high,
                n=stats.count,
                lower_is_better=lower_is_better,
            )


ALPHA_OF_EACH = ALPHA / 2
"""The significance level of each of the two kinds of tests, half of `ALPHA`.

Ranks depend on tests over instances and on tests over benchmarks. The probability that any test of
either kind is wrong is at most `ALPHA`.
"""


@dataclass(frozen=True)
class LeaderboardColumn:
    """A column of a leaderboard: one metric of one benchmark."""

    name: str
    values: Mapping[str, float]  # model -> value, of the models that have a value
    lower_is_better: bool | None  # None if not known; the column is then skipped
    shown: AbstractSet[tuple[str, str]] = field(default_factory=frozenset)
    """The pairs (better model, worse model) that differ significantly in this column."""
    certain: AbstractSet[tuple[str, str]] = field(default_factory=frozenset)
    """The pairs (better model, worse model) that differ significantly at `ALPHA_OF_EACH`, corrected
    for the pairs of all columns.
    """
    # the name of the source of questions; columns with the same source share their questions
    source: str | None = None

    @property
    def is_counted(self) -> bool:
        """True if the column counts for win rates."""
        return self.lower_is_better is not None and len(self.values) > 1

    @property
    def opponents(self) -> int:
        """The number of other models with which each model is compared in this column."""
        return len(self.values) - 1

    def wins(self, model: str) -> float:
        """Return the number of models that a model beats, plus half the number of ties."""
        value = self.values[model]
        rival_values = list(self.values.values())
        rival_values.remove(value)  # once: this is the value of the model itself
        if self.lower_is_better:
            beaten = sum(rival > value for rival in rival_values)
        else:
            beaten = sum(rival < value for rival in rival_values)
        return beaten + rival_values.count(value) / 2


@dataclass(frozen=True)
class WinRate:
    """The mean win rate of one model.

    The win rate is None if no column that counts has a value of the model. The ranks and the
    numbers of comparisons are None in this case, and also if differences were not tested.
    """

    model: str
    win_rate: float | None
    columns: int  # the number of columns over which the mean is computed
    best_rank: int | None = None  # counted from 1
    worst_rank: int | None = None
    # the number of comparisons, over all columns, in which the model is significantly better
    won: int | None = None
    lost: int | None = None
    undecided: int | None = None  # the number of comparisons without a significant difference


def win_rates(
    models: Sequence[str], columns: Iterable[LeaderboardColumn], *, with_ranks: bool
) -> tuple[WinRate, ...]:
    """Return the mean win rate of each model, in the order of the models.

    The ranks are those of M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Review of Economic
    Studies 91:476-518, 2024: a model's best rank is 1 plus the number of models that are shown to
    have a greater mean win rate. In 95 % of samples, the true ranks of all models lie in their
    ranges at the same time.

    Args:
        models: the names of the models.
        columns: the columns of the leaderboard.
        with_ranks: True to compute ranks and decisions, from the results of tests in the columns.
    """
    counted_columns = [column for column in columns if column.is_counted]
    rates = []
    for model in models:
        shares = [
            column.wins(model) / column.opponents for column in _with_value(model, counted_columns)
        ]
        win_rate = None
        if shares:
            win_rate = mean(shares)
        rates.append(WinRate(model, win_rate, columns=len(shares)))
    if with_ranks:
        rates = _with_ranks(rates, counted_columns)
    return tuple(rates)


def _with_ranks(
    rates: Sequence[WinRate], counted_columns: Sequence[LeaderboardColumn]
) -> list[WinRate]:
    """Return the win rates with the possible ranks, and the numbers of comparisons won and lost.

    `counted_columns`: the columns that count for win rates.
    """
    models = [rate.model for rate in rates if rate.win_rate is not None]
    # the pairs (better model, worse model) that one of the two kinds of tests shows
    shown = set(_better_over_benchmarks(models, counted_columns))
    for better, worse in permutations(models, 2):
        if _is_better_over_instances(better, worse, counted_columns):
            shown.add((better, worse))
    pairs = []  # the same pairs, as indices in `models`
    for better, worse in shown:
        pairs.append((models.index(better), models.index(worse)))
    ranks = dict(zip(models, rank_intervals(len(models), pairs), strict=True))
    rates_with_ranks = []
    for rate in rates:
        if rate.model in ranks:
            best, worst = ranks[rate.model]
            rate = replace(rate, best_rank=best, worst_rank=worst)
            rate = _with_decisions(rate, _with_value(rate.model, counted_columns))
        rates_with_ranks.append(rate)
    return rates_with_ranks


def _with_decisions(rate: WinRate, columns: Sequence[LeaderboardColumn]) -> WinRate:
    """Return the win rate with the numbers of comparisons that are won, lost and undecided."""
    won = 0
    lost = 0
    opponents = 0
    for column in columns:
        opponents += column.opponents
        won += len(_pairs_won(rate.model, column.shown))
        lost += len(_pairs_lost(rate.model, column.shown))
    return replace(rate, won=won, lost=lost, undecided=opponents - won - lost)


def _pairs_won(model: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] == model]


def _pairs_lost(model: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[1] == model]


def _with_value(model: str, columns: Iterable[LeaderboardColumn]) -> list[LeaderboardColumn]:
    """Return the columns in which a model has a value."""
    return [column for column in columns if model in column.values]


def _better_over_benchmarks(
    models: Sequence[str], columns: Sequence[LeaderboardColumn]
) -> Iterator[tuple[str, str]]:
    """Yield (better model, worse model) of each pair that differs significantly over benchmarks.

    The test treats the columns as a sample. It flips the sign of the difference of wins in each
    column at random; columns of one source, such as variants of a benchmark, are flipped together.
    The test needs columns of at least seven sources to show a difference: the smallest two-sided p
    value of six signs is 2 / 2**6 = 0.031, which is above `ALPHA_OF_EACH`. The p values are
    corrected for the pairs (Holm), as in J. Demsar, Journal of Machine Learning Research 7:1-30,
    2006.
    """
    pairs = list(combinations(models, 2))
    differences = []
    p_values: list[float | None] = []
    for first, second in pairs:
        by_source = _differences_by_source(first, second, columns)
        differences.append(sum(by_source))
        if len(by_source) > 1:
            p_values.append(sign_flip_p(by_source))
        else:
            p_values.append(None)  # a single difference cannot be tested
    # The correction is for all pairs, also those that cannot be tested.
    corrected = holm_corrected(p_values, count_missing=True)
    for (first, second), difference, p_value in zip(pairs, differences, corrected, strict=True):
        if p_value is not None and p_value < ALPHA_OF_EACH:
            if difference > 0:
                yield first, second
            else:
                yield second, first


def _differences_by_source(
    first: str, second: str, columns: Sequence[LeaderboardColumn]
) -> list[float]:
    """Return the difference of the two win rates, summed over the columns of each source."""
    sums: dict[str, float] = {}
    for number, column in enumerate(columns):
        if first in column.values and second in column.values:
            source = f"column {number}"  # A column without a source is flipped alone.
            if column.source is not None:
                source = f"source {column.source}"
            difference = (column.wins(first) - column.wins(second)) / column.opponents
            sums[source] = sums.get(source, 0.0) + difference
    return list(sums.values())


def _is_better_over_instances(
    first: str, second: str, columns: Sequence[LeaderboardColumn]
) -> bool:
    """Return True if the tests over instances show a greater mean win rate of the first model.

    The function compares the lowest possible win rate of the first model with the highest possible
    win rate of the second model. The lowest win rate counts only the certain wins. The highest win
    rate counts all comparisons except the certain losses. The sums are exact fractions, because a
    sum of floats that should be 0 may be slightly above 0.
    """
    columns_of_first = _with_value(first, columns)
    columns_of_second = _with_value(second, columns)
    lowest_of_first = []
    for column in columns_of_first:
        lowest_of_first.append(_certain_share(_pairs_won(first, column.certain), column))
    highest_of_second = []
    for column in columns_of_second:
        highest_of_second.append(1 - _certain_share(_pairs_lost(second, column.certain), column))
    if columns_of_first != columns_of_second:
        # The models do not share all columns, so only the means can be compared.
        return mean(lowest_of_first) > mean(highest_of_second)
    total = Fraction(0)
    for column, lowest, highest in zip(
        columns_of_first, lowest_of_first, highest_of_second, strict=True
    ):
        difference = lowest - highest
        if (first, second) in column.certain:
            # In this column, the win rate of the first model is greater by at least one win.
            difference = max(difference, Fraction(1, column.opponents))
        total += difference
    return total > 0


def _certain_share(pairs: Sequence[tuple[str, str]], column: LeaderboardColumn) -> Fraction:
    """Return the number of pairs as a share of a model's opponents in a column."""
    return Fraction(len(pairs), column.opponents)
