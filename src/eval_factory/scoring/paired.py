"""Compares two models on the same instances: difference, interval, test and detectable difference.

The module also computes rank intervals of several models. docs/compare.md describes which test and
interval belong to which values. The instances of one source are a cluster. An instance that shares
its source with no other instance is a cluster of its own. The functions are pure: they read no
files. Each method is SciPy's, or its docstring names the source.
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
        count: the number of models.
        shown: (better model, worse model) of each pair that differs significantly, by paired tests
            with Holm's correction.
    """
    above = [0] * count
    below = [0] * count
    for better, worse in shown:
        above[worse] += 1
        below[better] += 1
    ranks = []
    for better_models, worse_models in zip(above, below, strict=True):
        ranks.append((1 + better_models, count - worse_models))
    return ranks


EQUIVALENCE_CONFIDENCE = 0.90
"""The confidence of two one-sided tests at 5 % (D. J. Schuirmann, J Pharmacokinet Biopharm
15:657-680, 1987).
"""
_INTERVALS = {"ci": CONFIDENCE, "ci90": EQUIVALENCE_CONFIDENCE}
"""Beginning of the names of two fields, such as `ci_low` and `ci_high` -> confidence."""
ALPHA = 0.05  # the significance level of the tests
POWER = 0.8  # the power with which a minimum detectable effect is detected
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
    def significant(self) -> bool:
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
        scale: the lowest and the highest possible value; if absent, 0 and 1 if all values lie
            between them.

    Raises:
        ValueError: There are no pairs, or the lengths of the arguments differ.
    """
    declared = None
    few_sources = None
    if clusters is not None:
        if len(clusters) != len(a):
            raise ValueError(f"{len(a)} and {len(b)} values, {len(clusters)} clusters")
        declared = len(set(clusters))
    if not a or len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values")
    if clusters is not None:
        few_sources = intervals.few_sources(clusters)
    if not scale and all(0 <= value <= 1 for value in (*a, *b)):
        scale = PROPORTION
    differences = [after - before for before, after in zip(a, b, strict=True)]
    if scale == PROPORTION and set(a) | set(b) <= {0, 1} and declared in (None, len(a)):
        tested = _test_proportions(differences)
    else:
        tested = _test_means(differences, clusters, scale)
    return PairedDifference(
        n=len(a),
        value_a=statistics.fmean(a),
        value_b=statistics.fmean(b),
        difference=statistics.fmean(differences),
        clusters=declared,
        discordant=sum(value != 0 for value in differences),
        few_sources=few_sources,
        **tested,
    )


def with_labels_uncertainty(paired: PairedDifference, relative: float) -> PairedDifference:
    """Widen the intervals of a difference of two scores that the same labels corrected.

    Both scores were divided by sensitivity + specificity - 1 of their judge, an estimate from
    labels. By the delta method, the variance of such a quotient is the numerator's variance plus
    the square of (quotient times relative error of the divisor) (A. Stuart and K. Ord, Kendall's
    Advanced Theory of Statistics, volume 1, section 10.6). The p value is unchanged.

    Args:
        paired: the difference, with intervals that take the divisor as exact.
        relative: the relative standard error of the divisor.
    """
    limits: dict[str, Any] = {}
    for name, confidence in _INTERVALS.items():
        quantile = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
        label_part = quantile * relative * paired.difference
        low = getattr(paired, f"{name}_low")
        high = getattr(paired, f"{name}_high")
        if low is not None and high is not None:
            below = math.hypot(paired.difference - low, label_part)
            above = math.hypot(high - paired.difference, label_part)
            limits[f"{name}_low"] = paired.difference - below
            limits[f"{name}_high"] = paired.difference + above
    return replace(paired, **limits)


def non_inferiority(
    paired: PairedDifference, margin: float, *, higher_is_better: bool = True
) -> Evidence:
    """Return the evidence that b is worse than a by less than `margin`.

    The worse end of the 95 % interval decides (ICH E9, 3.3.2). The evidence is REFUTED if even the
    better end is worse by more than the margin, and INCONCLUSIVE if the margin lies inside the
    interval or if there is no interval.
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
    if the complete interval lies within the margin, REFUTED if the complete interval lies beyond
    the margin on one side, and INCONCLUSIVE otherwise or without an interval.
    """
    if paired.ci90_low is None or paired.ci90_high is None:
        return Evidence.INCONCLUSIVE
    if -margin < paired.ci90_low and paired.ci90_high < margin:
        return Evidence.SHOWN
    if paired.ci90_high < -margin or paired.ci90_low > margin:
        return Evidence.REFUTED
    return Evidence.INCONCLUSIVE


def _test_proportions(differences: Sequence[float]) -> dict[str, Any]:
    """Return {field of `PairedDifference`: value} of a test of differences that are -1, 0 or 1."""
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

    T. Tango, Statistics in Medicine 17:891-908, 1998: the interval consists of all differences that
    the score test does not reject; a's share of discordant pairs is at its constrained maximum
    (section 3). The interval has a width above 0 even if no pair is discordant.

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
        excess = b_only - a_only - count * difference
        if excess == 0:  # the statistic is 0, even if the variance below is 0
            return -critical
        linear = (2 * count - b_only + a_only) * difference - b_only - a_only
        constant = -a_only * difference * (1 - difference)
        share = (math.sqrt(max(0.0, linear**2 - 8 * count * constant)) - linear) / (4 * count)
        variance = count * (2 * share + difference * (1 - difference))
        if variance <= 0:
            return math.inf
        return abs(excess) / math.sqrt(variance) - critical

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
    80 % where the exact test has 75 to 79 %. A difference cannot be greater than the share of
    discordant pairs, so this share is raised to the difference if necessary. Return None if the
    sample is too small to detect any difference.

    Args:
        discordant: the observed number of pairs whose values differ.
        count: number of all pairs.
    """
    import numpy as np
    from scipy import optimize, stats

    def missing_power(difference: float) -> float:
        """Return 80 % minus the power of the test for this difference."""
        share = max(discordant / count, difference)
        totals = np.arange(
            stats.binom.ppf(1e-9, count, share), stats.binom.isf(1e-9, count, share) + 1
        )
        # The test rejects if b is right in more of the discordant pairs than this critical number.
        critical = stats.binom.isf(ALPHA / 2, totals, 0.5)
        power = stats.binom.sf(critical, totals, (1 + difference / share) / 2)
        return POWER - float(np.sum(stats.binom.pmf(totals, count, share) * power))

    if missing_power(1) > 0:
        return None
    return float(optimize.brentq(missing_power, 1e-9, 1))


