"""Tests of what a panel finds: the years that are simulated, and what they say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from eval_factory.monitor import simulation
from eval_factory.monitor.detector import EDetectors, LimitBaseline, Units, sigma_of
from eval_factory.monitor.simulation import (
    DropFinding,
    SimulatedAnswers,
    assumed_findings,
    hardest_findings,
    needed_repeats,
    simulated_findings,
)

FIVES = np.repeat(np.arange(20), 5)


def right_and_wrong(
    flips: float, units: Any, repeats: int = 5, together: float = 0.0, seed: int = 0, **limit: Any
) -> LimitBaseline:
    """Runs of an accuracy of 0.8; in a unit with some answers in common."""
    rng = np.random.default_rng(seed)
    labels = Units(units)
    more = flips / (0.32 - flips)
    chances = rng.beta(0.8 * more, 0.2 * more, len(labels.numbers))
    at = rng.random((repeats, len(labels.numbers)))
    common = rng.random((repeats, len(labels.sizes)))[:, labels.numbers]
    at = np.where(rng.random(at.shape) < together**0.5, common, at)
    return LimitBaseline(
        (at < chances).astype(float), labels.numbers, **{"max_drop": 0.02, "looks": 52, **limit}
    )


def drawn(
    like: LimitBaseline, times: int = 6, years: int = 300, drop: float = 0.0
) -> tuple[Any, SimulatedAnswers]:
    answers = SimulatedAnswers(like, years, np.random.default_rng(1))
    return np.stack([answers.draw(drop=drop) for _ in range(times)], axis=1), answers


def flips_of(runs: Any) -> float:
    return float(2 * runs.var(axis=1, ddof=1).mean())


@pytest.mark.parametrize("repeats", [2, 5, 20])
@pytest.mark.parametrize("flips", [0.03, 0.1, 0.25])
def test_simulated_runs_differ_as_often_as_the_measured_ones(flips: float, repeats: int) -> None:
    """Draws from each instance's own runs alone would differ half as often where B is 2, and 80 % as often at 5."""
    like = right_and_wrong(flips, np.arange(400), repeats)
    runs, _ = drawn(like)
    assert flips_of(runs) == pytest.approx(like.flip_rate, rel=0.06, abs=0.002)
    assert runs.mean() == pytest.approx(like.mean, abs=0.006)
    # each instance stays as hard as it is
    assert np.corrcoef(runs[:, 0].mean(axis=0), like.values.mean(axis=0))[0, 1] > 0.8


def test_two_runs_of_an_instance_in_a_year_are_of_one_chance() -> None:
    like = right_and_wrong(0.1, np.arange(100), 2)
    runs, _ = drawn(like)
    same = (runs[:, 0] != runs[:, 1]).mean()
    other = (runs[:-1, 0] != runs[1:, 0]).mean()
    assert same < 0.85 * other


def test_a_panel_without_any_difference_may_still_have_some() -> None:
    runs, _ = drawn(LimitBaseline(np.ones((5, 100)), np.arange(100), 0.02, 52))
    assert 0.0005 < flips_of(runs) < 0.01
    assert 0.99 < runs.mean() < 1
    wrong, _ = drawn(LimitBaseline(np.zeros((2, 100)), np.arange(100), 0.02, 52))
    assert 0 < wrong.mean() < 0.01


def test_one_instance_more_is_right_in_half_of_its_runs() -> None:
    """Of four that were right in five runs: the pool is wrong in 2.5 of 25, and 0.3125 / 5 / 0.09 = 0.694 of what differs
    does so between runs; so M is 2.273, and a chance Beta(0.9 M + 5, 0.1 M)."""
    runs, _ = drawn(LimitBaseline(np.ones((5, 4)), np.arange(4), 0.02, 52), 4, 40000)
    right = 0.9 * 2.2727 + 5
    wrong = 0.1 * 2.2727
    assert 1 - runs.mean() == pytest.approx(wrong / (right + wrong), rel=0.03)
    assert flips_of(runs) == pytest.approx(
        2 * right * wrong / (right + wrong) / (right + wrong + 1), rel=0.03
    )


def test_where_all_that_differs_does_so_between_runs_instances_are_alike() -> None:
    turned = np.tile([[1.0, 1, 0, 0], [0, 0, 1, 1]], 100)
    runs, _ = drawn(LimitBaseline(turned, np.arange(400), 0.02, 52), 2)
    assert flips_of(runs) == pytest.approx(0.5, abs=0.01)


