"""Mean win rates as HELM's leaderboards show them, and how far chance in the instances may move them.

HELM's is `compute_aggregate_row_win_rates` in helm/benchmark/presentation/summarize.py (crfm-helm 0.5.16): in each
column the share of the other models that a model beats, a tie counting one half; the mean over the columns in which the
model has a value. A column is skipped where no direction is better, or fewer than two models have a value. `tests/helm`
holds ours to it, to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import mean

from eval_factory.analysis.ranks import rank_intervals


@dataclass(frozen=True)
class Column:
    """One metric of one benchmark: what a leaderboard has a column of."""

    name: str
    values: Mapping[str, float]
    """Model -> its value; a model without one is not there."""
    lower_is_better: bool | None
    shown: AbstractSet[tuple[str, str]] = field(default_factory=frozenset)
    """(better, worse): differences that are shown, all columns together in 95 % of samples."""

    @property
    def counts(self) -> bool:
        """Whether it enters win rates."""
        return self.lower_is_better is not None and len(self.values) > 1


@dataclass(frozen=True)
class WinRate:
    """Of one model. None where no column counts that it has a value in."""

    model: str
    win_rate: float | None
    columns: int
    """Columns that it is the mean of."""
    low: float | None = None
    """The win rate if every difference that is not shown were a defeat."""
    high: float | None = None
    best_rank: int | None = None
    worst_rank: int | None = None


def win_rates(models: Sequence[str], columns: Iterable[Column], *, tested: bool) -> tuple[WinRate, ...]:
    """The mean win rate of each model, in their order.

    A model that beats another in a column for certain has a win more there than that one, at the least. So the least
    and the greatest win rate, and the least difference of two, follow from the differences that are shown; all hold
    together wherever those are right. From the differences follow ranks, as in M. Mogstad, J. P. Romano, A. M. Shaikh,
    D. Wilhelm, Review of Economic Studies 91:476-518, 2024.

    Args:
        tested: whether the columns say what is shown; else there are no intervals and no ranks.
    """
    counted = [column for column in columns if column.counts]
    found = [WinRate(model, _mean_win_rate(model, counted), len(_of(model, counted))) for model in models]
    if not tested:
        return tuple(found)
    ranked = [one.model for one in found if one.win_rate is not None]
    better = [
        (ranked.index(one), ranked.index(other))
        for one in ranked
        for other in ranked
        if one != other and _is_better(one, other, counted)
    ]
    ranks = dict(zip(ranked, rank_intervals(len(ranked), better), strict=True))
    return tuple(_with_interval(one, counted, ranks) for one in found)


def _of(model: str, columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if model in column.values]


def _mean_win_rate(model: str, columns: Sequence[Column]) -> float | None:
    rates = [_wins(model, column) / (len(column.values) - 1) for column in _of(model, columns)]
    return mean(rates) if rates else None


def _wins(model: str, column: Column) -> float:
    """Models that it beats, and half of those that it ties with."""
    own = column.values[model]
    others = [value for other, value in column.values.items() if other != model]
    beaten = sum(value > own if column.lower_is_better else value < own for value in others)
    return beaten + others.count(own) / 2


def _with_interval(one: WinRate, columns: Sequence[Column], ranks: Mapping[str, tuple[int, int]]) -> WinRate:
    if one.win_rate is None:
        return one
    own = _of(one.model, columns)
    low, high = (float(_average([bound(one.model, column) for column in own])) for bound in (_least, _most))
    best, worst = ranks[one.model]
    return WinRate(one.model, one.win_rate, one.columns, min(low, one.win_rate), max(high, one.win_rate), best, worst)


def _average(shares: Sequence[Fraction]) -> Fraction:
    return sum(shares, Fraction(0)) / len(shares)


def _least(model: str, column: Column) -> Fraction:
    """Wins that are shown, as a share of the other models."""
    return Fraction(sum(better == model for better, _ in column.shown), len(column.values) - 1)


def _most(model: str, column: Column) -> Fraction:
    """All wins but those that are shown to be none."""
    return 1 - Fraction(sum(worse == model for _, worse in column.shown), len(column.values) - 1)


def _is_better(one: str, other: str, columns: Sequence[Column]) -> bool:
    """Whether its true mean win rate is shown to be the greater one. Fractions: a sum of rounded ones may not be 0."""
    own, others = _of(one, columns), _of(other, columns)
    if own != others:
        return _average([_least(one, each) for each in own]) > _average([_most(other, each) for each in others])
    return sum(_least_difference(one, other, column) for column in own) > 0


def _least_difference(one: str, other: str, column: Column) -> Fraction:
    apart = _least(one, column) - _most(other, column)
    shown = (one, other) in column.shown
    return max(apart, Fraction(1, len(column.values) - 1)) if shown else apart
