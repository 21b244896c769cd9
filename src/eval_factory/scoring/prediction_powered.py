"""A judge's score, corrected by people who rated a sample of the same answers: prediction-powered
inference. Pure.

A. N. Angelopoulos, J. C. Duchi, T. Zrnic, PPI++: Efficient Prediction-Powered Inference (2023,
arXiv 2311.01453), with the weights of a stratified sample (W. G. Cochran, Sampling Techniques, 3rd
edition, 1977, chapters 5 and 7). With f the judge's score, Y the people's, N_h answers in stratum
h, n_h of them rated, W_h = N_h / N and means over the answers that were rated:

    corrected = lambda mean(f of all) + sum of W_h (mean_h(Y) - lambda mean_h(f))
    v_h       = W_h^2 (1 - n_h / N_h) s_h^2(Y - lambda f) / n_h          what the rest of the
    stratum may be variance  = deff s^2(Y) / N  +  sum of v_h
    lambda    = sum of a_h cov_h(Y, f) / sum of a_h s_h^2(f),   a_h = W_h^2 (1 - n_h / N_h) / n_h
     power tuning

The first part of the variance is that of the answers themselves: other questions of the same kind
would have been answered better or worse. deff is the design effect of clustered answers. Without
strata this is the estimate of the paper, whose unlabelled answers are those that nobody rated, and
whose lambda is this one times (N - n) / N.

Where the estimate leaves the scale of the score, the people's own weighted mean (lambda = 0) takes
its place.

The interval. Where nearly all answers are right, the few that are not are in no sample, and its
variance V says too little. As in `intervals.student_t`, w pseudo-answers stand at each end of the
scale (lo, hi), after A. Agresti and B. Caffo, The American Statistician 54:280-288, 2000; with T
the estimate and n answers rated of N:

    c  = (n T + w (lo + hi)) / (n + 2 w)
    V* = (n^2 V + n (T - c)^2 + w^2 ((lo - c)^2 + (hi - c)^2)) / (n + 2 w)^2
    n* = (c - lo) (hi - c) / V*, kept in n .. N               what T is worth in plain answers
    interval = (n* T + w (lo + hi)) / (n* + 2 w)  -+  t sqrt(V*),  cut at lo and hi

with the 0.975 quantile t of n - 1 degrees of freedom. w is 1.25, times the design effect of the
rated ones where answers are clustered. How often these intervals hold the truth:
benchmarks/interval_coverage.py.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from eval_factory.scoring.intervals import (
    MIN_CLUSTERS,
    Bounds,
    design_effect,
    effective_clusters,
    t_quantile,
    variance_of,
)

# answers that have to be rated before a score is corrected, where there are as many
LEAST_RATED = 20
END_WEIGHT = 1.25
"""Pseudo-answers at each end of the scale: with fewer, n ratings that agree would exclude what the
exact bound of `intervals.of_equal_values` does not.
"""
LEAST_OF_STRATUM = 2
METHOD = "ppi++-stratified"


@dataclass(frozen=True)
class Stratum:
    """Answers that had the same chance to be rated."""

    judged: Sequence[float]  # the judge's score of every answer
    rated: Sequence[tuple[float, float]]  # (people's score, judge's score) of those that were rated
    # of every answer what it shares with others; empty where none shares anything
    sources: Sequence[Hashable] = ()
    rated_sources: Sequence[Hashable] = ()  # of those that were rated

    @property
    def left(self) -> float:
        """The share that was not rated."""
        return 1 - len(self.rated) / len(self.judged)


@dataclass(frozen=True)
class Corrected:
    value: float
    low: float
    high: float
    stderr: float
    # lambda: 0 where the judge's score says nothing of the people's, about 1 where it follows them
    power: float
    rated: int
    answers: int
    judge_mean: float


class TooFewRatedError(ValueError):
    """What was rated is not enough for an interval; its arguments say how many were, and how
    many are needed.
    """


class TooFewSourcesError(ValueError):
    """What was rated comes from too few effective sources; its arguments say how many they are,
    and are needed.
    """


def corrected_mean(strata: Sequence[Stratum], scale: Bounds) -> Corrected:
    """The mean of what the people would have said of all answers, with its 95 % interval. `strata`:
    in an order in which neighbours are alike; one with fewer than two rated answers is put to a
    neighbour. `scale`: the least and the greatest score that there can be.

    Raises TooFewRatedError: fewer than 20 were rated, or not all answers where there are fewer;
    TooFewSourcesError.
    """
    rated = sum(len(one.rated) for one in strata)
    answers = sum(len(one.judged) for one in strata)
    needed = max(min(LEAST_RATED, answers), LEAST_OF_STRATUM)
    if rated < needed:
        raise TooFewRatedError(rated, needed)
    effect, rated_effect, sources = _clustering(strata, scale)
    merged = merge_small(strata)
    shares = [len(one.judged) / answers for one in merged]
    low, high = scale
    power = tuned_power(merged, shares)
    judge_mean = statistics.fmean(chain.from_iterable(stratum.judged for stratum in merged))
    value = _estimate(merged, shares, power, judge_mean)
    if not low <= value <= high:
        power = 0.0
        value = min(high, max(low, _estimate(merged, shares, power, judge_mean)))
    # of the people's scores in all answers: inside the strata, and between them
    by_people = [[people for people, _ in one.rated] for one in merged]
    means = [statistics.fmean(scores) for scores in by_people]
    center = sum(share * mean for share, mean in zip(shares, means, strict=True))
    inside = sum(
        share * variance_of(scores) for share, scores in zip(shares, by_people, strict=True)
    )
    between = sum(share * (mean - center) ** 2 for share, mean in zip(shares, means, strict=True))
    variance = effect * (inside + between) / answers
    for one, share in zip(merged, shares, strict=True):
        residuals = [people - power * judge for people, judge in one.rated]
        variance += share**2 * one.left * variance_of(residuals) / len(one.rated)
    interval = _interval(value, variance, rated, answers, rated_effect, sources, scale)
    return Corrected(value, *interval, math.sqrt(variance), power, rated, answers, judge_mean)


def bias_of_judge(strata: Sequence[Stratum], scale: Bounds) -> Corrected:
    """The mean of what the judge says more than the people, with its 95 % interval; `scale`: of the
    people's scores.

    Its own scale begins where the people would give the greatest score to the answer that the judge
    likes least, and ends where they would give the least to the one that it likes most. Raises as
    `corrected_mean`, below 20 always.
    """
    judged = list(chain.from_iterable(stratum.judged for stratum in strata))
    (low, high) = scale
    rated = sum(len(one.rated) for one in strata)
    if rated < LEAST_RATED:
        raise TooFewRatedError(rated, LEAST_RATED)
    apart = [
        replace(
            one,
            judged=[0.0] * len(one.judged),
            rated=[(judge - people, 0.0) for people, judge in one.rated],
        )
        for one in strata
    ]
    return corrected_mean(apart, (min(judged) - high, max(judged) - low))


def _interval(
    value: float,
    variance: float,
    rated: int,
    answers: int,
    rated_effect: float,
    sources: float,
    scale: Bounds,
) -> Bounds:
    """As the head of this module has it. `rated_effect`: the design effect of the rated ones."""
    low, high = scale
    weight = END_WEIGHT * rated_effect
    total = rated + 2 * weight
    center = (rated * value + weight * (low + high)) / total
    ends = weight**2 * ((low - center) ** 2 + (high - center) ** 2)
    spread = (rated**2 * variance + rated * (value - center) ** 2 + ends) / total**2
    worth = min(answers, max(rated, (center - low) * (high - center) / spread))
    middle = (worth * value + weight * (low + high)) / (worth + 2 * weight)
    half = t_quantile(sources - 1) * math.sqrt(spread)
    return max(low, middle - half), min(high, middle + half)


def _clustering(strata: Sequence[Stratum], scale: Bounds) -> tuple[float, float, float]:
    """(the design effect of the people's scores, if all answers were rated; that of the rated ones;
    the effective number of sources that these come from).

    From the people's scores: a judge who always says the same hides that answers are alike. A
    source's answers that were not rated are taken to be as alike as those that were, so that the
    design effect grows with their number.
    """
    sources = list(chain.from_iterable(stratum.sources for stratum in strata))
    rated = list(chain.from_iterable(stratum.rated_sources for stratum in strata))
    if not sources:
        return 1.0, 1.0, sum(len(one.rated) for one in strata)
    effective = effective_clusters(rated)
    if effective < MIN_CLUSTERS:
        raise TooFewSourcesError(effective, MIN_CLUSTERS)
    pairs = chain.from_iterable(stratum.rated for stratum in strata)
    of_rated = design_effect([people for people, _ in pairs], scale, rated)
    sharing = len(sources) / effective_clusters(sources)
    of_them = len(rated) / effective
    # one rated answer is taken to share its source with 1.25 of them at least, itself among them,
    # in the mean
    of_answers = 1 + (of_rated - 1) * (sharing - 1) / (max(1.25, of_them) - 1)
    return min(sharing, of_answers), of_rated, effective


def tuned_power(strata: Sequence[Stratum], shares: Sequence[float]) -> float:
    """lambda, from 0 to 1: that of the least variance."""
    above = below = 0.0
    for one, share in zip(strata, shares, strict=True):
        weight = share**2 * one.left / len(one.rated)
        people, judge = zip(*one.rated, strict=True)
        below += weight * variance_of(judge)
        above += weight * statistics.covariance(people, judge)
    return min(1.0, max(0.0, above / below)) if below else 1.0


def merge_small(strata: Sequence[Stratum]) -> list[Stratum]:
    """As many as have two rated answers each; none is without answers."""
    merged: list[Stratum] = []
    for one in strata:
        if merged and (
            len(one.rated) < LEAST_OF_STRATUM or len(merged[-1].rated) < LEAST_OF_STRATUM
        ):
            last = merged.pop()
            # sources are counted in all
            one = Stratum([*last.judged, *one.judged], [*last.rated, *one.rated])
        if one.judged:
            merged.append(one)
    return merged


@dataclass(frozen=True)
class Expected:
    """What a plan expects of all answers."""

    answers: int
    mean: float  # of the people's scores, as is the standard deviation
    stddev: float
    scale: Bounds
    design_effect: float = 1.0  # if all answers were rated
    sharing: float = 1.0  # answers for each effective source


def needed_for(half_width: float, expected: Expected, correlation: float) -> int | None:
    """The fewest answers to rate for an interval of this half width or less; None where even all
    would not do. `correlation`: of the judge's scores with the people's; 0 where nothing is known
    of it.
    """
    counts = range(min(LEAST_RATED, expected.answers), expected.answers + 1)
    at = bisect_left(
        counts, -half_width, key=lambda rated: -half_width_of(rated, expected, correlation)
    )
    return counts[at] if at < len(counts) else None


def half_width_of(rated: int, expected: Expected, correlation: float) -> float:
    """Half of the expected width of the interval when so many answers, drawn at random, are rated;
    infinite where they come from fewer than two effective sources. The correlation is as of
    `needed_for`.
    """
    # two rated answers share a source as often as any two do
    part = (rated - 1) / (expected.answers - 1)
    effective = rated / (1 + (expected.sharing - 1) * part)
    if effective < MIN_CLUSTERS:
        return math.inf
    rated_effect = 1 + (expected.design_effect - 1) * part
    residual = (1 - correlation**2) * (1 / rated - 1 / expected.answers)
    variance = expected.stddev**2 * (expected.design_effect / expected.answers + residual)
    low, high = _interval(
        expected.mean, variance, rated, expected.answers, rated_effect, effective, expected.scale
    )
    return (high - low) / 2


def _estimate(
    strata: Sequence[Stratum], shares: Sequence[float], power: float, judge_mean: float
) -> float:
    return power * judge_mean + sum(
        share * statistics.fmean(people - power * judge for people, judge in one.rated)
        for one, share in zip(strata, shares, strict=True)
    )