def test_units_that_make_up_for_each_other_are_taken_for_independent() -> None:
    pairs = np.array([[1.0, 0] * 10, [0, 1.0] * 10])
    assert (
        SimulatedAnswers(
            LimitBaseline(pairs, np.repeat(np.arange(10), 2), 0.02, 52),
            50,
            np.random.default_rng(0),
        )._correlation
        == 0
    )


def test_small_units_have_as_much_in_common_as_sigma_says() -> None:
    like = right_and_wrong(0.3, np.repeat(np.arange(8), 5), 4, 0.3, seed=3)
    runs, answers = drawn(like, 6, 4000)
    assert 0.1 < answers._correlation < 0.9
    vary = answers.units.totals(runs).var(axis=1, ddof=1).sum(axis=-1).mean()
    own = runs.var(axis=1, ddof=1).sum(axis=-1).mean()
    measured = like.values.var(axis=0, ddof=1).sum()
    sigma = sigma_of(like.values, Units(like.units), 0.0)
    apart = (4 * (40 * sigma) ** 2 - 2.5 - measured) / (measured + 0.5)
    assert vary / own - 1 == pytest.approx(apart, rel=0.05)


@pytest.mark.parametrize("together", [0.0, 0.5])
def test_units_have_as_much_in_common_as_sigma_says(together: float) -> None:
    like = right_and_wrong(0.3, np.repeat(np.arange(60), 5), 10, together)
    runs, answers = drawn(like)
    vary = answers.units.totals(runs).var(axis=1, ddof=1).sum(axis=-1).mean()
    measured = 10 * (300 * sigma_of(like.values, Units(like.units), 0.0)) ** 2 - 2.5
    assert vary == pytest.approx(measured, rel=0.1)
    alone = SimulatedAnswers(
        LimitBaseline(like.values, np.arange(300), 0.02, 52), 300, np.random.default_rng(1)
    )
    runs = np.stack([alone.draw() for _ in range(6)], axis=1)
    assert (
        answers.units.totals(runs).var(axis=1, ddof=1).sum(axis=-1).mean()
        < (0.7 if together else 1.1) * vary
    )