def mean_mde(
    clusters: Sequence[Sequence[float]],
    scale: tuple[float, float] | None,
    weight: float,
    freedom: float,
) -> float | None:
    """Return the smallest mean difference that is detected with 80 % power, by the noncentral t.

    The differences are assumed to spread as the observed ones do. The standard error grows with
    the difference, because pseudo-values lie at the ends of the scale; the search therefore
    repeats until the difference is stable. Return None if the sample is too small to detect any
    difference.

    Args:
        clusters: the differences of the instances of each cluster.
        scale: the lowest and the highest possible value, if these are known.
        weight: the weight of the pseudo-values at each end, in instances.
        freedom: the degrees of freedom.
    """
    from scipy import optimize, stats

    mean = statistics.fmean(chain.from_iterable(clusters))
    critical = float(stats.t.ppf(1 - ALPHA / 2, freedom))
    needed = optimize.brentq(
        lambda errors: stats.nct.sf(critical, freedom, errors) - POWER, 0, 10 * critical
    )
    width = _width_of(scale)
    shift = 0.0
    _, stderr = _mean_and_stderr(clusters, scale, weight)
    next_shift = math.inf
    if stderr:
        next_shift = needed * stderr
    while shift * 1.001 < next_shift <= width:
        shift = next_shift
        center, stderr = _mean_and_stderr(_shifted(clusters, shift, mean), scale, weight)
        next_shift = 0.0
        if stderr:
            # If the scale is known, pseudo-values pull `center` towards 0, below `shift`. The
            # quotient of the two turns the center that the test needs into a shift.
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
    """Return {field of `PairedDifference`: value} of a test of differences of any size."""
    from scipy import stats

    names = clusters or list(map(str, range(len(differences))))
    by_name: dict[str, list[float]] = {}
    for name, value in zip(names, differences, strict=True):
        by_name.setdefault(name, []).append(value)
    members = list(by_name.values())
    are_few = len(members) <= FEW_CLUSTERS
    weight = intervals.mean_end_weight(names)
    center, stderr = _mean_and_stderr(members, scale, weight)
    freedom = intervals.effective_clusters(names) - 1
    tested: dict[str, Any] = {"method": _METHODS[are_few, bool(clusters)]}
    if stderr is None or freedom < intervals.MIN_CLUSTERS - 1:
        absent = ("ci_low", "ci_high", "ci90_low", "ci90_high", "p_value", "mde")
        return tested | dict.fromkeys(absent)  # all None
    width = _width_of(scale)
    # With too few clusters that differ from 0, the sign-flip interval would be infinite.
    unequal = [values for values in members if not _sums_to_0(values)]
    by_flips = are_few and len(unequal) >= MIN_UNEQUAL
    for name, confidence in _INTERVALS.items():
        if by_flips:
            low, high = sign_flip_interval(members, confidence)
        else:
            half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * stderr
            low = center - half
            high = center + half
        tested[f"{name}_low"] = max(-width, low)
        tested[f"{name}_high"] = min(width, high)
    smallest_p = 0.0  # the smallest p value that the test can have
    if are_few:
        smallest_p = 2.0 ** (1 - len(members))  # 2 of the 2^n possible flips
        tested["p_value"] = sign_flip_p(list(map(sum, members)))
    else:
        tested["p_value"] = float(2 * stats.t.sf(abs(center) / stderr, freedom))
    tested["mde"] = None
    if smallest_p < ALPHA:  # otherwise the test cannot detect any difference
        scale_of_values = scale
        if by_flips:  # the sign-flip interval uses no pseudo-values
            scale_of_values = None
        mde = mean_mde(members, scale_of_values, weight, freedom)
        if mde is not None and mde <= width:
            tested["mde"] = mde
    return tested


