"""Corrects a judge's score by people's ratings of a sample of the same answers.

The method is prediction-powered inference: A. N. Angelopoulos, J. C. Duchi, T. Zrnic, PPI++:
Efficient Prediction-Powered Inference (2023, arXiv 2311.01453), with the weights of a stratified
sample (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, chapters 5 and 7). Let f be the
judge's score and Y the people's score of an answer. Stratum h has N_h answers, of which n_h were
rated. N is the number of all answers, n the number of all rated answers, and W_h = N_h / N. Means,
variances s^2 and covariances with the index h are over the rated answers of a stratum:

    corrected = lambda mean(f of all) + sum of W_h (mean_h(Y) - lambda mean_h(f))
    v_h       = W_h^2 (1 - n_h / N_h) s_h^2(Y - lambda f) / n_h
    variance  = deff s^2(Y) / N  +  sum of v_h
    lambda    = sum of a_h cov_h(Y, f) / sum of a_h s_h^2(f),   a_h = W_h^2 (1 - n_h / N_h) / n_h

The first term of the variance is the uncertainty of the answers themselves: the model would have
answered other questions of the same kind better or worse. The second term, the sum of v_h, is the
uncertainty from the answers without a rating. deff is the design effect of clustered answers.
lambda is the paper's "power tuning". Without strata, `corrected` is the estimate of the paper: the
paper's unlabelled answers are the answers without a rating, and the paper's lambda is our lambda
times (N - n) / N. If the estimate lies outside the scale of the score, the people's weighted mean
(lambda = 0) replaces the estimate.

The interval: if nearly all answers are right, a sample may contain no wrong answer. The variance V
by the formula above is then too small. As in `intervals.student_t_interval`, w pseudo-answers are
therefore added at each end of the scale (lo, hi), after A. Agresti and B. Caffo, The American
Statistician 54:280-288, 2000. T is the estimate:

    c  = (n T + w (lo + hi)) / (n + 2 w)
    V* = (n^2 V + n (T - c)^2 + w^2 ((lo - c)^2 + (hi - c)^2)) / (n + 2 w)^2
    n* = (c - lo) (hi - c) / V*, limited to n .. N      the number of ratings that T is worth
    interval = (n* T + w (lo + hi)) / (n* + 2 w)  -+  t sqrt(V*),  cut at lo and hi

t is the 0.975 quantile of Student's t with n - 1 degrees of freedom (for clustered answers: the
effective number of sources minus 1). w is 1.25, times the design effect of the rated answers if
answers are clustered. benchmarks/interval_coverage.py prints how often these intervals cover the
true value. The functions are pure: they read no files.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from eval_factory.scoring.intervals import (
    MIN_CLUSTERS,
    Bounds,
    design_effect,
    effective_clusters,
    t_quantile,
    variance_of,
)

MIN_RATED = 20
"""The smallest number of rated answers with which a score is corrected.

If there are fewer answers than this, all of them must be rated.
"""
END_WEIGHT = 1.25
"""The number of pseudo-answers at each end of the scale.

With fewer, n equal ratings would exclude values that the exact bound of
`intervals.interval_of_equal_values` does not exclude.
"""
MIN_RATED_OF_STRATUM = 2  # a variance needs two rated answers
MIN_RATED_PER_SOURCE = 1.25
"""The lowest number of rated answers per source from which a design effect is extrapolated.

The extrapolation divides by this number minus 1, which must not be near 0.
"""
METHOD = "ppi++-stratified"  # the name of the method in a result


@dataclass(frozen=True)
class Stratum:
    """Answers that were drawn for rating with the same probability."""

    judged: Sequence[float]  # the judge's score of every answer
    rated: Sequence[tuple[float, float]]  # (people's score, judge's score) of each rated answer
    # the source of every answer, such as a patient's note; empty if no answers share a source
    sources: Sequence[Hashable] = ()
    rated_sources: Sequence[Hashable] = ()  # the source of each rated answer

    @property
    def unrated_share(self) -> float:
        """The share of the answers without a rating."""
        return 1 - len(self.rated) / len(self.judged)

    def scores_by_people(self) -> list[float]:
        """Return the people's scores of the rated answers."""
        return [people for people, _ in self.rated]

    def scores_by_judge(self) -> list[float]:
        """Return the judge's scores of the rated answers."""
        return [judge for _, judge in self.rated]

    def residuals(self, power: float) -> list[float]:
        """Return people's score minus `power` times judge's score, for each rated answer.

        `power` is lambda, as in `CorrectedMean`; it is not the power of a test.
        """
        return [people - power * judge for people, judge in self.rated]


