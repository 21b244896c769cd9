"""Compares two models on the same instances: difference, interval, test and detectable difference.

The module also computes rank intervals of several models. docs/compare.md describes which test and
interval belong to which values. The instances of one source, such as a patient's note, are a
cluster. An instance that shares its source with no other instance is a cluster of its own.
Pseudo-values, which are added at both ends of a known scale, give nearly equal values an interval
with a width. The functions are pure: they read no files. Each method is SciPy's, or its docstring
names the publication.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from eval_factory.core.enums import Evidence
from eval_factory.scoring import intervals
from eval_factory.scoring.intervals import CONFIDENCE, PROPORTION


def rank_intervals(count: int, shown: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the best and the worst rank that each model may have; rank 1 is the best.

    In 95 % of samples, all these intervals contain the true ranks. A model's best rank is 1 plus
    the number of models that are shown to be better; its worst rank is the number of models minus
    those that are shown to be worse (M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Review of
    Economic Studies 91:476-518, 2024).

    Args:
        count: the number of models; a model is an index below this number.
        shown: (better model, worse model) of each pair that differs significantly, by paired tests
            with Holm's correction.
    """
    better_than = [0] * count  # for each model, the number of models that are better
    worse_than = [0] * count
    for better, worse in shown:
        better_than[worse] += 1
        worse_than[better] += 1
    ranks = []
    for number_better, number_worse in zip(better_than, worse_than, strict=True):
        ranks.append((1 + number_better, count - number_worse))
    return ranks


EQUIVALENCE_CONFIDENCE = 0.90
"""The confidence of two one-sided tests at 5 % (D. J. Schuirmann, J Pharmacokinet Biopharm
15:657-680, 1987).
"""
_INTERVALS = {"ci": CONFIDENCE, "ci90": EQUIVALENCE_CONFIDENCE}
"""A dict from the prefix of two fields of `PairedDifference` to the confidence of the interval.

The prefix of `ci_low` and `ci_high` is `ci`.
"""
ALPHA = 0.05  # the significance level of the tests
POWER = 0.8  # the probability with which a minimum detectable effect is detected
FEW_CLUSTERS = 30
"""Up to this number of clusters, the sign-flip test replaces the t test."""
FLIPS = 9_999
"""The number of random sign flips; if there are fewer possible flips, all of these are used."""
FLIP_SEED = 0  # fixed, so that the same values give the same interval

MCNEMAR = "exact McNemar test, Tango score interval"
PAIRED_T = "paired t"
CLUSTERED_PAIRED_T = "clustered paired t"
SIGN_FLIP = "sign-flip permutation test and its interval"
CLUSTERED_SIGN_FLIP = "sign-flip permutation test of clusters and its interval"


