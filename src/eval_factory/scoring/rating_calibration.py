"""How far a judge's marks on a scale agree with physicians', beside how far these agree with each other. Pure.

As `judge_calibration` has it of decisions; here tables have a cell for each pair of marks, and no pseudo-clusters.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

from eval_factory.scoring.agreement import nearest_rating
from eval_factory.scoring.intervals import NO_INTERVAL, interval_of_mean
from eval_factory.scoring.judge_calibration import (
    FEWEST_ITEMS,
    Calibration,
    Figure,
    Figures,
    Part,
    by_jackknife,
    pooled,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RatedByJudge:
    """One question about one answer, on a scale of more than two marks."""

    conversation: str
    judged: float
    ratings: Mapping[str, float]  # of physicians, by name
    category: str | None = None


def calibration_of_ratings(items: Sequence[RatedByJudge], marks: Sequence[float]) -> Calibration:
    """As `calibration_of`. Kappa has squared weights, bias is a share of the scale, what is of decisions is None.

    Args:
        items: at least one; some have the ratings of two physicians.
        marks: all that there are, the least first.
    """
    by_category: dict[str, list[RatedByJudge]] = defaultdict(list)
    for item in items:
        if item.category is not None:
            by_category[item.category].append(item)
    return Calibration(
        total=_rated_part(items, marks, fewest=1),
        conversations=len({item.conversation for item in items}),
        physicians=len({name for item in items for name in item.ratings}),
        gap=_gap_of_ratings(items, marks),
        always=None,
        categories=pooled({name: _rated_part(by_category[name], marks) for name in sorted(by_category)}),
        lengths={},
        marks=tuple(marks),
    )


def _rated_part(items: Sequence[RatedByJudge], marks: Sequence[float], fewest: int = FEWEST_ITEMS) -> Part:
    labels = sum(len(item.ratings) for item in items)
    if len(items) < fewest:
        return Part(len(items), labels, None, None)
    width = marks[-1] - marks[0]
    apart = [(item.judged - statistics.fmean(item.ratings.values())) / width for item in items]
    interval = NO_INTERVAL
    if len(items) > 1:
        interval = interval_of_mean(apart, scale=(-1.0, 1.0), clusters=[item.conversation for item in items])
    pairs, among = _rated_pairs(items)
    judge = _rated_figures(pairs, marks, Figure(statistics.fmean(apart), interval.low, interval.high))
    return Part(len(items), labels, judge, _rated_figures(among, marks, Figure(0.0, 0.0, 0.0)) if among else None)


_RatedPair = tuple[str, float, float]


def _rated_pairs(items: Sequence[RatedByJudge]) -> tuple[list[_RatedPair], list[_RatedPair]]:
    """As `pairs_of`."""
    among = [(item.conversation, *two) for item in items for two in permutations(item.ratings.values(), 2)]
    return [(item.conversation, item.judged, rating) for item in items for rating in item.ratings.values()], among


def _rated_figures(pairs: Sequence[_RatedPair], marks: Sequence[float], bias: Figure) -> Figures:
    tables = _rated_tables(pairs, marks)
    kappa, ac1 = by_jackknife(
        tables, [0.0] * tables.shape[1], pairs, lambda all_of: rating_agreement(all_of, marks), lowest=(-1.0, -1.0)
    )
    return Figures(Figure(None), kappa, ac1, Figure(None), Figure(None), bias)


def _gap_of_ratings(items: Sequence[RatedByJudge], marks: Sequence[float]) -> Figure:
    """The judge's weighted kappa less the physicians'."""
    import numpy as np

    pairs, among = _rated_pairs(items)
    both = np.hstack([_rated_tables(pairs, marks), _rated_tables(among, marks, pairs)])
    kinds = len(marks) ** 2

    def difference(tables: NDArray[Any]) -> NDArray[Any]:
        judge, physicians = rating_agreement(tables[..., :kinds], marks), rating_agreement(tables[..., kinds:], marks)
        apart: NDArray[Any] = judge - physicians
        return apart[..., :1]

    return by_jackknife(both, [0.0] * both.shape[1], pairs, difference, lowest=(-1.0,))[0]


def _rated_tables(
    pairs: Sequence[_RatedPair], marks: Sequence[float], named: Sequence[_RatedPair] = ()
) -> NDArray[Any]:
    """Of each conversation its counts of each kind of pair, shape (conversations, kinds)."""
    import numpy as np

    conversations = {name: at for at, name in enumerate(dict.fromkeys(name for name, _, _ in named or pairs))}
    found = np.zeros((len(conversations), len(marks), len(marks)))
    for name, one, other in pairs:
        found[conversations[name], nearest_rating(one, marks), nearest_rating(other, marks)] += 1
    return found.reshape(len(conversations), -1)


def rating_agreement(tables: NDArray[Any], marks: Sequence[float]) -> NDArray[Any]:
    """Weighted kappa and Gwet's AC1 of many tables at once: the same as `agreement.weighted_kappa` and `gwet_ac1`.

    Args:
        tables: counts of pairs of ratings, shape (..., marks squared).

    Returns:
        Shape (..., 2); nan where one is not defined.
    """
    import numpy as np

    count = len(marks)
    square = tables.reshape(*tables.shape[:-1], count, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = square / square.sum(axis=(-1, -2), keepdims=True)
        one, other = shares.sum(axis=-1), shares.sum(axis=-2)
        weights = np.subtract.outer(np.array(marks), np.array(marks)) ** 2
        expected = np.einsum("...i,ij,...j->...", one, weights, other)
        kappa = 1 - (shares * weights).sum(axis=(-1, -2)) / expected
        mean = (one + other) / 2
        guessed = (mean * (1 - mean)).sum(axis=-1) / (count - 1)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        return np.stack([kappa, (observed - guessed) / (1 - guessed)], axis=-1)
