"""Whether a group of instances differs from the rest, corrected for asking it of many groups. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence

from eval_factory.scoring.intervals import effective_clusters, variance_of

Sample = tuple[Sequence[float], Sequence[Hashable] | None]
"""One value per instance, and of each the source that it shares with others; None where none is known."""


def p_value_of_difference(group: Sample, rest: Sample) -> float | None:
    """Two-sided, of the test that two samples have the same mean; None where it cannot be tested.

    0/1 values: Fisher's exact test (R. A. Fisher, JRSS 85:87-94, 1922). Others: Welch's t test (B. L. Welch, Biometrika
    34:28-35, 1947). Clustered values: t of the difference with the cluster-robust variance. Its degrees of freedom are
    those of the side that has fewer effective clusters: C. A. Cameron and D. L. Miller (Journal of Human Resources
    50:317-372, 2015, section VI) show why few clusters on one side ask for so few; the choice is on the safe side.
    """
    values, others = group[0], rest[0]
    if len(values) < 2 or len(others) < 2:
        return None
    if _is_clustered(group) or _is_clustered(rest):
        return _clustered(group, rest)
    if all(value in (0.0, 1.0) for value in (*values, *others)):
        return _fisher(values, others)
    return _welch(values, others)


def _is_clustered(sample: Sample) -> bool:
    return sample[1] is not None and len(set(sample[1])) < len(sample[0])


def _fisher(values: Sequence[float], others: Sequence[float]) -> float:
    from scipy import stats  # imported here: it takes half a second, and most results have no groups

    table = [[sum(side), len(side) - sum(side)] for side in (values, others)]
    return float(stats.fisher_exact([[int(cell) for cell in row] for row in table]).pvalue)


def _welch(values: Sequence[float], others: Sequence[float]) -> float | None:
    errors = [variance_of(side) / len(side) for side in (values, others)]
    total = math.fsum(errors)
    if total == 0:
        return None
    parts = (error**2 / (len(side) - 1) for error, side in zip(errors, (values, others), strict=True))
    return _two_sided(_difference(values, others) / math.sqrt(total), total**2 / math.fsum(parts))


def _clustered(group: Sample, rest: Sample) -> float | None:
    """A source may be on both sides: what it adds to either mean is added up before it is squared."""
    influence: dict[Hashable, float] = defaultdict(float)
    clusters = []
    for sign, (values, given) in ((1, group), (-1, rest)):
        labels = list(given) if given is not None else [(sign, number) for number in range(len(values))]
        mean = statistics.fmean(values)
        for value, label in zip(values, labels, strict=True):
            influence[label] += sign * (value - mean) / len(values)
        clusters.append(effective_clusters(labels))
    number, degrees = len(influence), min(clusters) - 1
    variance = number / (number - 1) * math.fsum(one * one for one in influence.values()) if number > 1 else 0.0
    if variance == 0 or degrees < 1:
        return None
    return _two_sided(_difference(group[0], rest[0]) / math.sqrt(variance), degrees)


def _difference(values: Sequence[float], others: Sequence[float]) -> float:
    return statistics.fmean(values) - statistics.fmean(others)


def _two_sided(statistic: float, degrees: float) -> float:
    from scipy import special  # imported here: see scoring/intervals.py

    return 2 * float(special.stdtr(degrees, -abs(statistic)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Corrected for their number (S. Holm, Scandinavian Journal of Statistics 6:65-70, 1979). None stays None, and does
    not count."""
    known = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    corrected: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (value, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * value))
        corrected[place] = least
    return corrected