@dataclass(frozen=True)
class CorrectedMean:
    """A mean score that people's ratings corrected, with its 95 % interval."""

    value: float
    low: float
    high: float
    stderr: float
    # lambda: 0 if the judge's scores are unrelated to the people's, near 1 if the two agree
    power: float
    rated: int  # the number of rated answers
    answers: int  # the number of all answers
    judge_mean: float  # the mean of the judge's scores of all answers, not corrected


class TooFewRatedError(ValueError):
    """There are too few rated answers for an interval.

    The arguments are the number of rated answers and the number that is needed.
    """


class TooFewSourcesError(ValueError):
    """The rated answers come from too few sources.

    The arguments are the effective number of sources and the number that is needed.
    """


def corrected_mean(strata: Sequence[Stratum], scale: Bounds) -> CorrectedMean:
    """Return the mean score that the people would have given to all answers, with its interval.

    Args:
        strata: the strata, ordered so that neighbours are similar; a stratum with fewer than two
            rated answers is merged with a neighbour.
        scale: the lowest and the highest possible score.

    Raises:
        TooFewRatedError: Fewer than 20 answers were rated, and an answer has no rating; or fewer
            than two answers were rated.
        TooFewSourcesError: The rated answers come from too few sources.
    """
    rated = _number_rated(strata)
    answers = len(_judged(strata))
    needed = max(min(MIN_RATED, answers), MIN_RATED_OF_STRATUM)
    if rated < needed:
        raise TooFewRatedError(rated, needed)
    clustering = _clustering(strata, scale)
    merged = merge_small(strata)
    shares = [len(stratum.judged) / answers for stratum in merged]
    low, high = scale
    power = tuned_power(merged, shares)  # lambda
    judge_mean = statistics.fmean(_judged(merged))
    value = _estimate(merged, shares, power, judge_mean)
    if not low <= value <= high:
        # The people's weighted mean is clipped: rounding may move it beyond an end of the scale.
        power = 0.0
        value = min(high, max(low, _estimate(merged, shares, power, judge_mean)))
    # the first term of the variance: the uncertainty of the answers themselves
    variance = clustering.effect * _variance_by_people(merged, shares) / answers
    # the second term, the sum of v_h: the uncertainty from the answers without a rating
    for stratum, share in zip(merged, shares, strict=True):
        residuals = stratum.residuals(power)
        variance += share**2 * stratum.unrated_share * variance_of(residuals) / len(residuals)
    ci_low, ci_high = _interval(
        value,
        variance,
        rated=rated,
        answers=answers,
        rated_effect=clustering.rated_effect,
        rated_sources=clustering.rated_sources,
        scale=scale,
    )
    return CorrectedMean(
        value,
        low=ci_low,
        high=ci_high,
        stderr=math.sqrt(variance),
        power=power,
        rated=rated,
        answers=answers,
        judge_mean=judge_mean,
    )


def _judged(strata: Sequence[Stratum]) -> list[float]:
    """Return the judge's score of every answer."""
    return list(chain.from_iterable(stratum.judged for stratum in strata))


def _number_rated(strata: Sequence[Stratum]) -> int:
    """Return the number of rated answers."""
    return sum(len(stratum.rated) for stratum in strata)


def _variance_by_people(strata: Sequence[Stratum], shares: Sequence[float]) -> float:
    """Return the variance of the people's scores over all answers.

    The variance has a part inside the strata, and a part between the strata.
    """
    means = []
    inside = 0.0
    center = 0.0
    for stratum, share in zip(strata, shares, strict=True):
        scores = stratum.scores_by_people()
        mean = statistics.fmean(scores)
        means.append(mean)
        inside += share * variance_of(scores)
        center += share * mean
    between = 0.0
    for mean, share in zip(means, shares, strict=True):
        between += share * (mean - center) ** 2
    return inside + between