_METHODS = {
    (True, True): CLUSTERED_SIGN_FLIP,
    (True, False): SIGN_FLIP,
    (False, True): CLUSTERED_PAIRED_T,
    (False, False): PAIRED_T,
}
"""(True if there are few clusters, True if sources are declared) -> the method's name."""


def _sums_to_0(values: Sequence[float]) -> bool:
    """Return True if the sum of the values is 0, apart from rounding errors."""
    return math.isclose(math.fsum(values), 0, abs_tol=1e-12)


def _mean_and_stderr(
    clusters: Sequence[Sequence[float]], scale: tuple[float, float] | None, weight: float
) -> tuple[float, float | None]:
    """Return the mean over instances, and its cluster-robust standard error.

    The standard error is that of K.-Y. Liang and S. L. Zeger, Biometrika 73:13-22, 1986, with the
    factor G / (G - 1) for G clusters. If the scale is known, a pseudo-cluster of `weight` instances
    is added at the lowest and at the highest possible difference. Without these clusters, nearly
    equal differences would get an interval without width (the idea of A. Agresti and Y. Min,
    Statistics in Medicine 24:729-740, 2005).

    The standard error is None for a single cluster, and for equal differences if the scale is
    unknown.
    """
    groups = len(clusters)
    values = list(chain.from_iterable(clusters))
    total: float = len(values)
    center = statistics.fmean(values)
    if groups < 2 or (scale is None and len(set(values)) == 1):
        return center, None
    at_high = 0.0
    at_low = 0.0
    if scale is not None:
        # The differences lie between minus and plus the width of the scale.
        reach = (scale[1] - scale[0]) * weight
        center = center * total / (total + 2 * weight)
        total = total + 2 * weight
        at_high = (reach - weight * center) ** 2
        at_low = (reach + weight * center) ** 2
    spread = 0.0
    for cluster in clusters:
        spread += sum(value - center for value in cluster) ** 2
    spread = spread + at_high + at_low
    return center, math.sqrt(spread * groups / (groups - 1)) / total


MIN_UNEQUAL = 6
"""The number of sources with a sum other than 0 that a sign-flip test needs to reject at 5 %.

With six such sources, the smallest possible p value is 2 / 2^6 = .03.
"""


def sign_flip_interval(
    clusters: Sequence[Sequence[float]], confidence: float
) -> tuple[float, float]:
    """Return the interval of all mean differences that the sign-flip test does not reject.

    The test flips the sign of complete clusters. To test a mean difference (a shift), subtract the
    shift from each value. Let S be the sum and N the number of all values; let a and b be the sum
    and the number of values with the flip's signs. The flip's sum is then at least as far from 0
    as the observed sum if and only if the shift lies between (S - a) / (N - b) and
    (S + a) / (N + b). The ends of the interval are therefore quantiles of these two quotients over
    all flips (J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34:598-611, 1963;
    P. H. Garthwaite, Biometrics 52:1387-1393, 1996). An end is infinite if there are too few flips.
    """
    import numpy as np

    sums = np.array(list(map(math.fsum, clusters)))
    counts = np.array(list(map(len, clusters)), float)
    signs = _signs(len(sums))
    sum_flipped = signs @ sums
    count_flipped = signs @ counts
    with np.errstate(divide="ignore", invalid="ignore"):
        first = (sums.sum() - sum_flipped) / (counts.sum() - count_flipped)
        second = (sums.sum() + sum_flipped) / (counts.sum() + count_flipped)
    flips_all_or_none = np.isclose(np.abs(count_flipped), counts.sum())
    lows = np.where(flips_all_or_none, -np.inf, np.minimum(first, second))
    highs = np.where(flips_all_or_none, np.inf, np.maximum(first, second))
    rank = math.ceil((1 - confidence) * len(signs))
    return float(np.sort(lows)[rank - 1]), float(np.sort(highs)[-rank])


def _signs(count: int) -> Any:
    """Return sign flips of `count` clusters: one row for each flip, of the values 1 and -1.

    If there are at most `FLIPS` possible flips, return all of them. Otherwise return the row
    without any flip, and `FLIPS` random rows with a fixed seed.
    """
    import numpy as np

    if 2**count <= FLIPS:
        numbers = np.arange(2**count)[:, None] >> np.arange(count)
        return 1.0 - 2.0 * (numbers & 1)
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
    return float((flipped >= observed - 1e-9 * max(1.0, observed)).mean())
