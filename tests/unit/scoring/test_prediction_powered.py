"""The corrected score: the paper's own library says the same, and its interval covers what it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from interval_coverage import Values, bounds_of_rated, in_clusters, labels_of, rated_sample
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate
from scipy import stats

from eval_factory.scoring.intervals import design_effect, effective_clusters
from eval_factory.scoring.prediction_powered import (
    MIN_RATED,
    CorrectedMean,
    ExpectedFigures,
    Stratum,
    TooFewRatedError,
    TooFewSourcesError,
    bias_of_judge,
    corrected_mean,
    half_width_of,
    merge_small,
    ratings_needed_for,
    tuned_power,
)
from known import near, there

WIDE = (-10.0, 16.0)
"""A scale that no value is near the end of."""


def drawn(answers: int, rated: int, seed: int = 5) -> tuple[Stratum, Values, Values, Values]:
    """One stratum; (it, people's scores of the rated, the judge's of them, the judge's of the others)."""
    rng = np.random.default_rng(seed)
    people = rng.normal(3, 1, answers)
    judge = 0.8 * people + rng.normal(1, 0.6, answers)
    pairs = list(zip(people[:rated].tolist(), judge[:rated].tolist(), strict=True))
    return Stratum(judge.tolist(), pairs), people[:rated], judge[:rated], judge[rated:]


@pytest.mark.parametrize("rated", [40, 150])
def test_without_strata_it_is_the_papers_estimate(rated: int) -> None:
    answers = 200
    stratum, people, judge, others = drawn(answers, rated)
    found = corrected_mean([stratum], WIDE)
    power = found.power * (answers - rated) / answers
    assert found.value == near(
        ppi_mean_pointestimate(people, judge, others, lam=power)[0], abs=1e-12
    )
    low, high = ppi_mean_ci(people, judge, others, alpha=0.05, lam=power)
    # the variance of n, not n - 1
    assert 2 * 1.959964 * found.stderr == near(high[0] - low[0], rel=0.02)
    chosen = ppi_mean_pointestimate(people, judge, others)[0]
    assert found.value == near(chosen, abs=0.2 * found.stderr)  # their lambda is near ours
    assert 0 < found.power < 1
    means = found.rated, found.answers, found.judge_mean
    assert means == (rated, answers, near(statistics.fmean(stratum.judged)))


def test_what_it_is_by_hand() -> None:
    """Two strata of other sizes; lambda is 1, for the judge is always off by one in the first and right in the second."""
    first = Stratum([2.0, 3.0] * 20, [(1.0, 2.0), (2.0, 3.0)] * 10)
    second = Stratum([4.0, 5.0] * 30, [(4.0, 4.0), (5.0, 5.0)] * 10)
    found = corrected_mean([first, second], (0.0, 6.0))
    values = found.power, found.value, found.judge_mean
    assert values == near((1, 0.4 * 1.5 + 0.6 * 4.5, 0.4 * 2.5 + 0.6 * 4.5))
    inside = 0.25 * 20 / 19
    between = 0.4 * (1.5 - 3.3) ** 2 + 0.6 * (4.5 - 3.3) ** 2
    variance = (inside + between) / 100
    assert found.stderr == near(math.sqrt(variance))
    assert (found.low, found.high) == near(by_hand(3.3, variance, 1.25, 39, (0.0, 6.0), (40, 100)))


def by_hand(
    value: float,
    variance: float,
    weight: float,
    degrees: float,
    scale: tuple[float, float],
    sizes: tuple[int, int],
) -> tuple[float, float]:
    """The interval as the module's head has it, before it is cut; `sizes`: rated, answers."""
    (low, high) = scale
    (rated, answers) = sizes
    center = (rated * value + weight * low + weight * high) / (rated + 2 * weight)
    squares = (
        rated * (value - center) ** 2
        + (weight * (low - center)) ** 2
        + (weight * (high - center)) ** 2
    )
    spread = (rated**2 * variance + squares) / (rated + 2 * weight) ** 2
    worth = min(max((center - low) * (high - center) / spread, rated), answers)
    middle = (worth * value + weight * low + weight * high) / (worth + 2 * weight)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(spread)
    return middle - half, middle + half


def test_what_an_estimate_is_worth_lies_between_the_rated_and_all() -> None:
    """40 of 400 rated: a judge who is right but for a constant makes them worth all 400; one who is not, 40."""
    for judge, worth in (([1.0, 2.0], 400), ([1.0, 1.0], 40)):
        stratum = Stratum(
            judge * 200, [(judge[0] + 2, judge[0]), (judge[1] + 4 - worth / 200, judge[1])] * 20
        )
        found = corrected_mean([stratum], (0.0, 9.0))
        people = [pair[0] for pair in stratum.rated]
        variance = statistics.variance(people) / 400 + (
            statistics.variance(people) * 0.9 / 40 if worth == 40 else 0
        )
        assert found.stderr == near(math.sqrt(variance))
        ends = by_hand(statistics.fmean(people), variance, 1.25, 39, (0.0, 9.0), (40, 400))
        assert (found.low, found.high) == near(ends)


def test_answers_that_share_sources_are_as_alike_as_the_people_say() -> None:
    """A judge who always says the same hides it. 40 of 80 answers, two of each source of four; the sources agree."""
    people = [float(number // 2 % 4 > 0) for number in range(40)]
    rated = [number // 2 for number in range(40)]
    sources = [number // 4 for number in range(80)]
    found = corrected_mean(
        [Stratum([1.0] * 80, [(one, 1.0) for one in people], sources, rated)], (0.0, 1.0)
    )
    effect = design_effect(people, (0.0, 1.0), rated)
    assert 1.5 < effect < 2.5
    of_all = 1 + (effect - 1) * 3
    variance = statistics.variance(people) * (of_all / 80 + 0.5 / 40)
    assert found.stderr == near(math.sqrt(variance))
    ends = by_hand(0.75, variance, 1.25 * effect, 19, (0.0, 1.0), (40, 80))
    assert (found.low, found.high) == near((ends[0], min(1.0, ends[1])))
    alone = corrected_mean([Stratum([1.0] * 80, [(one, 1.0) for one in people])], (0.0, 1.0))
    assert found.high - found.low > 1.3 * (alone.high - alone.low)


def test_the_design_effect_of_all_answers_stays_between_one_and_what_they_share() -> None:
    """Where hardly two rated answers share a source, they tell little of how alike the others are."""
    people = [1.0, 0.0] * 20
    apart = Stratum(
        [1.0] * 80, [(one, 1.0) for one in people], [n % 40 for n in range(80)], list(range(40))
    )
    stderr = math.sqrt(statistics.variance(people) * (1 / 80 + 0.5 / 40))
    assert corrected_mean([apart], (0.0, 1.0)).stderr == near(stderr)
    rated = [*range(38), 37, 37]
    few = [float(number >= 37) for number in range(40)]
    alike = Stratum([1.0] * 80, [(one, 1.0) for one in few], [n // 2 for n in range(80)], rated)
    effect = design_effect(few, (0.0, 1.0), rated)
    share = 1 + (effect - 1) * 1 / 0.25  # these share 1.15 in the mean, which is taken for 1.25
    assert 40 / effective_clusters(rated) == near(1.15)
    variance = statistics.variance(few) * (min(2.0, share) / 80 + 0.5 / 40)
    assert corrected_mean([alike], (0.0, 1.0)).stderr == near(math.sqrt(variance))


def test_ratings_of_one_source_have_no_interval() -> None:
    with pytest.raises(TooFewSourcesError):
        corrected_mean(
            [Stratum([1.0] * 60, [(1.0, 1.0)] * 30, list("ab") * 30, ["a"] * 30)], (0.0, 1.0)
        )


def test_a_stratum_of_which_more_was_rated_does_not_count_more() -> None:
    rare = Stratum([1.0, 2.0] * 50, [(1.0, 1.0), (2.0, 2.0)] * 2)
    often = Stratum([4.0, 5.0] * 50, [(2.0, 4.0), (3.0, 5.0)] * 20)
    assert corrected_mean([rare, often], (1, 5)).value == near((1.5 + 2.5) / 2)


def test_a_judge_who_says_nothing_of_the_answers_is_left_out() -> None:
    rng = np.random.default_rng(2)
    people = rng.normal(0, 1, 60).tolist()
    against = Stratum([-one for one in people] * 3, [(one, -one) for one in people])
    assert tuned_power([against], [1.0]) == 0.0
    assert corrected_mean([against], WIDE).value == near(statistics.fmean(people))
    same = Stratum([3.0] * 90, [(value, 3.0) for value in people])
    assert tuned_power([same], [1.0]) == 1.0  # it makes no difference
    assert corrected_mean([same], WIDE).value == near(statistics.fmean(people))


def test_the_power_stays_between_0_and_1() -> None:
    """People who tell answers further apart than the judge would have it count more than once."""
    for steep, power in ((3.0, 1.0), (1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (-1.0, 0.0)):
        stratum = Stratum(
            [0.0, 1.0] * 90, [(3.0 + steep * judge, judge) for judge in (0.0, 1.0)] * 15
        )
        assert tuned_power([stratum], [1.0]) == near(power)


def test_the_power_is_that_of_the_least_variance() -> None:
    stratum, *_ = drawn(300, 60)
    best = tuned_power([stratum], [1.0])

    def variance(power: float) -> float:
        return statistics.variance(people - power * judge for people, judge in stratum.rated)

    assert variance(best) < min(variance(best - 0.01), variance(best + 0.01))


def test_an_interval_stays_on_its_scale_and_is_never_nothing() -> None:
    """Where all that was rated is right, it reaches as far as the exact bound of so many."""
    unseen = 1 - 0.025 ** (1 / 60)
    for answers in (300, 60):
        perfect = corrected_mean([Stratum([1.0] * answers, [(1.0, 1.0)] * 60)], (0.0, 1.0))
        assert (perfect.value, perfect.high, perfect.stderr) == (1.0, 1.0, 0.0)
        assert perfect.low == near(1 - unseen, abs=0.003)
    followed = corrected_mean(
        [Stratum([0.0, 1.0] * 150, [(0.0, 0.0), (1.0, 1.0)] * 30)], (0.0, 1.0)
    )
    assert followed.power == near(1)
    assert followed.high - followed.low > 3.92 * followed.stderr
    # 0.9 - 59/60 lies below what there can be, 0.9 + 59/60 above it
    judged = [0.0] * 30 + [1.0] * 270
    wrong = corrected_mean([Stratum(judged, [(0.0, 1.0)] * 59 + [(1.0, 1.0)])], (0.0, 1.0))
    above = corrected_mean([Stratum(judged, [(1.0, 0.0)] * 59 + [(0.0, 0.0)])], (0.0, 1.0))
    assert (wrong.power, wrong.value, above.power, above.value) == near((0.0, 1 / 60, 0.0, 59 / 60))
    assert wrong.low == 0.0 < wrong.value < wrong.high < 0.12
    assert 0.88 < above.low < above.value < above.high == 1.0


def bias(
    pairs: Sequence[tuple[float, float]], judged: Sequence[float], scale: tuple[float, float]
) -> CorrectedMean:
    return bias_of_judge([Stratum(judged, pairs)], scale)


def test_a_bias_from_ratings_that_agree_has_a_width() -> None:
    """A judge who always says 1 can only be too lenient; one who says both, either."""
    lenient = bias([(1.0, 1.0)] * 40, [1.0] * 300, (0.0, 1.0))
    assert (lenient.value, lenient.low) == (0.0, 0.0)
    assert lenient.high == near(1 - 0.025 ** (1 / 40), abs=0.005)
    both = bias([(1.0, 1.0), (0.0, 0.0)] * 20, [1.0, 0.0] * 150, (0.0, 1.0))
    assert both.value == 0.0 < 0.08 < both.high == -both.low
    strict = bias([(5.0, 4.0)] * 40, [4.0] * 300, (1.0, 5.0))
    assert strict.value == strict.low == -1.0 < strict.high < -0.6  # nobody can say more than 5


def test_a_bias_is_what_the_judge_says_more() -> None:
    pairs = [(2.0, 3.0), (3.0, 5.0)] * 20
    found = bias(pairs, [3.0, 5.0] * 40, (1.0, 5.0))
    assert found.value == near(1.5)
    assert found.stderr == near(math.sqrt(0.25 * 40 / 39 * (1 / 80 + 0.5 / 40)))
    ends = by_hand(1.5, found.stderr**2, 1.25, 39, (3.0 - 5.0, 5.0 - 1.0), (40, 80))
    assert (found.low, found.high) == near(ends)
    with pytest.raises(TooFewRatedError) as caught:  # though all were rated
        bias(pairs[: MIN_RATED - 1], [3.0] * (MIN_RATED - 1), (1.0, 5.0))
    assert caught.value.args[1] == MIN_RATED
    assert bias(pairs[:MIN_RATED], [3.0, 5.0] * 10, (1.0, 5.0)).value == near(1.5)


@pytest.mark.parametrize(
    ("answers", "rated", "needed"),
    [
        (300, 19, MIN_RATED),
        (12, 11, 12),
        (300, 0, MIN_RATED),
        (1, 1, 2),
    ],
)
def test_too_few_are_refused_with_the_number_that_is_needed(
    answers: int, rated: int, needed: int
) -> None:
    with pytest.raises(TooFewRatedError) as caught:
        corrected_mean([Stratum([1.0] * answers, [(1.0, 1.0)] * rated)], (0.0, 1.0))
    assert caught.value.args == (rated, needed)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(9, 2), (9, 2)], [(9, 2), (9, 2)]),
        ([(9, 1), (9, 2), (9, 5)], [(18, 3), (9, 5)]),
        ([(9, 2), (9, 0), (9, 5)], [(18, 2), (9, 5)]),
        ([(9, 5), (9, 1)], [(18, 6)]),
        ([(9, 0), (9, 0), (9, 3)], [(27, 3)]),
        ([(0, 0), (9, 3)], [(9, 3)]),
    ],
)
def test_small_strata_are_put_to_a_neighbour(
    counts: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    merged = merge_small(
        [Stratum([1.0] * judged, [(1.0, 1.0)] * rated) for judged, rated in counts]
    )
    assert [(len(one.judged), len(one.rated)) for one in merged] == expected


def test_what_is_needed_for_a_width_gives_it() -> None:
    expected = ExpectedFigures(1000, 3.0, 1.0, WIDE)
    for correlation in (0.0, 0.6, 0.9):
        rated = there(ratings_needed_for(0.15, expected, correlation))
        assert (
            half_width_of(rated, expected, correlation)
            <= 0.15
            < half_width_of(rated - 1, expected, correlation)
        )
    assert ratings_needed_for(0.05, expected, 0.9) is None  # other questions alone make it wider
    assert ratings_needed_for(half_width_of(1000, expected, 0.9), expected, 0.9) == 1000
    assert ratings_needed_for(2.2, expected, 1.0) == MIN_RATED
    assert ratings_needed_for(9.0, replace(expected, answers=12), 0.5) == 12
    assert ratings_needed_for(0.15, replace(expected, design_effect=6.0), 0.6) is None
    # fewer than two effective sources
    assert ratings_needed_for(9.0, replace(expected, answers_per_source=501.0), 0.6) is None
    # just two
    assert half_width_of(20, replace(expected, answers=39, answers_per_source=19.0), 0.6) < math.inf


def test_its_half_width_is_the_intervals() -> None:
    stratum, people, judge, _ = drawn(1000, 200)
    found = corrected_mean([stratum], WIDE)
    expected = ExpectedFigures(1000, found.value, statistics.stdev(people), WIDE)
    half = half_width_of(200, expected, statistics.correlation(people.tolist(), judge.tolist()))
    assert half == near((found.high - found.low) / 2)
    ones = [1.0] * 20 + [0.0] * 10
    sources = [number // 3 for number in range(30)]
    found = corrected_mean(
        [Stratum(ones, [(one, one) for one in ones], sources, sources)], (0.0, 1.0)
    )
    effect = design_effect(ones, (0.0, 1.0), sources)
    half = half_width_of(
        30,
        ExpectedFigures(
            30, 2 / 3, statistics.stdev(ones), (0.0, 1.0), effect, answers_per_source=3.0
        ),
        1.0,
    )
    assert half == near((found.high - found.low) / 2)


@pytest.mark.parametrize(("share", "size", "rated"), [(0.9, 1, 33), (0.99, 1, 60), (0.7, 10, 60)])
def test_a_plan_says_how_wide_intervals_will_be(share: float, size: int, rated: int) -> None:
    """Of a judge who always says the best. Normal quantiles and the variance alone promise too little of the first two."""
    chance = np.random.default_rng(7)
    widths = []
    effects = []
    sizes = [size] * (300 // size)
    of = labels_of(sizes)
    for _ in range(100):
        people = in_clusters(chance, sizes, share, 0.5)
        effects.append(design_effect(people.tolist(), (0.0, 1.0), of.tolist()))
        sample = rated_sample(people, np.ones(300), rated, chance, of if size > 1 else None)
        low, high = bounds_of_rated(sample, scale=(0.0, 1.0), bias=False) or (0.0, 0.0)
        widths.append(high - low)
    stddev = math.sqrt(share * (1 - share))
    effect = statistics.fmean(effects)
    half = half_width_of(rated, ExpectedFigures(300, share, stddev, (0.0, 1.0), effect, size), 0.0)
    assert half == near(statistics.fmean(widths) / 2, rel=0.1)
