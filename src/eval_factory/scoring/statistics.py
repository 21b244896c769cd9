"""Pure statistics of instances' values: which interval a mean gets. The formulas are in `scoring/intervals.py`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence

from eval_factory.core.results import Stats
from eval_factory.scoring.intervals import (
    CONFIDENCE,
    NO_INTERVAL,
    Interval,
    cluster_robust,
    clustered,
    of_equal_values,
    on_a_scale,
    student_t,
    wilson,
    wilson_clustered,
)

__all__ = ["CONFIDENCE", "PROPORTION", "cluster_robust", "describe", "interval_of_mean", "percentile", "wilson"]

PROPORTION = (0.0, 1.0)
WILSON, STUDENT_T, ON_A_SCALE, EXACT = "wilson", "student-t", "student-t-pseudo-values", "exact-one-sided"
CLUSTERED = "-clustered"
"""Ends the name of the method where values of one cluster are not taken for independent."""


def describe(
    values: Sequence[float],
    mean: float | None = None,
    scale: tuple[float, float] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Stats:
    """Mean, sample standard deviation, standard error and a 95 % confidence interval.

    Args:
        values: one value per instance, at least one.
        mean: the mean to report, where it was computed elsewhere (HELM's, to the last digit).
        scale: the least and the greatest value that there can be. Where none is given it is 0 to 1 if all values lie
            in it, and without ends if not.
        clusters: of each value the source that it shares with others; None where none is known.

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
    interval = interval_of_mean(values, center, scale, clusters)
    return Stats(
        count, center, stddev, stderr, interval.low, interval.high, interval.method,
        clusters=number, design_effect=design_effect, effective_n=effective_n,
    )  # fmt: skip


def interval_of_mean(
    values: Sequence[float],
    mean: float | None = None,
    scale: tuple[float, float] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """The 95 % interval of a mean of two values or more, and the name of its method; arguments as `describe`'s.

    | values | interval |
    |---|---|
    | all equal, on a scale | exact one-sided bound; of clustered values each cluster counts once |
    | 0 and 1, on the scale from 0 to 1 | Wilson's; where clustered, on the effective number |
    | others on a scale with ends | Student's t with a pseudo-value at each end |
    | others | Student's t; where clustered, with the cluster-robust variance and clusters - 1 degrees of freedom |

    None where all values are equal and the scale is not known, and where all are of one cluster.
    """
    sources = clusters if clusters is not None and len(set(clusters)) < len(values) else None
    units = len(values) if sources is None else len(set(sources))
    if units < 2:
        return NO_INTERVAL
    least, greatest = min(values), max(values)
    low, high = scale or PROPORTION
    has_ends = low <= least and greatest <= high
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


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile: one of the values; None of nothing."""
    import numpy as np  # imported here: it takes long, and `ls` needs none of it

    return float(np.quantile(values, share, method="inverted_cdf")) if values else None
