"""A rubric's score without its judge's mistakes, as far as physicians' labels of other answers show these. Pure.

W. J. Rogan and B. Gladen, American Journal of Epidemiology 107:71-76, 1978: of what is met a judge calls `sensitivity`
met, of what is not `1 - specificity`, so the share that it calls met says what share is met. A rubric's score is such a
share, weighted by points: each case has what the judge gave (A), and what it had if all criteria were met (B), so

    score = (mean A - (1 - specificity) mean B) / (sensitivity + specificity - 1)

The interval holds every score that the data do not contradict (E. C. Fieller, JRSS B 16:175-185, 1954). What is
uncertain of the run's cases and of the labels is both in it: it has no end where a judge hardly knows met from not met.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval_factory.scoring.intervals import (
    FEWEST,
    LEAST_SOURCES,
    Ends,
    effective_clusters,
    mean_and_variance,
    mean_end_weight,
    t_quantile,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PSEUDO_CLUSTERS = 0.5
"""Of each kind of pair; `judge_calibration` needs 0.75. benchmarks/judge_coverage.py prints what intervals cover."""


@dataclass(frozen=True)
class LabelledPairs:
    """The pairs (judge, physician) of one conversation in one category."""

    conversation: Hashable
    category: str | None
    counts: tuple[int, int, int, int]  # both say met, only the judge, only the physician, none


@dataclass(frozen=True)
class JudgedCases:
    """Of each case of a run: what the judge gave it, what it would have if it met all criteria, and its source."""

    given: Sequence[float]
    possible: Sequence[float]
    clusters: Sequence[Hashable]
    lowest: float  # that their mean can be; the highest is 1

    def in_points(self) -> float:
        return statistics.fmean(self.given)


@dataclass(frozen=True)
class CorrectedByLabels:
    value: float
    ci_low: float
    ci_high: float
    sensitivity: float
    specificity: float

    def of_case(self, given: float, possible: float) -> float:
        """The mean over the cases is the value before it was clipped to what a mean can be."""
        return _corrected(given, possible, self.sensitivity, self.specificity)


def weights_of(
    pairs_in: Mapping[str | None, int], points_in: Mapping[str | None, float], least: int
) -> dict[str | None, float]:
    """Category -> what a pair of labels counts, so that the labels' mix of categories is the run's.

    Criteria whose category has fewer than `least` pairs are taken to be like all labelled ones.

    Args:
        pairs_in: category -> pairs of labels.
        points_in: category -> points of the run's criteria, without their signs.
    """
    shared = {name for name, pairs in pairs_in.items() if name is not None and pairs >= least and points_in.get(name)}
    total, points = sum(pairs_in.values()), sum(points_in.values())
    matched = sum(points_in[name] for name in shared) / points if points else 0.0
    weights = dict.fromkeys(pairs_in, 1 - matched)
    for name in shared:
        weights[name] += points_in[name] / points / (pairs_in[name] / total)
    return weights


def corrected_by_labels(
    cases: JudgedCases, labels: Sequence[LabelledPairs], weights: Mapping[str | None, float]
) -> CorrectedByLabels | None:
    """None where the labels cannot tell: there are too few, the judge's `met` and `not met` say too little, or it says
    `met` more or less often than its sensitivity and specificity allow.

    Args:
        weights: of a pair of labels, by its category; 1 where a category is not named.
    """
    import numpy as np  # imported here, as everywhere: `ls` needs none of it

    by_conversation: dict[Hashable, NDArray[Any]] = defaultdict(lambda: np.zeros(4))
    for one in labels:
        by_conversation[one.conversation] += weights.get(one.category, 1.0) * np.array(one.counts, float)
    tables = np.array([table for table in by_conversation.values() if table.any()])
    if not len(tables) or effective_clusters(cases.clusters) < LEAST_SOURCES:
        return None
    pairs = tables.sum(axis=1)
    units = float(pairs.sum() ** 2 / (pairs**2).sum())
    if units < FEWEST:
        return None
    sensitivity, specificity = map(float, _rates(tables.sum(axis=0)))
    # the jackknife of conversations, with a pseudo-cluster of each kind of pair: a rare mistake may be in no label
    size = PSEUDO_CLUSTERS * float(max(pairs.mean(), pairs.sum() / units - pairs.mean() / 2))
    rows = np.vstack([tables, size * np.eye(4)])
    left_out = _rates(rows.sum(axis=0) - rows)
    apart = left_out - left_out.mean(axis=0)
    variances = (len(rows) - 1) / len(rows) * apart.T @ apart
    ends = _interval(cases, _rates(rows.sum(axis=0)), variances, units)
    if ends is None or not sensitivity + specificity > 1:  # also where one is nan
        return None
    if ends[0] > 1 or ends[1] < cases.lowest:  # the judge of the run cannot be the one of the labels
        return None
    mean = _corrected(cases.in_points(), statistics.fmean(cases.possible), sensitivity, specificity)
    value = min(1.0, max(cases.lowest, mean))
    low, high = max(cases.lowest, min(ends[0], value)), min(1.0, max(ends[1], value))
    return CorrectedByLabels(value, low, high, sensitivity, specificity)


def _rates(tables: NDArray[Any]) -> NDArray[Any]:
    """Sensitivity and specificity of tables of shape (..., 4): shape (..., 2)."""
    import numpy as np

    both, judge, physician, none = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([both / (both + physician), none / (judge + none)], axis=-1)


def _corrected(given: float, possible: float, sensitivity: float, specificity: float) -> float:
    return (given - (1 - specificity) * possible) / (sensitivity + specificity - 1)


def _interval(cases: JudgedCases, rates: NDArray[Any], variances: NDArray[Any], units: float) -> Ends | None:
    """Every score S with (A - sensitivity S - (1 - specificity) (B - S))^2 <= t^2 of its variance: between the roots
    of a quadratic. None where that is no interval."""
    sensitivity, specificity = map(float, rates)
    possible, youden = statistics.fmean(cases.possible), sensitivity + specificity - 1
    # given less what the judge gives for nothing: as uncertain as the run's cases are
    values = [one - (1 - specificity) * all_met for one, all_met in zip(cases.given, cases.possible, strict=True)]
    least, most = (end - (1 - specificity) * possible for end in (cases.lowest, 1.0))
    scale, size = (min(least, *values), max(most, *values)), mean_end_weight(cases.clusters)
    _, of_cases = mean_and_variance(values, cases.clusters, scale, size)
    mean = statistics.fmean(values)
    t = t_quantile(min(units, effective_clusters(cases.clusters)) - 1)
    (of_met, both), (_, of_not_met) = variances.tolist()
    square = youden**2 - t * t * (of_met + of_not_met + 2 * both)
    half = mean * youden - t * t * possible * (of_not_met + both)
    constant = mean**2 - t * t * (of_cases + possible**2 * of_not_met)
    if square <= 0:
        return None
    root = math.sqrt(max(0.0, half * half - square * constant))
    return float(half - root) / square, float(half + root) / square
