"""A judge's score, corrected by people who rated a sample of the same answers: prediction-powered inference. Pure.

A. N. Angelopoulos, J. C. Duchi, T. Zrnic, PPI++: Efficient Prediction-Powered Inference (2023, arXiv 2311.01453), with
the weights of a stratified sample (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, chapters 5 and 7). With f the
judge's score, Y the people's, N_h answers in stratum h, n_h of them rated, W_h = N_h / N and means over the answers
that were rated:

    corrected = lambda mean(f of all) + sum of W_h (mean_h(Y) - lambda mean_h(f))
    v_h       = W_h^2 (1 - n_h / N_h) s_h^2(Y - lambda f) / n_h          what the rest of the stratum may be
    variance  = deff s^2(Y) / N  +  sum of v_h
    lambda    = sum of a_h cov_h(Y, f) / sum of a_h s_h^2(f),   a_h = W_h^2 (1 - n_h / N_h) / n_h     power tuning

The first part of the variance is that of the answers themselves: other questions of the same kind would have been
answered better or worse. deff is the design effect of clustered answers. Without strata this is the estimate of the
paper, whose unlabelled answers are those that nobody rated, and whose lambda is this one times (N - n) / N.

Where the estimate leaves the scale of the score, the people's own weighted mean (lambda = 0) takes its place. The
interval is Student's t with Satterthwaite's degrees of freedom.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from eval_factory.scoring.intervals import CONFIDENCE, EACH_SIDE

LEAST_RATED = 30
"""Answers that have to be rated before a score is corrected: with fewer, the interval does not hold what it says
(benchmarks/corrected_coverage.py)."""
LEAST_OF_STRATUM = 2
METHOD = "ppi++-stratified"


@dataclass(frozen=True)
class Stratum:
    """Answers that had the same chance to be rated."""

    judged: Sequence[float]
    """The judge's score of every answer."""
    rated: Sequence[tuple[float, float]]
    """(people's score, judge's score) of those that were rated."""

    @property
    def left(self) -> float:
        """The share that was not rated."""
        return 1 - len(self.rated) / len(self.judged)


@dataclass(frozen=True)
class Corrected:
    """A corrected score."""

    value: float
    low: float
    high: float
    stderr: float
    power: float
    """lambda: 0 where the judge's score says nothing of the people's, about 1 where it follows them."""
    rated: int
    answers: int
    judge_mean: float
    degrees: float


class TooFewRatedError(ValueError):
    """What was rated is not enough for an interval."""

    def __init__(self, rated: int, needed: int) -> None:
        super().__init__(f"{rated} rated, {needed} needed")
        self.rated, self.needed = rated, needed


def corrected_mean(
    strata: Sequence[Stratum], scale: tuple[float, float] | None = None, design_effect: float = 1.0
) -> Corrected:
    """The mean of what the people would have said of all answers, with its 95 % interval.

    Args:
        strata: in an order in which neighbours are alike; one with fewer than two rated answers is put to a neighbour.
        scale: the least and the greatest score that there can be.
        design_effect: of the judge's scores, where answers share sources; at least 1.

    Raises:
        TooFewRatedError: fewer than 30 were rated, or all answers if there are fewer.
    """
    rated, answers = sum(len(one.rated) for one in strata), sum(len(one.judged) for one in strata)
    needed = min(LEAST_RATED, answers)
    if rated < max(needed, LEAST_OF_STRATUM):
        raise TooFewRatedError(rated, max(needed, LEAST_OF_STRATUM))
    merged = merge_small(strata)
    shares = [len(one.judged) / answers for one in merged]
    low, high = (-math.inf, math.inf) if scale is None else scale
    power = tuned_power(merged, shares)
    judge_mean = statistics.fmean(value for one in merged for value in one.judged)
    value = _estimate(merged, shares, power, judge_mean)
    if not low <= value <= high:  # the people's own mean cannot leave the scale
        power = 0.0
        value = _estimate(merged, shares, power, judge_mean)
    parts = [
        (share**2 * one.left * _residual_variance(one, power) / len(one.rated), len(one.rated) - 1)
        for one, share in zip(merged, shares, strict=True)
    ]
    parts.append((max(1.0, design_effect) * _people_variance(merged, shares) / answers, rated - 1))
    variance = sum(part for part, _ in parts)
    degrees = variance**2 / sum(part**2 / known for part, known in parts) if variance else float(rated - 1)
    half = _quantile(degrees) * math.sqrt(variance) + _unseen(merged, shares, power, scale)
    ends = (max(low, value - half), min(high, value + half))
    return Corrected(value, *ends, math.sqrt(variance), power, rated, answers, judge_mean, degrees)


