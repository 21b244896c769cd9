"""Computes 95 % intervals of the mean of instances' values, and chooses the method for a score.

The docstring of each formula names its source. All functions are pure.

Clusters are labels, one per value. Values with the same label share a source (a note, a patient, a
calculator) and are not independent. The formulas need at least two effective clusters, which
`interval_of_mean` checks: clusters of unequal sizes count as a smaller number of equal clusters
(see `effective_clusters`).

A pseudo-cluster has values that were not observed, all at one end of the scale. It is added where
the spread of a sample would be too small (see `student_t_interval`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

from eval_factory.core import formats
from eval_factory.core.results import Stats

CONFIDENCE = 0.95
# the share of samples in which an interval misses the mean on each side
TAIL_ALPHA = (1 - CONFIDENCE) / 2
Bounds = tuple[float, float]  # the lowest and the highest value of a scale or an interval
PROPORTION: Bounds = (0.0, 1.0)


class Interval(NamedTuple):
    """The ends of an interval and the name of its method; all are None if there is no interval."""

    low: float | None
    high: float | None
    method: str | None


NO_INTERVAL = Interval(None, None, None)


def t_quantile(degrees: float, each_side: float = TAIL_ALPHA) -> float:
    """Return the quantile 1 - `each_side` (by default 0.975) of Student's t distribution.

    `degrees`, the degrees of freedom, need not be a whole number.
    """
    from scipy import special  # imported here because a score of 0/1 values does not need scipy

    return float(special.stdtrit(degrees, 1 - each_side))


def wilson(share: float, count: float, quantile: float | None = None) -> Bounds:
    """Return the Wilson score interval of a proportion (E. B. Wilson, JASA 22:209-212, 1927).

    Args:
        share: the observed proportion.
        count: the number of values; for clustered values, their effective number.
        quantile: the quantile of the distribution; None for the normal quantile of a 95 % interval.
    """
    z = quantile
    if z is None:
        z = statistics.NormalDist().inv_cdf(1 - TAIL_ALPHA)
    # The middle is the weighted mean of the share, which has the weight 1, and of the value 1/2.
    weight_of_half = z * z / count
    middle = (share + weight_of_half / 2) / (1 + weight_of_half)
    variance = share * (1 - share) / count + weight_of_half / (4 * count)
    half_width = z * math.sqrt(variance) / (1 + weight_of_half)
    return max(0.0, middle - half_width), min(1.0, middle + half_width)


def clopper_pearson(right: float, count: int, each_side: float) -> Bounds:
    """Return the exact interval of a proportion.

    Source: C. J. Clopper and E. S. Pearson, Biometrika 26:404-413, 1934. The exact interval
    replaces Wilson's interval for levels above 95 %. At these levels, Wilson's interval misses
    proportions near 0 and 1 far too often.

    Args:
        right: the number of values 1.
        count: the number of all values.
        each_side: the share of samples in which the interval may miss the proportion on each side.
    """
    from scipy import special  # imported here: see `t_quantile`

    wrong = count - right
    # Each end is a quantile of a beta distribution.
    low = special.betaincinv(right, wrong + 1, each_side)
    high = special.betaincinv(right + 1, wrong, 1 - each_side)
    return float(low), float(high)


def effective_clusters(clusters: Sequence[Hashable]) -> float:
    """Return the number of clusters of equal size that would give the same precision.

    The number is the squared sum of the sizes, divided by the sum of the squared sizes (L. Kish,
    Survey Sampling, 1965, section 8.2). A t statistic of clusters of unequal size behaves like the
    t statistic of this number of equal clusters (A. V. Carter, K. T. Schnepel and D. G.
    Steigerwald, Review of Economics and Statistics 99:698-709, 2017). Intervals and tests of
    clustered values therefore use this number less one as their degrees of freedom.
    """
    sizes = Counter(clusters).values()
    return len(clusters) ** 2 / sum(size * size for size in sizes)


def mean_and_variance(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    scale: Bounds = PROPORTION,
    pseudo_size: float = 0.0,
) -> tuple[float, float]:
    """Return the mean of clustered values and the variance of this mean.

    The variance is valid for any dependence within clusters. It is the linearised ("sandwich")
    variance of a mean, with the factor C / (C - 1) for C clusters (W. G. Cochran, Sampling
    Techniques, 1977, section 9A.3; K.-Y. Liang and S. L. Zeger, Biometrika 73:13-22, 1986).

    Args:
        values: the values.
        clusters: the cluster of each value.
        scale: the ends of the scale, at which the pseudo-clusters are added.
        pseudo_size: the number of values in the pseudo-cluster at each end; 0 for no
            pseudo-clusters.
    """
    low, high = scale
    count = len(values) + 2 * pseudo_size
    mean = (math.fsum(values) + pseudo_size * (low + high)) / count
    deviation_by_cluster: dict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        deviation_by_cluster[cluster] += value - mean
    deviations = list(deviation_by_cluster.values())
    if pseudo_size:
        deviations += [pseudo_size * (low - mean), pseudo_size * (high - mean)]
    cluster_count = len(deviations)
    factor = cluster_count / (cluster_count - 1)
    return mean, factor * _sum_of_squares(deviations) / count**2


def pseudo_size_of_proportion(clusters: Sequence[Hashable]) -> float:
    """Return the number of values in a pseudo-cluster, for values 0 and 1.

    If nearly all values are equal, and the other values are in a few clusters, the variance of the
    sample alone is far too small. A pseudo-cluster is therefore added at each end of the scale
    (benchmarks/interval_coverage.py measures the effect). If all clusters have the same size, the
    pseudo-cluster has half this size, as Jeffreys' prior adds half a success and half a failure. If
    a few clusters are large, the pseudo-cluster is nearly as large as an effective cluster.
    """
    mean_size = len(clusters) / len(set(clusters))
    # The first term is the size of an effective cluster.
    return len(clusters) / effective_clusters(clusters) - mean_size / 2


def pseudo_size_of_mean(clusters: Sequence[Hashable]) -> float:
    """Return the number of values in a pseudo-cluster, for values other than 0 and 1.

    The number is that of `pseudo_size_of_proportion`, but at least the mean size of a cluster.
    """
    mean_size = len(clusters) / len(set(clusters))
    return max(mean_size, pseudo_size_of_proportion(clusters))


def design_effect(values: Sequence[float], scale: Bounds, clusters: Sequence[Hashable]) -> float:
    """Return the design effect of clustered values on a scale, at least 1.

    The design effect is the variance of the mean, divided by the variance that the mean of
    independent values would have. Both include a pseudo-cluster at each end of the scale.
    """
    low, high = scale
    size = pseudo_size_of_proportion(clusters)
    count = len(values) + 2 * size
    mean, variance = mean_and_variance(values, clusters, scale, size)
    squares_at_ends = size * ((low - mean) ** 2 + (high - mean) ** 2)
    squares = _sum_of_squares(value - mean for value in values) + squares_at_ends
    # For independent values, the variance would be squares / (count * (count - 1)).
    return max(1.0, variance * count * (count - 1) / squares)


def wilson_clustered(
    values: Sequence[float], clusters: Sequence[Hashable], each_side: float = TAIL_ALPHA
) -> Bounds:
    """Return the Wilson interval of clustered 0/1 values.

    The interval uses the effective number of values: their number divided by the design effect. The
    normal quantile is replaced by the t quantile whose degrees of freedom are the effective
    clusters less one. Sources: E. L. Korn and B. I. Graubard, Survey Methodology 24:193-201, 1998;
    C. Franco, R. Little, T. Louis and E. Slud, Journal of Survey Statistics and Methodology
    7:334-364, 2019, who recommend Wilson's interval.
    """
    effective_count = len(values) / design_effect(values, PROPORTION, clusters)
    quantile = t_quantile(effective_clusters(clusters) - 1, each_side)
    return wilson(statistics.fmean(values), effective_count, quantile)


def variance_of(values: Sequence[float]) -> float:
    """Return the sample variance of two or more values."""
    mean = statistics.fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def student_t_interval(
    values: Sequence[float],
    scale: Bounds | None = None,
    clusters: Sequence[Hashable] | None = None,
    each_side: float = TAIL_ALPHA,
) -> Bounds:
    """Return Student's t interval of the mean of two or more values.

    On a scale with ends, the interval is computed with a pseudo-value at each end. If nearly all
    values of a population are at one end, a sample often has none of the rare other values. The
    spread of the sample is then too small, and an interval of the sample alone covers the mean far
    less often than it should. The pseudo-values make the spread at least as large as with one
    unseen value at the far end. Pseudo-observations are also usual for proportions (A. Agresti and
    B. A. Coull, The American Statistician 52:119-126, 1998; one observation of each kind: A.
    Agresti and B. Caffo, 54:280-288, 2000). Clustered values get a pseudo-cluster at each end
    (`pseudo_size_of_mean`).

    Args:
        values: the values.
        scale: the lowest and the highest possible value; None if the scale has no ends.
        clusters: the cluster of each value; None if the values are independent.
        each_side: the share of samples in which the interval may miss the mean on each side.
    """
    labels: Sequence[Hashable] = range(len(values))
    if clusters is not None:
        labels = clusters
    size = 0.0
    low = -math.inf
    high = math.inf
    if scale is not None:
        size = pseudo_size_of_mean(labels)
        low, high = scale
    # Without ends, `size` is 0, and the scale has no effect.
    mean, variance = mean_and_variance(values, labels, scale or PROPORTION, size)
    half_width = t_quantile(effective_clusters(labels) - 1, each_side) * math.sqrt(variance)
    return max(low, mean - half_width), min(high, mean + half_width)


def lower_end_of_scale(values: Sequence[float], lowest: Sequence[float], high: float) -> float:
    """Return the lower end of a mean's scale, if each value has a lowest possible value of its own.

    The cases of a rubric, for example, have different lowest values. The lower end is the mean of
    the lowest values. If the interquartile range of the values is below a third of the scale, the
    lower end is the smallest of the lowest values: nearly equal values do not show how far their
    tail reaches.

    Args:
        values: the observed values.
        lowest: the lowest possible value of each instance.
        high: the upper end of the scale.
    """
    mean = statistics.fmean(lowest)
    if len(values) < 2:  # a single value has no quartiles
        return mean
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    if third - first < (high - mean) / 3:
        return min(lowest)
    return mean


def _sum_of_squares(values: Iterable[float]) -> float:
    return math.fsum(value * value for value in values)


def interval_of_equal_values(
    value: float, count: float, scale: Bounds, each_side: float = TAIL_ALPHA
) -> Bounds:
    """Return the interval of the mean if all values of the sample are equal.

    If all `count` values are equal, the share of other values in the population is at most q = 1 -
    0.025 ** (1 / count). This is the exact one-sided 97.5 % bound (C. J. Clopper and E. S. Pearson,
    Biometrika 26:404-413, 1934), because a two-sided 95 % interval may miss 2.5 % on each side. An
    end of the interval is the mean of a population in which the share q lies at that end of the
    scale.

    Args:
        value: the value that all instances have.
        count: the number of values; for clustered values, the number of effective clusters.
        scale: the lowest and the highest possible value.
        each_side: the share of samples in which the interval may miss the mean on each side.
    """
    low, high = scale
    share = 1 - each_side ** (1 / count)
    return value - share * (value - low), value + share * (high - value)


WILSON = "wilson"
STUDENT_T = "student-t"
ON_A_SCALE = "student-t-pseudo-values"
EXACT = "exact-one-sided"
CLOPPER_PEARSON = "clopper-pearson"
# the ending of the method's name if the interval takes clusters into account
CLUSTERED = "-clustered"
# the ending of the method's name if the interval is valid at all planned looks (interim analyses)
OF_LOOKS = "-of-{}-looks"
MIN_CLUSTERS = 2  # the smallest number of effective clusters for an interval
FEW_SOURCES = 6
"""With fewer effective clusters, a note says that few sources decide the interval."""
LARGE_SOURCE = 0.3
"""With a larger share of all values in one cluster, a note says that few sources decide the
interval.
"""
MIN_UNBOUNDED = 100
"""The smallest number of values for an interval if some values are outside their scale. A smaller
sample may have none of the rare values that are far below the scale.
"""


def describe(
    values: Sequence[float],
    mean: float | None = None,
    scale: Bounds | None = None,
    clusters: Sequence[Hashable] | None = None,
    lowest: Sequence[float] | None = None,
    looks: float = 1,
) -> Stats:
    """Return the mean, the sample standard deviation, the standard error and a 95 % interval.

    The standard error of clustered values is the cluster-robust standard error. With fewer than
    `MIN_CLUSTERS` effective clusters, there is no standard error and no interval.

    Args:
        values: one value per instance, at least one. A single value has no interval.
        mean: the mean to report; None for the mean of the values. HELM's mean may differ from it.
        scale: the lowest and the highest possible value. None means 0 to 1 if all values are in
            this range, and otherwise an unknown scale without ends.
        clusters: the source of each value; None if no sources are known.
        lowest: the lowest possible value of each instance, if the instances differ.
        looks: the largest number of looks (interim analyses). The interval is valid at all looks.
            The number may have a fraction, which stands for another error rate.
    """
    count = len(values)
    if mean is None:
        mean = statistics.fmean(values)
    cluster_count = None
    if clusters is not None:
        cluster_count = len(set(clusters))
    if count < 2:
        return Stats.without_interval(count, mean, clusters=cluster_count)
    stddev = statistics.stdev(values)
    stderr: float | None = stddev / math.sqrt(count)
    effect = None
    if clusters is not None:
        stderr, effect = _clustered_stderr(values, clusters)
    effective_n = None
    if effect is not None:
        effective_n = count / max(1.0, effect)  # at most the number of values
    each_side = TAIL_ALPHA / looks  # the error is divided among the looks (Bonferroni)
    low, high, method = interval_of_mean(
        values, mean=mean, scale=scale, clusters=clusters, lowest=lowest, each_side=each_side
    )
    if looks > 1 and method is not None:
        method += OF_LOOKS.format(looks)
    return Stats(
        count,
        mean,
        stddev=stddev,
        stderr=stderr,
        ci_low=low,
        ci_high=high,
        ci_method=method,
        clusters=cluster_count,
        design_effect=effect,
        effective_n=effective_n,
    )


def _clustered_stderr(
    values: Sequence[float], clusters: Sequence[Hashable]
) -> tuple[float | None, float | None]:
    """Return the cluster-robust standard error of the mean, and the design effect.

    The design effect (L. Kish, Survey Sampling, 1965, section 8.2) has no pseudo-clusters, unlike
    that of the function `design_effect`. It is None if all values are equal. Both are None if there
    are fewer than `MIN_CLUSTERS` effective clusters.
    """
    if effective_clusters(clusters) < MIN_CLUSTERS:
        return None, None
    _, variance = mean_and_variance(values, clusters)
    variance_if_independent = variance_of(values) / len(values)
    effect = None
    if variance_if_independent:
        effect = variance / variance_if_independent
    return math.sqrt(variance), effect


def interval_of_mean(
    values: Sequence[float],
    mean: float | None = None,
    scale: Bounds | None = None,
    clusters: Sequence[Hashable] | None = None,
    lowest: Sequence[float] | None = None,
    each_side: float = TAIL_ALPHA,
) -> Interval:
    """Return the interval of the mean of two or more values, and the name of its method.

    The page docs/statistics.md explains the choice of the method. If the instances have lowest
    values of their own, the scale begins at the `lower_end_of_scale` of these values. The result is
    `NO_INTERVAL` if there are fewer than `MIN_CLUSTERS` effective clusters, or if values outside
    the scale do not allow an interval (see `MIN_UNBOUNDED`).

    The arguments are those of `describe`, and `each_side`: the share of samples in which the
    interval may miss the mean on each side.
    """
    sources = None  # stays None if no two values share a source
    units: float = len(values)  # the number of independent values
    name_ending = ""
    if has_shared_source(clusters):
        sources = clusters
        units = effective_clusters(sources)
        name_ending = CLUSTERED
    if units < MIN_CLUSTERS:
        return NO_INTERVAL
    low, high = scale or PROPORTION
    if lowest is not None and min(lowest) < low:
        low = lower_end_of_scale(values, lowest, high)
        is_off_scale = False  # Each value is on the scale of its own instance.
    else:
        is_off_scale = min(values) < low or max(values) > high
    if min(values) == max(values):
        if is_off_scale:
            return NO_INTERVAL
        ends = interval_of_equal_values(values[0], units, (low, high), each_side)
        return Interval(*ends, EXACT + name_ending)
    # the reported mean less the mean of the values, by which the interval is moved
    offset = 0.0
    if mean is not None:
        offset = mean - statistics.fmean(values)
    if (low, high) == PROPORTION and set(values) <= set(PROPORTION):  # all values are 0 or 1
        method, ends = _interval_of_proportion(values, sources, each_side)
        offset = 0.0  # The interval of a proportion is not symmetric, and is not moved.
    elif not is_off_scale:
        method = ON_A_SCALE
        ends = student_t_interval(values, (low, high), sources, each_side)
    elif scale is not None and len(values) < MIN_UNBOUNDED:
        return NO_INTERVAL  # Some values are outside the stated scale, and the sample is small.
    else:
        method = STUDENT_T
        ends = student_t_interval(values, clusters=sources, each_side=each_side)
        low = -math.inf
        high = math.inf
    low = max(low, ends[0] + offset)
    high = min(high, ends[1] + offset)
    return Interval(low, high, method + name_ending)


def _interval_of_proportion(
    values: Sequence[float], sources: Sequence[Hashable] | None, each_side: float
) -> tuple[str, Bounds]:
    """Return the name of the method and the interval of 0/1 values."""
    if sources is not None:
        return WILSON, wilson_clustered(values, sources, each_side)
    if each_side == TAIL_ALPHA:  # a 95 % interval; see `clopper_pearson` for other levels
        return WILSON, wilson(statistics.fmean(values), len(values))
    return CLOPPER_PEARSON, clopper_pearson(sum(values), len(values), each_side)


def has_shared_source(clusters: Sequence[Hashable] | None) -> TypeGuard[Sequence[Hashable]]:
    """Return True if at least two values have the same source."""
    return clusters is not None and len(set(clusters)) < len(clusters)


def note_on_few_sources(clusters: Sequence[Hashable]) -> str | None:
    """Return a note if the values have too few clusters for an interval, or if few clusters decide
    the interval.

    Return None otherwise, and if no two values share a source.
    """
    if not has_shared_source(clusters):
        return None
    sources = Counter(clusters)
    effective = effective_clusters(clusters)
    largest = max(sources.values()) / len(clusters)
    comparison = (
        f"the {len(sources)} sources of the questions say as much as "
        f"{formats.decimals(effective, digits=1)} of equal size"
    )
    if effective < MIN_CLUSTERS:
        return f"there is no interval: {comparison}, and {MIN_CLUSTERS} such sources are needed"
    if effective < FEW_SOURCES or largest > LARGE_SOURCE:
        return (
            f"few sources decide the interval: {comparison}, "
            f"and the largest holds {formats.percent(largest, digits=0)} of the questions"
        )
    return None


def holm_corrected(
    p_values: Sequence[float | None], *, count_missing: bool = False
) -> list[float | None]:
    """Return the p values, corrected for the number of tests by Holm's method.

    Source: S. Holm, Scandinavian Journal of Statistics 6:65-70, 1979.

    Args:
        p_values: the p value of each test; None for a test without one. A None stays None.
        count_missing: True if the number of tests includes the tests without a p value.
    """
    sorted_values = sorted(
        (value, index) for index, value in enumerate(p_values) if value is not None
    )
    tests = len(sorted_values)
    if count_missing:
        tests = len(p_values)
    corrected: list[float | None] = [None] * len(p_values)
    largest_so_far = 0.0  # A corrected p value is at least the corrected p value before.
    for rank, (value, index) in enumerate(sorted_values):
        largest_so_far = max(largest_so_far, min(1.0, (tests - rank) * value))
        corrected[index] = largest_so_far
    return corrected


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile, which is one of the values; None without values.

    `share` is the share of the values that are at most the percentile, from 0 to 1.
    """
    import numpy as np  # imported here because the import is slow, and `ls` does not need numpy

    if not values:
        return None
    return float(np.quantile(values, share, method="inverted_cdf"))