@dataclass(frozen=True)
class PairedDifference:
    """The difference b - a of two models' mean values, in the metric's own unit.

    A field is None if there are too few values to compute it.
    """

    n: int  # the number of pairs
    value_a: float
    value_b: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    p_value: float | None  # two-sided, of the hypothesis that there is no difference
    method: str
    mde: float | None
    """The minimum detectable effect: a sample of this size shows this true difference with a
    probability of 80 %, tested at 5 % two-sided.
    """
    clusters: int | None  # the number of clusters; None if the task declares no sources
    discordant: int  # the number of pairs whose values differ
    ci90_low: float | None = None  # the 90 % interval, from which equivalence is concluded
    ci90_high: float | None = None
    # why there is no interval, or a warning that the interval depends on few clusters
    few_sources: str | None = None

    @property
    def is_significant(self) -> bool:
        """True if both the test and the interval exclude a difference of 0.

        In borderline cases, only the test or only the interval excludes 0; the property is then
        False. The property is also False if there is no test or no interval.
        """
        if self.p_value is None or self.ci_low is None or self.ci_high is None:
            return False
        return self.p_value < ALPHA and not self.ci_low <= 0 <= self.ci_high


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    clusters: Sequence[str] | None = None,
    scale: tuple[float, float] | None = None,
) -> PairedDifference:
    """Return the mean of b's values minus the mean of a's values, with a test and an interval.

    Args:
        a: the values of the first model.
        b: the values of the second model, for the same instances in the same order.
        clusters: the source of each instance, if the task declares sources.
        scale: the lowest and the highest possible value. None stands for 0 and 1 if all values lie
            between 0 and 1, and for an unknown scale otherwise.

    Raises:
        ValueError: There are no pairs, or the lengths of the arguments differ.
    """
    if clusters is not None and len(clusters) != len(a):
        raise ValueError(f"{len(a)} and {len(b)} values, {len(clusters)} clusters")
    if not a or len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values")
    cluster_count = None
    few_sources = None
    if clusters is not None:
        cluster_count = len(set(clusters))
        few_sources = intervals.note_on_few_sources(clusters)
    all_values = {*a, *b}
    if not scale and all(0 <= value <= 1 for value in all_values):
        scale = PROPORTION
    differences = [value_b - value_a for value_a, value_b in zip(a, b, strict=True)]
    are_proportions = scale == PROPORTION and all_values.issubset((0, 1))
    if are_proportions and not intervals.has_shared_source(clusters):
        tested = _test_proportions(differences)
    else:
        tested = _test_means(differences, clusters, scale)
    return PairedDifference(
        n=len(a),
        value_a=statistics.fmean(a),
        value_b=statistics.fmean(b),
        difference=statistics.fmean(differences),
        clusters=cluster_count,
        discordant=sum(value != 0 for value in differences),
        few_sources=few_sources,
        **tested,
    )


def with_labels_uncertainty(paired: PairedDifference, relative_error: float) -> PairedDifference:
    """Widen the intervals of a difference of two scores that were corrected by the same labels.

    Both scores were divided by sensitivity + specificity - 1 of their judge, an estimate from
    labels. By the delta method, two terms add up to the variance of such a quotient: the
    numerator's variance, and the square of (quotient times relative error of the divisor) (A.
    Stuart and K. Ord, Kendall's Advanced Theory of Statistics, volume 1, section 10.6). The p value
    is unchanged.

    Args:
        paired: the difference, with intervals that take the divisor as exact.
        relative_error: the relative standard error of the divisor.
    """
    ends: dict[str, Any] = {}
    for prefix, confidence in _INTERVALS.items():
        quantile = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
        half_width_by_labels = quantile * relative_error * paired.difference
        low = getattr(paired, f"{prefix}_low")
        high = getattr(paired, f"{prefix}_high")
        if low is not None and high is not None:
            below = math.hypot(paired.difference - low, half_width_by_labels)
            above = math.hypot(high - paired.difference, half_width_by_labels)
            ends[f"{prefix}_low"] = paired.difference - below
            ends[f"{prefix}_high"] = paired.difference + above
    return replace(paired, **ends)


def non_inferiority(
    paired: PairedDifference, margin: float, *, higher_is_better: bool = True
) -> Evidence:
    """Return the evidence that b is worse than a by less than `margin`.

    The worse end of the 95 % interval decides (ICH E9, 3.3.2). The evidence is REFUTED if even the
    better end is worse by more than the margin. The evidence is INCONCLUSIVE if the margin lies
    inside the interval, or if there is no interval.
    """
    if paired.ci_low is None or paired.ci_high is None:
        return Evidence.INCONCLUSIVE
    # the ends of the interval of b's advantage, which is positive if b is better
    worst = paired.ci_low
    best = paired.ci_high
    if not higher_is_better:
        worst = -paired.ci_high
        best = -paired.ci_low
    if worst > -margin:
        return Evidence.SHOWN
    if best < -margin:
        return Evidence.REFUTED
    return Evidence.INCONCLUSIVE


def equivalence(paired: PairedDifference, margin: float) -> Evidence:
    """Return the evidence that a and b differ by less than the margin in either direction.

    Two one-sided tests at 5 % decide; they are read from the 90 % interval. The evidence is SHOWN
    if the complete interval lies within the margin on both sides. The evidence is REFUTED if the
    complete interval lies beyond the margin on one side. The evidence is INCONCLUSIVE otherwise,
    and if there is no interval.
    """
    if paired.ci90_low is None or paired.ci90_high is None:
        return Evidence.INCONCLUSIVE
    if -margin < paired.ci90_low and paired.ci90_high < margin:
        return Evidence.SHOWN
    if paired.ci90_high < -margin or paired.ci90_low > margin:
        return Evidence.REFUTED
    return Evidence.INCONCLUSIVE