def bias_of_judge(strata: Sequence[Stratum], scale: Bounds) -> CorrectedMean:
    """Return the judge's bias with its 95 % interval: the mean of judge's minus people's score.

    The lowest possible bias is the judge's lowest score minus the highest score of the scale. The
    highest possible bias is the judge's highest score minus the lowest score of the scale.

    Args:
        strata: the strata, as in `corrected_mean`.
        scale: the lowest and the highest score that people can give.

    Raises:
        TooFewRatedError: Fewer than 20 answers were rated.
        TooFewSourcesError: The rated answers come from too few sources.
    """
    judged = _judged(strata)
    low, high = scale
    rated = _number_rated(strata)
    if rated < MIN_RATED:
        raise TooFewRatedError(rated, MIN_RATED)
    # The bias of an answer replaces the people's score, and 0 replaces the judge's score. With
    # zeros, the judge's scores correct nothing: the result is the weighted mean of the biases.
    strata_of_biases = []
    for stratum in strata:
        biases = [(judge - people, 0.0) for people, judge in stratum.rated]
        zeros = [0.0] * len(stratum.judged)
        strata_of_biases.append(replace(stratum, judged=zeros, rated=biases))
    scale_of_bias = (min(judged) - high, max(judged) - low)
    return corrected_mean(strata_of_biases, scale_of_bias)


def _interval(
    value: float,
    variance: float,
    *,
    rated: int,
    answers: int,
    rated_effect: float,
    rated_sources: float,
    scale: Bounds,
) -> Bounds:
    """Return the interval by the formula in the docstring of this module.

    Args:
        value: the corrected mean.
        variance: the variance of that mean.
        rated: the number of rated answers.
        answers: the number of all answers.
        rated_effect: the design effect of the rated answers.
        rated_sources: the effective number of sources of the rated answers.
        scale: the lowest and the highest possible score.
    """
    low, high = scale
    weight = END_WEIGHT * rated_effect  # w
    total = rated + 2 * weight
    center = (rated * value + weight * (low + high)) / total  # c
    rated_part = rated**2 * variance + rated * (value - center) ** 2
    pseudo_part = weight**2 * ((low - center) ** 2 + (high - center) ** 2)
    spread = (rated_part + pseudo_part) / total**2  # V*
    # n*, the number of ratings that the estimate is worth
    worth = min(answers, max(rated, (center - low) * (high - center) / spread))
    middle = (worth * value + weight * (low + high)) / (worth + 2 * weight)
    half_width = t_quantile(rated_sources - 1) * math.sqrt(spread)
    return max(low, middle - half_width), min(high, middle + half_width)


class _Clustering(NamedTuple):
    """The effect of answers that share a source."""

    effect: float  # the design effect that the people's scores of all answers would have
    rated_effect: float  # the design effect of the people's scores of the rated answers
    rated_sources: float  # the effective number of sources of the rated answers


def _clustering(strata: Sequence[Stratum], scale: Bounds) -> _Clustering:
    """Return the effect of answers that share a source.

    The design effects are computed from the people's scores: a judge that always gives the same
    score would hide that answers of a source are similar. The answers without a rating are assumed
    to be as similar as the rated answers, so the design effect grows with their number.

    Raises:
        TooFewSourcesError: The rated answers come from too few sources.
    """
    sources: list[Hashable] = []  # of every answer
    rated_sources: list[Hashable] = []  # of every rated answer
    scores: list[float] = []
    for stratum in strata:
        sources += stratum.sources
        rated_sources += stratum.rated_sources
        scores += stratum.scores_by_people()
    if not sources:  # no answers share a source
        return _Clustering(effect=1.0, rated_effect=1.0, rated_sources=_number_rated(strata))
    effective = effective_clusters(rated_sources)
    if effective < MIN_CLUSTERS:
        raise TooFewSourcesError(effective, MIN_CLUSTERS)
    rated_effect = design_effect(scores, scale, rated_sources)
    per_source = len(sources) / effective_clusters(sources)  # answers per effective source
    rated_per_source = max(MIN_RATED_PER_SOURCE, len(rated_sources) / effective)
    # A design effect exceeds 1 in proportion to the number of answers per source minus 1.
    full_effect = 1 + (rated_effect - 1) * (per_source - 1) / (rated_per_source - 1)
    # The design effect has its maximum, `per_source`, if all answers of each source are equal.
    return _Clustering(min(per_source, full_effect), rated_effect, rated_sources=effective)


