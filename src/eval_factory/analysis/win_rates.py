"""HELM's leaderboards: metric groups, mean win rates, and the ranks that chance leaves open.

The win rate is `compute_aggregate_row_win_rates` in helm/benchmark/presentation/summarize.py
(crfm-helm 0.5.16): in each column the share of the other models that a model beats, a tie counting
one half; the mean over the columns in which the model has a value. A column is skipped where no
direction is better, or fewer than two models have a value. `tests/helm` holds ours to it, to the
last digit. The groups are `metric_groups` of helm/benchmark/static/schema_classic.yaml, with the
names that scores have in a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, combinations, permutations
from statistics import mean

from eval_factory.core.results import TaskResult
from eval_factory.scoring.intervals import holm
from eval_factory.scoring.paired import ALPHA, rank_intervals, sign_flip_p

ACCURACY = "accuracy"
EFFICIENCY = "efficiency"
_WORST = ".worst"
"""What the label of a perturbation ends with where HELM took the worst value of each instance's
variants.
"""
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
"""Group -> metrics of which less is better; none: the main metric, with the perturbation that the
group is called by. All but accuracy, which is the main metric, and efficiency: no two runs have the
same times.
"""


@dataclass(frozen=True)
class GroupScore:
    """A score of a run that belongs to a group."""

    group: str
    label: str  # the score's name in the result
    value: float
    ci_low: float | None
    ci_high: float | None
    n: int
    lower_is_better: bool | None


def group_scores(result: TaskResult) -> Iterator[GroupScore]:
    """Those that the run computed, on the split of its main score."""
    main = result.scores.get(result.main_metric)
    if main is None:
        return
    main_lower = None if main.higher_is_better is None else not main.higher_is_better
    for group, metrics in GROUPS.items():
        which = (main.split, None if metrics else group + _WORST)
        lower = True if metrics else main_lower
        for metric in metrics or (main.metric,):
            for label, score in result.scores.items():
                if (score.metric, score.split, score.perturbation) == (metric, *which):
                    stats = score.stats
                    yield GroupScore(
                        group, label, score.value, stats.ci_low, stats.ci_high, stats.count, lower
                    )


ALPHA_OF_EACH = ALPHA / 2
"""Ranks rest on two kinds of tests, over instances and over benchmarks: each kind may be wrong
half as often.
"""


@dataclass(frozen=True)
class Column:
    """One metric of one benchmark: what a leaderboard has a column of."""

    name: str
    values: Mapping[str, float]  # model -> its value; a model without one is not there
    lower_is_better: bool | None
    shown: AbstractSet[tuple[str, str]] = field(default_factory=frozenset)
    """(better, worse): differences that the tests of this column show."""
    certain: AbstractSet[tuple[str, str]] = field(default_factory=frozenset)
    """Those that are shown at `ALPHA_OF_EACH` with all columns together."""
    source: str | None = None  # what it shares its questions with; None: with no other column

    @property
    def counts(self) -> bool:
        """Whether it enters win rates."""
        return self.lower_is_better is not None and len(self.values) > 1


@dataclass(frozen=True)
class WinRate:
    """Of one model. None where no column counts that it has a value in, or nothing was tested."""

    model: str
    win_rate: float | None
    columns: int  # columns that it is the mean of
    best_rank: int | None = None
    worst_rank: int | None = None
    won: int | None = None  # other models in all columns that it is shown to be better than
    lost: int | None = None
    undecided: int | None = None  # neither of the two, though one value be greater than the other


def win_rates(
    models: Sequence[str], columns: Iterable[Column], *, tested: bool
) -> tuple[WinRate, ...]:
    """The mean win rate of each model, in their order; with ranks where the columns were `tested`:
    say what is shown.

    The ranks are those of M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Review of Economic
    Studies 91:476-518, 2024: a model's best rank leaves room for those alone that are shown to have
    a greater mean win rate, all models together right in 95 % of samples.
    """
    counted = [column for column in columns if column.counts]
    found = []
    for model in models:
        rates = [_wins(model, column) / (len(column.values) - 1) for column in _of(model, counted)]
        found.append(WinRate(model, mean(rates) if rates else None, len(rates)))
    return tuple(_with_ranks(found, counted) if tested else found)


def _with_ranks(found: Sequence[WinRate], counted: Sequence[Column]) -> list[WinRate]:
    ranked = [one.model for one in found if one.win_rate is not None]
    shown = {pair for pair in permutations(ranked, 2) if _is_better(*pair, counted)}
    shown |= set(_by_columns(ranked, counted))
    numbers = {model: number for number, model in enumerate(ranked)}
    intervals = rank_intervals(
        len(ranked), [(numbers[better], numbers[worse]) for better, worse in shown]
    )
    ranks = dict(zip(ranked, intervals, strict=True))
    complete = []
    for one in found:
        if one.model in ranks:
            own = _of(one.model, counted)
            (best, worst) = ranks[one.model]
            pairs = list(chain.from_iterable(column.shown for column in own))
            won = sum(better == one.model for better, _ in pairs)
            lost = sum(worse == one.model for _, worse in pairs)
            undecided = sum(len(column.values) - 1 for column in own) - won - lost
            one = replace(
                one, best_rank=best, worst_rank=worst, won=won, lost=lost, undecided=undecided
            )
        complete.append(one)
    return complete


def _of(model: str, columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if model in column.values]


def _wins(model: str, column: Column) -> float:
    """Models that it beats, and half of those that it ties with."""
    own = column.values[model]
    others = [value for other, value in column.values.items() if other != model]
    beaten = sum(value > own if column.lower_is_better else value < own for value in others)
    return beaten + others.count(own) / 2


def _by_columns(models: Sequence[str], columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """(better, worse) by the columns that both have, as a sample: their wins, with the sign flipped
    at random.

    A paired test over benchmarks, with Holm's correction for the pairs (J. Demsar, Journal of
    Machine Learning Research 7:1-30, 2006). It needs seven columns or more. Those of one source,
    such as variants of a benchmark, are flipped together.
    """
    pairs = list(combinations(models, 2))
    differences = []
    for one, other in pairs:
        sums: dict[str, float] = {}  # of each source over its columns
        for number, column in enumerate(columns):
            if one in column.values and other in column.values:
                source = f"column {number}" if column.source is None else f"source {column.source}"
                apart = (_wins(one, column) - _wins(other, column)) / (len(column.values) - 1)
                sums[source] = sums.get(source, 0.0) + apart
        differences.append(list(sums.values()))
    p_values = holm(
        [sign_flip_p(found) if len(found) > 1 else None for found in differences],
        unknown_count=True,
    )
    for (one, other), found, p_value in zip(pairs, differences, p_values, strict=True):
        if p_value is not None and p_value < ALPHA_OF_EACH:
            yield (one, other) if sum(found) > 0 else (other, one)


def _is_better(one: str, other: str, columns: Sequence[Column]) -> bool:
    """By the tests of each column, whatever became of the differences that are not shown.

    A model that is shown to be better than others has so many wins at the least; one that is shown
    to be worse lacks so many at the least. Of two of which one is shown to be better, it has a win
    more than the other there. Fractions: a sum of rounded numbers that ought to be 0 may be above
    it.
    """
    own = _of(one, columns)
    others = _of(other, columns)
    # wins that are certain, as a share of the other models; all but those that certainly are none
    least = [
        Fraction(sum(better == one for better, _ in each.certain), len(each.values) - 1)
        for each in own
    ]
    most = [
        1 - Fraction(sum(worse == other for _, worse in each.certain), len(each.values) - 1)
        for each in others
    ]
    if own != others:
        return sum(least) * len(most) > sum(most) * len(least)
    apart = Fraction(0)
    for column, wins, wins_of_other in zip(own, least, most, strict=True):
        a_win = Fraction(1, len(column.values) - 1)
        certain = (one, other) in column.certain
        apart += max(wins - wins_of_other, a_win) if certain else wins - wins_of_other
    return apart > 0