def _test_proportions(differences: Sequence[float]) -> dict[str, Any]:
    """Return the fields of `PairedDifference` that a test of differences -1, 0 or 1 decides."""
    from scipy import stats  # imported here, because this import takes most of a second

    count = len(differences)
    b_only = differences.count(1)
    a_only = differences.count(-1)
    discordant = a_only + b_only
    low, high = tango_interval(b_only, a_only, count)
    low90, high90 = tango_interval(b_only, a_only, count, EQUIVALENCE_CONFIDENCE)
    p_value = 1.0
    if discordant:
        p_value = float(stats.binomtest(b_only, discordant).pvalue)
    return {
        "ci_low": low,
        "ci_high": high,
        "ci90_low": low90,
        "ci90_high": high90,
        "p_value": p_value,
        "method": MCNEMAR,
        "mde": mcnemar_mde(discordant, count),
    }


def tango_interval(
    b_only: int, a_only: int, count: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the score interval of two paired proportions' difference, (b_only - a_only) / count.

    The interval consists of all differences that the score test does not reject (T. Tango,
    Statistics in Medicine 17:891-908, 1998). For each difference, the share of pairs in which only
    a's value is 1 has its most likely value (section 3). The interval has a width above 0 even if
    a and b are equal in all pairs.

    Args:
        b_only: number of pairs in which only b's value is 1.
        a_only: number of pairs in which only a's value is 1.
        count: number of all pairs.
        confidence: the confidence of the interval.
    """
    from scipy import optimize, stats

    critical = float(stats.norm.ppf(0.5 + confidence / 2))
    estimate = (b_only - a_only) / count

    def excess_of_statistic(difference: float) -> float:
        """Return the absolute score statistic of a difference minus the critical value."""
        deviation = b_only - a_only - count * difference
        if deviation == 0:  # the statistic is 0, even if the variance below is 0
            return -critical
        # the most likely share, as the greater root of 2 count share^2 + linear share + constant
        linear = (2 * count - b_only + a_only) * difference - b_only - a_only
        constant = -a_only * difference * (1 - difference)
        discriminant = max(0.0, linear**2 - 8 * count * constant)  # not below 0 by a rounding error
        share = (math.sqrt(discriminant) - linear) / (4 * count)
        variance = count * (2 * share + difference * (1 - difference))
        if variance <= 0:  # the difference is impossible
            return math.inf
        return abs(deviation) / math.sqrt(variance) - critical

    # The excess is negative at the estimate. It is positive at both ends, -1 and 1, unless the
    # estimate is that end. `brentq` finds the difference at which the excess is 0.
    low = -1.0
    if estimate > -1:
        low = optimize.brentq(excess_of_statistic, -1, estimate)
    high = 1.0
    if estimate < 1:
        high = optimize.brentq(excess_of_statistic, estimate, 1)
    return float(low), float(high)


def mcnemar_mde(discordant: int, count: int) -> float | None:
    """Return the smallest difference of paired proportions that is detected with 80 % power.

    The power is that of the exact McNemar test. The number of discordant pairs is binomial, and so
    is the number of discordant pairs in which b is right (S. W. Duffy, Biometrics 40:1005-1015,
    1984). The formula of the approximate test (R. J. Connor, Biometrics 43:207-211, 1987) promises
    80 % power for differences that the exact test detects with 75 to 79 %. A difference cannot be
    greater than the share of discordant pairs, so this share is raised to the difference if
    necessary. Return None if the sample is too small to detect any difference.

    Args:
        discordant: the observed number of discordant pairs: their two values differ.
        count: number of all pairs.
    """
    import numpy as np
    from scipy import optimize, stats

    def missing_power(difference: float) -> float:
        """Return 80 % minus the power of the test for this difference."""
        share = max(discordant / count, difference)
        # all numbers of discordant pairs that are not extremely unlikely
        fewest = stats.binom.ppf(1e-9, count, share)
        most = stats.binom.isf(1e-9, count, share)
        numbers = np.arange(fewest, most + 1)
        # The test rejects if b is right in more of the discordant pairs than this critical number.
        critical = stats.binom.isf(ALPHA / 2, numbers, 0.5)
        right_by_b = (1 + difference / share) / 2  # the share of discordant pairs with b right
        power_of_number = stats.binom.sf(critical, numbers, right_by_b)
        probability_of_number = stats.binom.pmf(numbers, count, share)
        power = float(np.sum(probability_of_number * power_of_number))
        return POWER - power

    if missing_power(1) > 0:
        return None
    return float(optimize.brentq(missing_power, 1e-9, 1))


def mean_mde(
    clusters: Sequence[Sequence[float]],
    scale: tuple[float, float] | None,
    pseudo_size: float,
    degrees: float,
) -> float | None:
    """Return the smallest mean difference that is detected with 80 % power, by the noncentral t.

    The true differences are assumed to have the spread of the observed differences. The standard
    error grows with the mean difference, because pseudo-values lie at the ends of the scale. Each
    step of the search therefore moves the observed differences to the mean difference of the step
    before (a shift), and computes the mean difference that the test needs with their standard
    error. The search ends when the mean difference is stable. Return None if the sample is too
    small to detect any difference.

    Args:
        clusters: the differences of the instances of each cluster.
        scale: the lowest and the highest possible value, if these are known.
        pseudo_size: the number of pseudo-values at each end of the scale.
        degrees: the degrees of freedom.
    """
    from scipy import optimize, stats

    mean = statistics.fmean(chain.from_iterable(clusters))
    critical = float(stats.t.ppf(1 - ALPHA / 2, degrees))

    def excess_power(mean_in_errors: float) -> float:
        """Return the power of the test minus 80 %, for a mean difference in standard errors."""
        return float(stats.nct.sf(critical, degrees, mean_in_errors)) - POWER

    # the mean difference that the test needs, in standard errors
    needed = optimize.brentq(excess_power, 0, 10 * critical)
    width = _width_of(scale)
    shift = 0.0  # the mean difference of the step before
    _, stderr = _mean_and_stderr(clusters, scale, pseudo_size)
    if not stderr:
        if scale is not None:  # a single cluster, or a scale of width 0
            return None
        return 0.0  # the clusters have equal means: any difference other than 0 is detected
    next_shift: float = needed * stderr
    # Stop when a step changes the shift by less than 0.1 %.
    while shift * 1.001 < next_shift <= width:
        shift = next_shift
        center, stderr = _mean_and_stderr(_shifted(clusters, shift, mean), scale, pseudo_size)
        next_shift = 0.0
        if stderr:
            # If the scale is known, pseudo-values pull `center` towards 0, below `shift`. The
            # factor `shift / center` turns the center that the test needs into a shift.
            next_shift = needed * stderr * shift / center
    if next_shift > width:
        return None
    return next_shift


def _shifted(clusters: Sequence[Sequence[float]], shift: float, mean: float) -> list[list[float]]:
    """Return the clusters' values, moved so that their mean is `shift` instead of `mean`."""
    shifted = []
    for cluster in clusters:
        shifted.append([value - mean + shift for value in cluster])
    return shifted


def _width_of(scale: tuple[float, float] | None) -> float:
    """Return the greatest possible difference of two values."""
    if scale is None:
        return math.inf
    return scale[1] - scale[0]


def _test_means(
    differences: Sequence[float], clusters: Sequence[str] | None, scale: tuple[float, float] | None
) -> dict[str, Any]:
    """Return the fields of `PairedDifference` that a test of differences of any size decides."""
    from scipy import stats

    # Without declared sources, each instance is a cluster, named by its position.
    names = clusters or list(map(str, range(len(differences))))
    by_name: dict[str, list[float]] = {}
    for name, value in zip(names, differences, strict=True):
        by_name.setdefault(name, []).append(value)
    differences_of_clusters = list(by_name.values())
    are_few = len(differences_of_clusters) <= FEW_CLUSTERS
    pseudo_size = intervals.pseudo_size_of_mean(names)
    center, stderr = _mean_and_stderr(differences_of_clusters, scale, pseudo_size)
    degrees = intervals.effective_clusters(names) - 1
    tested: dict[str, Any] = {"method": _METHODS[are_few, bool(clusters)]}
    if stderr is None or degrees < intervals.MIN_CLUSTERS - 1:
        absent = ("ci_low", "ci_high", "ci90_low", "ci90_high", "p_value", "mde")
        return tested | dict.fromkeys(absent)  # all None
    width = _width_of(scale)
    # With too few clusters that differ from 0, the sign-flip interval would be infinite.
    unequal = [values for values in differences_of_clusters if not _sums_to_0(values)]
    by_flips = are_few and len(unequal) >= MIN_UNEQUAL
    for prefix, confidence in _INTERVALS.items():
        if by_flips:
            low, high = sign_flip_interval(differences_of_clusters, confidence)
        else:
            half_width = float(stats.t.ppf(0.5 + confidence / 2, degrees)) * stderr
            low = center - half_width
            high = center + half_width
        tested[f"{prefix}_low"] = max(-width, low)
        tested[f"{prefix}_high"] = min(width, high)
    smallest_p = 0.0  # the smallest p value that the test can have
    if are_few:
        # 2 of the 2^n possible flips of n clusters
        smallest_p = 2.0 ** (1 - len(differences_of_clusters))
        tested["p_value"] = sign_flip_p(list(map(sum, differences_of_clusters)))
    else:
        tested["p_value"] = float(2 * stats.t.sf(abs(center) / stderr, degrees))
    tested["mde"] = None
    if smallest_p < ALPHA:  # otherwise the test cannot detect any difference
        scale_of_mde = scale
        if by_flips:  # without a scale, there are no pseudo-values, as in the sign-flip interval
            scale_of_mde = None
        mde = mean_mde(differences_of_clusters, scale_of_mde, pseudo_size, degrees)
        # Without a scale, `mean_mde` may return a difference that is greater than possible.
        if mde is not None and mde <= width:
            tested["mde"] = mde
    return tested


_METHODS = {
    (True, True): CLUSTERED_SIGN_FLIP,
    (True, False): SIGN_FLIP,
    (False, True): CLUSTERED_PAIRED_T,
    (False, False): PAIRED_T,
}
"""The name of the method, by (True if there are few clusters, True if sources are declared)."""


def _sums_to_0(values: Sequence[float]) -> bool:
    """Return True if the sum of the values is 0, apart from rounding errors."""
    return math.isclose(math.fsum(values), 0, abs_tol=1e-12)


def _mean_and_stderr(
    clusters: Sequence[Sequence[float]], scale: tuple[float, float] | None, pseudo_size: float
) -> tuple[float, float | None]:
    """Return the mean over instances and pseudo-instances, and its cluster-robust standard error.

    The standard error is that of K.-Y. Liang and S. L. Zeger, Biometrika 73:13-22, 1986, with the
    factor G / (G - 1) for G clusters. If the scale is known, a pseudo-cluster of `pseudo_size`
    instances is added at the lowest and at the highest possible difference. Without these clusters,
    nearly equal differences would get an interval without width (the idea of A. Agresti and Y. Min,
    Statistics in Medicine 24:729-740, 2005).

    The standard error is None for a single cluster, and for equal differences if the scale is
    unknown.
    """
    cluster_count = len(clusters)
    values = list(chain.from_iterable(clusters))
    count: float = len(values)
    center = statistics.fmean(values)
    if cluster_count < 2 or (scale is None and len(set(values)) == 1):
        return center, None
    # the squared deviations of the two pseudo-clusters
    square_at_high = 0.0
    square_at_low = 0.0
    if scale is not None:
        # The differences lie between minus and plus the width of the scale. The sums of the two
        # pseudo-clusters are therefore minus and plus this sum, and do not change the total.
        sum_at_high = _width_of(scale) * pseudo_size
        center = center * count / (count + 2 * pseudo_size)
        count = count + 2 * pseudo_size
        square_at_high = (sum_at_high - pseudo_size * center) ** 2
        square_at_low = (sum_at_high + pseudo_size * center) ** 2
    squares = 0.0
    for cluster in clusters:
        squares += sum(value - center for value in cluster) ** 2
    squares = squares + square_at_high + square_at_low
    corrected_squares = squares * cluster_count / (cluster_count - 1)
    return center, math.sqrt(corrected_squares) / count


MIN_UNEQUAL = 6
"""A sign-flip test can reject at 5 % only if this many clusters have a sum other than 0.

With six such clusters, the smallest possible p value is 2 / 2^6 = .03.
"""


def sign_flip_interval(
    clusters: Sequence[Sequence[float]], confidence: float
) -> tuple[float, float]:
    """Return the interval of all mean differences that the sign-flip test does not reject.

    The test flips the signs of clusters. To test a mean difference (a shift), subtract the shift
    from each value. Let S be the sum of all values, and N their number. Let s be the sum of the
    values with the signs of one flip, and n the sum of these signs. The flip's sum is at least as
    far from 0 as the observed sum if and only if the shift lies between two quotients:
    (S - s) / (N - n) and (S + s) / (N + n). The ends of the interval are therefore quantiles of
    these quotients over all flips (J. L. Hodges and E. L. Lehmann, Annals of Mathematical
    Statistics 34:598-611, 1963; P. H. Garthwaite, Biometrics 52:1387-1393, 1996). An end is
    infinite if there are too few flips.
    """
    import numpy as np

    sums = np.array(list(map(math.fsum, clusters)))
    counts = np.array(list(map(len, clusters)), float)
    signs = _signs(len(sums))
    flipped_sums = signs @ sums  # s of each flip
    sums_of_signs = signs @ counts  # n of each flip
    with np.errstate(divide="ignore", invalid="ignore"):
        first = (sums.sum() - flipped_sums) / (counts.sum() - sums_of_signs)
        second = (sums.sum() + flipped_sums) / (counts.sum() + sums_of_signs)
    # Every shift lies between the quotients of a flip of all clusters, or of none.
    flips_all_or_none = np.isclose(np.abs(sums_of_signs), counts.sum())
    lows = np.where(flips_all_or_none, -np.inf, np.minimum(first, second))
    highs = np.where(flips_all_or_none, np.inf, np.maximum(first, second))
    # The test does not reject a shift that lies between the quotients of this many flips.
    rank = math.ceil((1 - confidence) * len(signs))
    return float(np.sort(lows)[rank - 1]), float(np.sort(highs)[-rank])


def _signs(count: int) -> Any:
    """Return sign flips of `count` clusters: one row for each flip, of the values 1 and -1.

    If there are at most `FLIPS` possible flips, return all of them. Otherwise return the row
    without any flip, and `FLIPS` random rows with a fixed seed.
    """
    import numpy as np

    if 2**count <= FLIPS:
        # The binary digits of the numbers below 2^count are all possible flips: a row of digits
        # for each number. For 2 clusters: 00, 01, 10 and 11.
        numbers = np.arange(2**count)[:, None]
        positions = np.arange(count)
        digits = (numbers >> positions) & 1
        return 1.0 - 2.0 * digits  # 0 becomes 1, and 1 becomes -1
    drawn = np.random.default_rng(FLIP_SEED).choice([-1.0, 1.0], size=(FLIPS, count))
    return np.vstack([np.ones(count), drawn])


def sign_flip_p(sums: Sequence[float]) -> float:
    """Return the two-sided p value of the hypothesis that the clusters' sums are 0 on average.

    The p value is the share of sign flips (`_signs`) whose sum is at least as far from 0 as the
    observed sum (R. A. Fisher, The Design of Experiments, 1935, section 21). For differences of 0/1
    values, this is the exact McNemar test, as long as all flips are used.

    Args:
        sums: the sum of the differences of each cluster.
    """
    import numpy as np

    values = np.asarray(sums, dtype=float)
    if not values.any():
        return 1.0
    observed = abs(math.fsum(sums))
    flipped = np.abs(_signs(len(values)) @ values)
    rounding_error = 1e-9 * max(1.0, observed)
    return float((flipped >= observed - rounding_error).mean())