def tuned_power(strata: Sequence[Stratum], shares: Sequence[float]) -> float:
    """Return the lambda between 0 and 1 that gives the corrected mean the lowest variance.

    Return 1 if the judge's scores do not vary, or if all answers were rated: lambda then has no
    effect on the variance.

    Args:
        strata: the strata, each with two rated answers or more.
        shares: each stratum's share of all answers.
    """
    numerator = 0.0
    denominator = 0.0
    for stratum, share in zip(strata, shares, strict=True):
        weight = share**2 * stratum.unrated_share / len(stratum.rated)  # a_h
        by_judge = stratum.scores_by_judge()
        denominator += weight * variance_of(by_judge)
        numerator += weight * statistics.covariance(stratum.scores_by_people(), by_judge)
    if not denominator:
        return 1.0
    return min(1.0, max(0.0, numerator / denominator))


def merge_small(strata: Sequence[Stratum]) -> list[Stratum]:
    """Return the strata, with neighbours merged until each has two rated answers.

    Empty strata are left out. A single stratum may keep fewer than two rated answers.
    """
    merged: list[Stratum] = []
    for stratum in strata:
        if not stratum.judged and not stratum.rated:
            continue
        if merged and (_is_small(stratum) or _is_small(merged[-1])):
            previous = merged.pop()
            # Merged strata need no sources: `_clustering` counts the sources before the merge.
            judged = [*previous.judged, *stratum.judged]
            merged.append(Stratum(judged, [*previous.rated, *stratum.rated]))
        else:
            merged.append(stratum)
    return merged


def _is_small(stratum: Stratum) -> bool:
    """Return True if the stratum has fewer than two rated answers."""
    return len(stratum.rated) < MIN_RATED_OF_STRATUM


@dataclass(frozen=True)
class ExpectedFigures:
    """Assumed figures of all answers, from which the number of ratings is planned."""

    answers: int  # the number of all answers, at least 2
    mean: float  # the mean of the people's scores
    stddev: float  # the standard deviation of the people's scores
    scale: Bounds
    design_effect: float = 1.0  # the design effect if all answers were rated
    answers_per_source: float = 1.0  # answers, divided by the effective number of sources


def ratings_needed_for(
    half_width: float, expected: ExpectedFigures, correlation: float
) -> int | None:
    """Return the smallest number of ratings that gives an interval of this half width or less.

    Args:
        half_width: half the width of the interval, in the score's unit.
        expected: the assumed figures of all answers.
        correlation: the correlation of the judge's scores with the people's; 0 if unknown.

    Returns:
        The number of answers to rate; None if rating all answers is not enough.
    """
    counts = range(min(MIN_RATED, expected.answers), expected.answers + 1)
    # The half width falls as the count rises. `bisect_left` needs rising keys: hence the minus.
    position = bisect_left(
        counts, -half_width, key=lambda rated: -half_width_of(rated, expected, correlation)
    )
    if position == len(counts):
        return None
    return counts[position]


def half_width_of(rated: int, expected: ExpectedFigures, correlation: float) -> float:
    """Return half the expected width of the interval if `rated` random answers are rated.

    Return infinity if the rated answers come from fewer than two effective sources. The arguments
    `expected` and `correlation` are those of `ratings_needed_for`.
    """
    # Two rated answers share a source with the same probability as any two answers. The number of
    # rated answers with which a rated answer shares its source is therefore `fraction` times the
    # number of all answers with which an answer shares its source (`answers_per_source` - 1).
    fraction = (rated - 1) / (expected.answers - 1)
    effective = rated / (1 + (expected.answers_per_source - 1) * fraction)
    if effective < MIN_CLUSTERS:
        return math.inf
    # Both terms of the variance, as multiples of the people's variance. With the best lambda, the
    # variance of Y - lambda f is (1 - correlation^2) times the variance of Y.
    of_answers = expected.design_effect / expected.answers
    of_missing_ratings = (1 - correlation**2) * (1 / rated - 1 / expected.answers)
    low, high = _interval(
        expected.mean,
        variance=expected.stddev**2 * (of_answers + of_missing_ratings),
        rated=rated,
        answers=expected.answers,
        rated_effect=1 + (expected.design_effect - 1) * fraction,
        rated_sources=effective,
        scale=expected.scale,
    )
    return (high - low) / 2


def _estimate(
    strata: Sequence[Stratum], shares: Sequence[float], power: float, judge_mean: float
) -> float:
    """Return the corrected mean by the formula in the docstring of this module.

    Args:
        strata: the strata.
        shares: each stratum's share of all answers.
        power: lambda.
        judge_mean: the mean of the judge's scores over all answers.
    """
    by_people = 0.0
    for stratum, share in zip(strata, shares, strict=True):
        by_people += share * statistics.fmean(stratum.residuals(power))
    return power * judge_mean + by_people