def tuned_power(strata: Sequence[Stratum], shares: Sequence[float]) -> float:
    """lambda, from 0 to 1: that of the least variance."""
    above = below = 0.0
    for one, share in zip(strata, shares, strict=True):
        weight = share**2 * one.left / len(one.rated)
        people, judge = zip(*one.rated, strict=True)
        below += weight * statistics.variance(judge)
        above += weight * statistics.covariance(people, judge)
    return min(1.0, max(0.0, above / below)) if below else 1.0


def merge_small(strata: Sequence[Stratum]) -> list[Stratum]:
    """As many as have two rated answers each; none is without answers."""
    merged: list[Stratum] = []
    for one in strata:
        if merged and (len(one.rated) < LEAST_OF_STRATUM or len(merged[-1].rated) < LEAST_OF_STRATUM):
            last = merged.pop()
            one = Stratum([*last.judged, *one.judged], [*last.rated, *one.rated])
        if one.judged:
            merged.append(one)
    return merged


def needed_for(
    half_width: float, answers: int, stddev: float, correlation: float, design_effect: float = 1.0
) -> int | None:
    """Answers to rate for an interval that reaches so far to each side; None where even all of them would not do.

    Args:
        stddev: of the people's scores.
        correlation: of the judge's scores with them; 0 where nothing is known of it.
    """
    quantile = statistics.NormalDist().inv_cdf(1 - EACH_SIDE)
    allowed = (half_width / quantile) ** 2 - max(1.0, design_effect) * stddev**2 / answers
    residual = stddev**2 * (1 - correlation**2)
    if allowed < 0 or (allowed == 0 and residual):
        return None
    rated = math.ceil(residual / (allowed + residual / answers)) if residual else 0
    return min(answers, max(rated, LEAST_RATED))


def half_width_of(rated: int, answers: int, stddev: float, correlation: float, design_effect: float = 1.0) -> float:
    """How far the interval reaches to each side when so many are rated; arguments as of `needed_for`."""
    quantile = statistics.NormalDist().inv_cdf(1 - EACH_SIDE)
    residual = stddev**2 * (1 - correlation**2) * (1 / rated - 1 / answers)
    return quantile * math.sqrt(max(1.0, design_effect) * stddev**2 / answers + residual)


def _estimate(strata: Sequence[Stratum], shares: Sequence[float], power: float, judge_mean: float) -> float:
    return power * judge_mean + sum(
        share * statistics.fmean(people - power * judge for people, judge in one.rated)
        for one, share in zip(strata, shares, strict=True)
    )


def _residual_variance(one: Stratum, power: float) -> float:
    return statistics.variance(people - power * judge for people, judge in one.rated)


def _people_variance(strata: Sequence[Stratum], shares: Sequence[float]) -> float:
    """Of the people's scores in all answers: inside the strata, and between them."""
    means = [statistics.fmean(people for people, _ in one.rated) for one in strata]
    center = sum(share * mean for share, mean in zip(shares, means, strict=True))
    inside = sum(
        share * statistics.variance(people for people, _ in one.rated)
        for one, share in zip(strata, shares, strict=True)
    )
    return inside + sum(share * (mean - center) ** 2 for share, mean in zip(shares, means, strict=True))


def _unseen(
    strata: Sequence[Stratum], shares: Sequence[float], power: float, scale: tuple[float, float] | None
) -> float:
    """What a sample without any difference cannot rule out: the share of answers that may differ all the same.

    Where 0 of n differ, at most 1 - 0.025^(1/n) of all do (C. J. Clopper, E. S. Pearson, Biometrika 26:404-413, 1934).
    """
    if scale is None or any(_residual_variance(one, power) for one in strata if one.left):
        return 0.0
    alike = len({people for one in strata for people, _ in one.rated}) == 1  # then other answers may differ, too
    open_to_doubt = 1.0 if alike else sum(share * one.left for one, share in zip(strata, shares, strict=True))
    rated = sum(len(one.rated) for one in strata)
    return float(open_to_doubt * (1 - EACH_SIDE ** (1 / rated)) * (scale[1] - scale[0]))


def _quantile(degrees: float) -> float:
    """0.975 of Student's t; degrees need not be a whole number."""
    from scipy import special  # imported here: it takes long, and few runs need it

    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))