BCA = "bca-bootstrap"  # the method's name
SEED = 20_240_607  # fixed, so that the same values give the same interval
RESAMPLES = 2_000
MIN_UNITS = 5  # the smallest number of effective clusters for a bootstrap or a jackknife


def bca_interval_of_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the 95 % BCa interval of sum(numerators) / sum(denominators).

    Source: B. Efron, JASA 82:171-185, 1987. Precision and recall are such ratios. So is the mean of
    a metric that counts some instances more than once: sum(value * count) / sum(count).
    `scipy.stats.bootstrap` resamples complete clusters.

    Args:
        numerators: the numerator of each instance.
        denominators: the denominator of each instance.
        clusters: the cluster of each instance; None if the instances are independent.

    Returns:
        `NO_INTERVAL` if there are fewer than `MIN_UNITS` effective clusters, if all clusters have
        the same ratio, or if an end of the interval is not finite.
    """
    labels: Sequence[Hashable] = range(len(numerators))
    method = BCA
    if clusters is not None:
        labels = clusters
        method = BCA + CLUSTERED
    # cluster -> the sum of its numerators, the sum of its denominators
    sums: dict[Hashable, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for numerator, denominator, label in zip(numerators, denominators, labels, strict=True):
        numerator_sum, denominator_sum = sums[label]
        sums[label] = (numerator_sum + numerator, denominator_sum + denominator)
    ratios = {numerator / denominator for numerator, denominator in sums.values() if denominator}
    if effective_clusters(labels) < MIN_UNITS or len(ratios) < 2:
        return NO_INTERVAL
    # SciPy's statistics are imported here: the import takes half a second, and most scores are
    # means, which do not need it.
    import numpy as np
    from scipy import stats

    def ratio(numerator_sums: Any, denominator_sums: Any, axis: int = -1) -> Any:
        return np.sum(numerator_sums, axis=axis) / np.sum(denominator_sums, axis=axis)

    # A resample may have no denominators, so that its ratio is not defined.
    with np.errstate(invalid="ignore", divide="ignore"):
        resampled = stats.bootstrap(
            np.array(list(sums.values()), float).T,  # a row of numerators, a row of denominators
            ratio,
            paired=True,
            vectorized=True,
            method="BCa",
            confidence_level=CONFIDENCE,
            n_resamples=RESAMPLES,
            rng=np.random.default_rng(SEED),
        ).confidence_interval
    low = float(resampled.low)
    high = float(resampled.high)
    if not math.isfinite(low) or not math.isfinite(high):
        return NO_INTERVAL
    return Interval(low, high, method)
