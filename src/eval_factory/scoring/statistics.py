"""Pure statistics of instances' values: which interval a mean gets. The formulas are in `scoring/intervals.py`."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence

from eval_factory.core.results import Stats
from eval_factory.scoring.intervals import (
    CONFIDENCE,
    NO_INTERVAL,
    Interval,
    cluster_robust,
    clustered,
    effective_clusters,
    lower_end,
    mean_end_weight,
    of_equal_values,
    on_a_scale,
    student_t,
    wilson,
    wilson_clustered,
)

__all__ = [
    "CONFIDENCE",
    "PROPORTION",
    "cluster_robust",
    "describe",
    "effective_clusters",
    "few_sources",
    "interval_of_mean",
    "lower_end",
    "mean_end_weight",
    "percentile",
    "wilson",
]

PROPORTION = (0.0, 1.0)
WILSON, STUDENT_T, ON_A_SCALE, EXACT = "wilson", "student-t", "student-t-pseudo-values", "exact-one-sided"
CLUSTERED = "-clustered"
"""Ends the name of the method where values of one cluster are not taken for independent."""
LEAST_SOURCES, FEW_SOURCES, LARGE_SOURCE = 2, 6, 0.3
"""Effective clusters that an interval needs; below which, or with a cluster above that share, few of them decide it."""
LEAST_UNBOUNDED = 100
"""Values that leave their scale, by nobody knows how much, have an interval from this number on: rare and great losses
are in no smaller sample."""


def describe(
    values: Sequence[float],
    mean: float | None = None,
    scale: tuple[float, float] | None = None,
    clusters: Sequence[Hashable] | None = None,
    lowest: Sequence[float] | None = None,
) -> Stats:
    """Mean, sample standard deviation, standard error and a 95 % confidence interval.

    Args:
        values: one value per instance, at least one.
        mean: the mean to report, where it was computed elsewhere (HELM's, to the last digit).
        scale: the least and the greatest value that there can be. Where none is given it is 0 to 1 if all values lie
            in it, and without ends if not.
        clusters: of each value the source that it shares with others; None where none is known.
        lowest: of each value the least that it can be, where that is another for each.

    The standard error of clustered values is the cluster-robust one. One value alone has no interval.
    """
    count = len(values)
    center = statistics.fmean(values) if mean is None else mean
    number = None if clusters is None else len(set(clusters))
    if count < 2:
        return Stats(count, center, None, None, None, None, None, clusters=number)
    stddev = statistics.stdev(values)
    stderr: float | None = stddev / math.sqrt(count)
    design_effect = effective_n = None
    if clusters is not None:
        found = clustered(values, clusters)
        stderr = None if found is None else math.sqrt(found.variance)
        design_effect = None if found is None else found.design_effect
        effective_n = None if design_effect is None else count / max(1.0, design_effect)
    interval = interval_of_mean(values, center, scale, clusters, lowest)
    return Stats(
        count, center, stddev, stderr, interval.low, interval.high, interval.method,
        clusters=number, design_effect=design_effect, effective_n=effective_n,
    )  # fmt: skip


def interval_of_mean(
    values: Sequence[float],
    mean: float | None = None,
    scale: tuple[float, float] | None = None,
    clusters: Sequence[Hashable] | None = None,
    lowest: Sequence[float] | None = None,
) -> Interval:
    """The 95 % interval of a mean of two values or more, and the name of its method; arguments as `describe`'s.

    | values | interval |
    |---|---|
    | all equal, on a scale | exact one-sided bound; of clustered values the effective number of clusters counts |
    | 0 and 1, on the scale from 0 to 1 | Wilson's; where clustered, on the effective number |
    | others on a scale with ends | Student's t with a pseudo-value at each end |
    | others | Student's t; where clustered, with the cluster-robust variance |

    Where each value has a lowest one of its own, the scale begins at `intervals.lower_end` of them. Clustered values
    have the effective number of clusters less one as their degrees of freedom. None where all values are equal and the
    scale is not known, of fewer than two effective clusters, and of fewer than 100 values that leave their scale.
    """
    sources = clusters if clusters is not None and len(set(clusters)) < len(values) else None
    units = len(values) if sources is None else effective_clusters(sources)
    if units < LEAST_SOURCES:
        return NO_INTERVAL
    least, greatest = min(values), max(values)
    low, high = scale or PROPORTION
    has_ends = low <= least and greatest <= high
    if lowest is not None and min(lowest) < low:
        low, has_ends = lower_end(values, lowest, high), True
    by_cluster = "" if sources is None else CLUSTERED
    if least == greatest:
        if not has_ends:
            return NO_INTERVAL
        return Interval(*of_equal_values(least, units, (low, high)), EXACT + by_cluster)
    if (low, high) == PROPORTION and all(value in PROPORTION for value in values):
        share = statistics.fmean(values)
        ends = wilson(share, len(values)) if sources is None else wilson_clustered(values, sources)
        return _interval(ends, WILSON + by_cluster)
    moved = 0.0 if mean is None else mean - statistics.fmean(values)
    if has_ends:
        ends = on_a_scale(values, (low, high), sources)
        return _interval(ends, ON_A_SCALE + by_cluster, moved, (low, high))
    if scale is not None and len(values) < LEAST_UNBOUNDED:
        return NO_INTERVAL
    ends = student_t(values) if sources is None else cluster_robust(values, sources)
    return _interval(ends, STUDENT_T + by_cluster, moved)


def _interval(
    ends: tuple[float, float] | None,
    method: str,
    moved: float = 0.0,
    scale: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """`moved`: how far the mean that is reported lies from that of the values."""
    if ends is None:
        return NO_INTERVAL
    return Interval(max(scale[0], ends[0] + moved), min(scale[1], ends[1] + moved), method)


def few_sources(clusters: Sequence[Hashable]) -> str | None:
    """Why clustered values have no interval, or that few clusters decide it; None where neither is so."""
    sources = Counter(clusters)
    if len(sources) == len(clusters):
        return None
    effective, largest = effective_clusters(clusters), max(sources.values()) / len(clusters)
    as_much = f"{len(sources)} sources say as much as {effective:.1f} of equal size"
    if effective < LEAST_SOURCES:
        return f"there is no interval: {as_much}, and {LEAST_SOURCES} are needed"
    if effective < FEW_SOURCES or largest > LARGE_SOURCE:
        return f"few sources decide the interval: {as_much}, and the largest holds {100 * largest:.0f} %"
    return None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile: one of the values; None of nothing."""
    import numpy as np  # imported here: it takes long, and `ls` needs none of it

    return float(np.quantile(values, share, method="inverted_cdf")) if values else None