@pytest.mark.parametrize(("together", "size"), [(0.0, 1), (0.3, 5)])
def test_true_means_lie_as_far_from_the_baselines_as_its_runs_vary(
    together: float, size: int
) -> None:
    """Not only as each instance's own runs say: all may have been lucky together."""
    like = right_and_wrong(0.3, np.repeat(np.arange(300 // size), size), 5, together)
    runs, answers = drawn(like, 30, 2000)
    true_means = runs.mean(axis=(1, 2))
    totals = answers.units.totals(like.values)
    of_baseline = totals.var(axis=0, ddof=1).sum() / 5 / 300**2
    # thirty runs of a year have some luck, too
    of_draws = answers.units.totals(runs).var(axis=1, ddof=1).sum(axis=-1).mean() / 30 / 300**2
    assert true_means.var() == pytest.approx(of_baseline + of_draws, rel=0.1)
    assert true_means.mean() == pytest.approx(like.mean, abs=0.002)
    above = (true_means > like.mean).mean()
    assert 0.4 < above < 0.6


def test_an_instance_that_is_always_right_stays_so_when_true_means_move() -> None:
    rng = np.random.default_rng(0)
    steady = np.ones((20, 200))
    together = np.repeat(rng.random((20, 10)) < 0.5, 20, axis=1)
    units = np.append(np.arange(200), np.repeat(np.arange(200, 210), 20))
    runs, _ = drawn(LimitBaseline(np.hstack([steady, together]), units, 0.02, 52), 6, 200)
    assert runs[..., :200].mean() > 0.976
    assert runs[..., 200:].mean(axis=(1, 2)).std() > 0.03


def test_chances_of_few_answers_stay_between_0_and_1() -> None:
    """A unit that is right in one run and wrong in the other may be right in nearly all."""
    turned = np.array([[1.0] * 6, [0.0] * 6])
    runs, _ = drawn(LimitBaseline(turned, np.zeros(6, int), 0.02, 52), 20, 2000)
    assert set(np.unique(runs)) == {0.0, 1.0}
    means = runs.mean(axis=(1, 2))
    assert (means < 0.05).any()
    assert (means > 0.95).any()


def test_ratings_keep_their_levels() -> None:
    rng = np.random.default_rng(0)
    like = LimitBaseline(rng.integers(1, 5, (5, 80)) / 4, np.arange(80), 0.02, 52)
    runs, _ = drawn(like)
    assert sorted(set(runs.ravel().tolist())) == [0, 0.25, 0.5, 0.75, 1]
    assert flips_of(runs) == pytest.approx(like.flip_rate, rel=0.08)
    assert runs.mean() == pytest.approx(like.mean, abs=0.01)


def test_eleven_levels_are_kept() -> None:
    levels = np.square(np.linspace(0, 1, 11))
    runs, _ = drawn(
        LimitBaseline(np.random.default_rng(0).choice(levels, (5, 80)), np.arange(80), 0.02, 52),
        years=50,
    )
    assert np.unique(runs).tolist() == pytest.approx(levels.tolist())


def test_values_of_any_size_are_rounded_to_eleven() -> None:
    rng = np.random.default_rng(0)
    like = LimitBaseline(
        np.clip(rng.random(60) + rng.normal(0, 0.1, (5, 60)), 0, 1), np.arange(60), 0.02, 52
    )
    runs, _ = drawn(like)
    assert np.unique(np.round(runs, 6)).tolist() == pytest.approx(np.linspace(0, 1, 11))
    assert runs.mean() == pytest.approx(like.mean, abs=0.02)


@pytest.mark.parametrize("drop", [0.05, 0.2])
def test_a_drop_is_as_great_as_it_says(drop: float) -> None:
    like = right_and_wrong(0.1, FIVES)
    same, fallen = (drawn(like, drop=each)[0] for each in (0.0, drop))
    assert same.mean() - fallen.mean() == pytest.approx(drop, abs=0.005)
    assert drawn(like, drop=0.9)[0].max() == 0
    only = SimulatedAnswers(like, 300, np.random.default_rng(1)).draw(np.array([3, 5]), drop)
    assert only.shape == (2, 100)


def test_units_fall_together_in_part() -> None:
    units = Units(FIVES)
    wrong = 1 - drawn(LimitBaseline(np.ones((5, 100)), FIVES, 0.02, 52), drop=0.1)[0]
    ratio = units.totals(wrong).var() / (5 * wrong.var())
    assert ratio == pytest.approx(1 + 4 * 0.3, abs=0.25)


def test_what_it_finds_of_each_drop() -> None:
    steady, noisy = (right_and_wrong(flips, np.arange(100)) for flips in (0.02, 0.25))
    found = simulated_findings([steady, noisy], 0.05)
    assert [[one.drop for one in each] for each in found] == [[0.05, 0.1, 0.2]] * 2
    for each in found:
        assert each[0].share < each[1].share <= each[2].share == 1
    assert found[0][1].share > 0.99
    assert (found[0][1].weeks or 99) <= 4 < (found[1][1].weeks or 99)
    assert found[1][0].weeks is None
    assert found == simulated_findings([steady, noisy], 0.05)


@pytest.mark.simulation
def test_the_number_of_limits_and_alpha_say_how_much_evidence_it_takes() -> None:
    one = right_and_wrong(0.2, np.arange(100))
    alone = simulated_findings([one], 0.05)[0]
    of_two = simulated_findings([one] * 2, 0.05)[0]
    strict = simulated_findings([one], 0.025)[0]
    assert alone[1].share > of_two[1].share
    assert of_two[0] == strict[0]
    assert of_two[1] == strict[1]


def test_a_drop_that_is_allowed_is_not_found() -> None:
    found = simulated_findings([right_and_wrong(0.02, np.arange(100), max_drop=0.1)], 0.05)[0]
    assert found[0].share == 0
    assert found[1].share < 0.03
    assert found[2].share == 1


def test_the_hardest_limit_speaks_for_the_panel() -> None:
    easy = [DropFinding(0.05, 0.9, 5), DropFinding(0.1, 1.0, 3)]
    hard = [DropFinding(0.05, 0.2, None), DropFinding(0.1, 1.0, 4)]
    assert hardest_findings([easy, hard]) == hardest_findings([hard, easy]) == hard
    assert hardest_findings([[DropFinding(0.1, 0.4, None)], [DropFinding(0.1, 0.5, 9)]]) == [
        DropFinding(0.1, 0.4, None)
    ]


@pytest.mark.simulation
def test_more_runs_are_needed_where_answers_flip() -> None:
    needed = needed_repeats([right_and_wrong(flips, np.arange(100)) for flips in (0.02, 0.3)], 0.1)
    assert needed[0].repeats == 5
    assert needed[1].repeats in (10, 20)
    assert all(
        one.finding.share >= 0.97 and one.finding.drop == 0.1 and one.finding.weeks
        for one in needed
    )
    again = [right_and_wrong(flips, np.arange(100)) for flips in (0.02, 0.3)]
    assert needed == needed_repeats(again, 0.1, seed=0)
    assert needed != needed_repeats(again, 0.1, seed=1)


@pytest.mark.simulation
def test_a_baseline_that_was_bad_by_chance_needs_more_runs() -> None:
    """Of 300 in fives after five runs a drop from a mean that is better than it looked is missed."""
    for seed in (3, 11):
        like = right_and_wrong(0.3, np.repeat(np.arange(60), 5), 5, 0.3, seed)
        assert needed_repeats([like], 0.05)[0].repeats == 10


def test_a_few_units_never_suffice() -> None:
    needed = needed_repeats([right_and_wrong(0.3, np.arange(15))], 0.05)[0]
    assert needed.repeats is None
    assert needed.finding.share < 0.8


def test_as_many_runs_as_there_are_is_one_of_the_answers() -> None:
    assert needed_repeats([right_and_wrong(0.02, np.arange(300), 3)], 0.05)[0].repeats == 3


def test_the_drop_to_be_found_leaves_what_is_allowed_behind() -> None:
    for max_drop, drop in ((0.0, 0.1), (0.05, 0.1), (0.08, 0.13)):
        found = needed_repeats([right_and_wrong(0.02, np.arange(40), max_drop=max_drop)], 0.05)[
            0
        ].finding
        assert found.drop == pytest.approx(drop)


def test_the_median_week_counts_those_that_find_nothing() -> None:
    assert simulation._finding(0.1, np.array([np.inf, 7, 1, 2, 3])) == DropFinding(0.1, 0.8, 3)
    assert simulation._finding(0.1, np.array([1, np.inf, 1, np.inf])) == DropFinding(0.1, 0.5, None)


@pytest.mark.simulation
def test_a_table_before_anything_is_paid() -> None:
    table = assumed_findings([np.arange(100), np.arange(40)], [0.02, 0.02], 5, 52, 0.05)
    assert list(table) == [0.02, 0.1, 0.3]
    shares = [[one.share for one in each] for each in table.values()]
    for steady, noisy in itertools.pairwise(shares):
        assert steady[1] >= noisy[1]
    assert shares[0][1] > 0.9 > shares[2][1]
    better = assumed_findings([np.arange(100), np.arange(40)], [0.02, 0.02], 20, 52, 0.05)
    assert better[0.3][1].share > table[0.3][1].share
    clustered = assumed_findings([np.repeat(np.arange(8), 5)] * 2, [0.02, 0.02], 5, 52, 0.05)
    assert clustered[0.1][1].share < table[0.1][1].share


@pytest.mark.parametrize("repeats", [3, 5, 8])
def test_the_runs_that_a_baseline_has_are_kept(
    monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    """Of simulated baselines they are the first; only those that it would get are drawn."""
    like = right_and_wrong(0.25, np.arange(40))
    baselines = []

    class Spy(EDetectors):
        def __init__(self, values: Any, *of_panel: Any) -> None:
            baselines.append(values)
            super().__init__(values, *of_panel)

    monkeypatch.setattr(simulation, "EDetectors", Spy)
    runs = simulation._RunCounts(repeats, min(repeats, 5))
    simulation._weeks_until_alarm(
        like, runs, [0.1], alarm_e=20, years=3, rng=np.random.default_rng(0)
    )
    (simulated,) = baselines
    assert simulated.shape == (3, repeats, 40)
    for year in simulated:
        assert (year[:5] == like.values[:repeats]).all()
    assert (simulated[0, 5:] == simulated[1, 5:]).all() == (repeats < 6)


def test_a_source_that_failed_once_needs_more_runs() -> None:
    """A quarter of the panel: five good runs ask for ten; one failure in ten for more."""
    units = np.array([0] * 25 + list(range(1, 76)))
    steady = np.ones((10, 100))
    failed = steady.copy()
    failed[7, :25] = 0
    assert needed_repeats([LimitBaseline(steady, units, 0.02, 52)], 0.05)[0].repeats == 10
    # the first runs are steady, and all of them count
    needed = needed_repeats([LimitBaseline(failed, units, 0.02, 52)], 0.05)[0].repeats
    assert needed in (20, 40, 80)
