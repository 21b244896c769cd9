"""The corrected score: the paper's own library says the same, and its interval covers what it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import corrected_coverage as simulation
import numpy as np
import pytest
from corrected_coverage import Values
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

from eval_factory.scoring.prediction_powered import (
    LEAST_RATED,
    Stratum,
    TooFewRatedError,
    corrected_mean,
    half_width_of,
    merge_small,
    needed_for,
    tuned_power,
)


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
    found = corrected_mean([stratum])
    power = found.power * (answers - rated) / answers
    assert found.value == pytest.approx(ppi_mean_pointestimate(people, judge, others, lam=power)[0], abs=1e-12)
    low, high = ppi_mean_ci(people, judge, others, alpha=0.05, lam=power)
    assert found.high - found.low == pytest.approx(high[0] - low[0], rel=0.08)  # theirs has normal quantiles
    chosen = ppi_mean_pointestimate(people, judge, others)[0]
    assert found.value == pytest.approx(chosen, abs=0.2 * found.stderr)  # their lambda is near ours
    assert 0 < found.power < 1
    assert (found.rated, found.answers) == (rated, answers)
    assert found.judge_mean == pytest.approx(statistics.fmean(stratum.judged))


def test_what_it_is_by_hand() -> None:
    """Two strata of other sizes; lambda is 1, for the judge is always off by one in the first and right in the second."""
    first = Stratum([2.0, 3.0] * 20, [(1.0, 2.0), (2.0, 3.0)] * 10)
    second = Stratum([4.0, 5.0] * 30, [(4.0, 4.0), (5.0, 5.0)] * 10)
    found = corrected_mean([first, second])
    assert found.power == pytest.approx(1)
    assert found.value == pytest.approx(0.4 * 1.5 + 0.6 * 4.5)
    assert found.judge_mean == pytest.approx(0.4 * 2.5 + 0.6 * 4.5)
    inside = 0.25 * 20 / 19
    between = 0.4 * (1.5 - 3.3) ** 2 + 0.6 * (4.5 - 3.3) ** 2
    assert found.stderr == pytest.approx(math.sqrt((inside + between) / 100))
    assert found.degrees == pytest.approx(39)
    clustered = corrected_mean([first, second], design_effect=4.0)
    assert clustered.stderr == pytest.approx(2 * found.stderr)
    assert corrected_mean([first, second], design_effect=0.1).stderr == pytest.approx(found.stderr)


def test_a_stratum_of_which_more_was_rated_does_not_count_more() -> None:
    rare = Stratum([1.0, 2.0] * 50, [(1.0, 1.0), (2.0, 2.0)] * 2)
    often = Stratum([4.0, 5.0] * 50, [(2.0, 4.0), (3.0, 5.0)] * 20)
    assert corrected_mean([rare, often]).value == pytest.approx((1.5 + 2.5) / 2)


def test_a_judge_who_says_nothing_of_the_answers_is_left_out() -> None:
    rng = np.random.default_rng(2)
    people = rng.normal(0, 1, 60).tolist()
    against = Stratum([-one for one in people] * 3, [(one, -one) for one in people])
    assert tuned_power([against], [1.0]) == 0.0
    assert corrected_mean([against]).value == pytest.approx(statistics.fmean(people))
    same = Stratum([3.0] * 90, [(value, 3.0) for value in people])
    assert tuned_power([same], [1.0]) == 1.0  # it makes no difference
    assert corrected_mean([same]).value == pytest.approx(statistics.fmean(people))


def test_the_power_is_that_of_the_least_variance() -> None:
    stratum, *_ = drawn(300, 60)
    best = tuned_power([stratum], [1.0])

    def variance(power: float) -> float:
        return statistics.variance(people - power * judge for people, judge in stratum.rated)

    assert variance(best) < min(variance(best - 0.01), variance(best + 0.01))


def test_an_interval_stays_on_its_scale_and_is_never_nothing() -> None:
    unseen = 1 - 0.025 ** (1 / 60)
    perfect = corrected_mean([Stratum([1.0] * 300, [(1.0, 1.0)] * 60)], (0.0, 1.0))
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(1 - unseen)
    assert corrected_mean([Stratum([1.0] * 60, [(1.0, 1.0)] * 60)], (0.0, 1.0)).low == pytest.approx(1 - unseen)
    followed = Stratum([0.0, 1.0] * 150, [(0.0, 0.0), (1.0, 1.0)] * 30)
    found, without = corrected_mean([followed], (0.0, 1.0)), corrected_mean([followed])
    assert found.high - without.high == pytest.approx(0.8 * unseen)
    assert found.low - without.low == pytest.approx(-0.8 * unseen)
    wrong = corrected_mean([Stratum([0.0] * 30 + [1.0] * 270, [(0.0, 1.0)] * 59 + [(1.0, 1.0)])], (0.0, 1.0))
    assert wrong.power == 0.0  # 0.9 - 59/60 lies below what there can be
    assert wrong.value == pytest.approx(1 / 60)
    assert wrong.low == 0.0 < wrong.value < wrong.high < 0.1


@pytest.mark.parametrize(("answers", "rated", "needed"), [(300, 29, LEAST_RATED), (20, 19, 20), (300, 0, LEAST_RATED)])
def test_too_few_are_refused_with_the_number_that_is_needed(answers: int, rated: int, needed: int) -> None:
    with pytest.raises(TooFewRatedError) as caught:
        corrected_mean([Stratum([1.0] * answers, [(1.0, 1.0)] * rated)])
    assert (caught.value.rated, caught.value.needed) == (rated, needed)


def test_one_answer_is_never_enough() -> None:
    with pytest.raises(TooFewRatedError) as caught:
        corrected_mean([Stratum([1.0], [(1.0, 1.0)])])
    assert caught.value.needed == 2


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
    counts: Sequence[tuple[int, int]], expected: Sequence[tuple[int, int]]
) -> None:
    merged = merge_small([Stratum([1.0] * judged, [(1.0, 1.0)] * rated) for judged, rated in counts])
    assert [(len(one.judged), len(one.rated)) for one in merged] == expected


def test_what_is_needed_for_a_width_gives_it() -> None:
    for correlation in (0.0, 0.6, 0.9):
        rated = needed_for(0.12, 1000, 1.0, correlation)
        assert rated is not None
        assert half_width_of(rated, 1000, 1.0, correlation) <= 0.12 + 1e-12
        if rated > LEAST_RATED:
            assert half_width_of(rated - 1, 1000, 1.0, correlation) > 0.12
    assert needed_for(0.06, 1000, 1.0, 0.9) is None  # other questions alone make it wider
    assert needed_for(0.3, 1000, 1.0, 1.0) == LEAST_RATED
    assert needed_for(0.5, 20, 1.0, 0.5) == 20
    assert needed_for(0.12, 1000, 1.0, 0.6, design_effect=4.0) is None


def test_its_half_width_is_the_intervals() -> None:
    stratum, people, judge, _ = drawn(1000, 200)
    found = corrected_mean([stratum])
    correlation = statistics.correlation(people.tolist(), judge.tolist())
    expected = half_width_of(200, 1000, statistics.stdev(people), correlation)
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("judge", simulation.JUDGES, ids=lambda judge: judge.name)
def test_the_interval_holds_the_truth_where_the_judges_own_does_not(judge: simulation.Judge) -> None:
    held, naive, _ = simulation.coverage(judge, 300, 40, 250, 7)
    assert 0.915 <= held <= 0.985  # 95 % within 2.5 standard errors of 250 samples
    assert naive < 0.05
