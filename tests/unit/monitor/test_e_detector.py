"""The e-detector of a panel: against its formulas written as loops, and what it promises."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from eval_factory.monitor import detector
from eval_factory.monitor.detector import (
    EDetector,
    EDetectors,
    LimitBaseline,
    ShiryaevRobertsWealth,
    Units,
)

NAN = math.nan
RUNS: list[list[float]] = [
    [1, 1, 0, 0.5, 1, 0, 1, 1],
    [1, 0, 0, 0.75, 1, 0, 1, 1],
    [1, 1, 0, 0.25, 1, 1, 1, 1],
]
WEEKS: list[list[float]] = [
    [1, 0, 0, 0.5, 1, 0, 1, NAN],
    [0, 0, 0, 0.25, 0, 0, 1, 1],
    [0, 0, 0, 0, 0, NAN, 0, 1],
    [0, 1, 1, 0, 0, 0, 0, 0],
]
MANY = [7, 7, 1, 2, 3, 4, 5, 9]
FEW = [0, 0, 0, 1, 1, 2, 2, 3]
LARGE = [0, 0, 0, 1, 2, 3, 4, 5]
"""Of units, 6.4 effective ones; below 6; and three of eight instances in one."""


def groups(values: Sequence[float], units: Sequence[int]) -> list[list[float]]:
    return [
        [value for value, one in zip(values, units, strict=True) if one == unit]
        for unit in sorted(set(units))
    ]


def loop_sigma(runs: Sequence[Sequence[float]], units: Sequence[int]) -> float:
    repeats = len(runs)
    count = len(units)
    totals = [[sum(group) for group in groups(run, units)] for run in runs]
    sizes = [len(group) for group in groups(units, units)]
    squares = [statistics.variance(each) for each in zip(*totals, strict=True)]
    squares = [
        max(square, size**2 / repeats / 2) if size > 1 else square
        for square, size in zip(squares, sizes, strict=True)
    ]
    if count**2 / sum(size**2 for size in sizes) < 6 or max(sizes) > 0.3 * count:
        squares = [
            max(square, size**2 / repeats) for square, size in zip(squares, sizes, strict=True)
        ]
    half = count / len(sizes) / 2
    v = sum(squares) + half
    nu = max(4, (repeats - 1) * v**2 / (sum(square**2 for square in squares) + half**2))
    nu = min(
        nu, (repeats - 1) * sum(size**2 for size in sizes) ** 2 / sum(size**4 for size in sizes)
    )
    return float(stats.t.ppf(0.975, nu) / 1.96 * math.sqrt(v / repeats) / count)


def loop(
    runs: Sequence[Sequence[float]],
    units: Sequence[int],
    max_drop: float,
    looks: int,
    weeks: Sequence[Sequence[float]],
) -> list[tuple[float, int | None]]:
    """e and the look that the drop is dated from, after each week."""
    best = [statistics.fmean(each) for each in zip(*runs, strict=True)]
    sigma = loop_sigma(runs, units)
    growth: dict[tuple[float, float], list[float]] = {}
    found: list[tuple[float, int | None]] = []
    for at, week in enumerate(weeks, 1):
        seen = [1.0 if math.isnan(value) else value for value in week]
        evidence = {}
        for k in [step / 4 for step in range(17)]:
            h = max_drop + k * sigma
            stakes = []
            scale = max(sum(1 - b + h for b in group) for group in groups(best, units))
            for g in (0.9, 0.6, 0.35, 0.2, 0.1, 0.05):
                factor = 1.0
                for b, x in zip(groups(best, units), groups(seen, units), strict=True):
                    factor *= 1 + g / scale * sum(
                        one - other - h for one, other in zip(b, x, strict=True)
                    )
                since = growth.setdefault((k, g), [])
                since[:] = [stake * factor for stake in [*since, 1.0]]
                stakes.append(sum(since) / looks)
            price = (
                statistics.fmean(math.exp(bet * k - bet**2 / 2) for bet in (0.75, 1.5, 2.5)) / 1.29
            )
            evidence[k] = price * (statistics.fmean(stakes) + (looks - at) / looks)
        least = min(evidence, key=lambda k: evidence[k])
        means = [
            statistics.fmean(growth[least, g][start] for g in (0.9, 0.6, 0.35, 0.2, 0.1, 0.05))
            for start in range(at)
        ]
        found.append((evidence[least], means.index(max(means)) + 1 if max(means) > 1 else None))
    return found


@pytest.mark.parametrize("looks", [4, 52])
@pytest.mark.parametrize("max_drop", [0.0, 0.05])
@pytest.mark.parametrize("units", [MANY, FEW, LARGE, list(range(8)), [1] * 8])
def test_it_is_what_the_formulas_say(units: list[int], max_drop: float, looks: int) -> None:
    one = EDetector(LimitBaseline(np.array(RUNS), np.array(units), max_drop, looks))
    for week, (e, since) in zip(WEEKS, loop(RUNS, units, max_drop, looks, WEEKS), strict=True):
        assert one.add_look(week) == pytest.approx(e, rel=1e-9)
        assert one.since == since


@pytest.mark.parametrize("units", [MANY, FEW, LARGE, [0, 0, 0, 0, 0, 0, 0, 1]])
@pytest.mark.parametrize("runs", [RUNS, RUNS[:2], [[1.0] * 8] * 3])
def test_sigma_is_what_the_formula_says(runs: list[list[float]], units: list[int]) -> None:
    assert LimitBaseline(np.array(runs), np.array(units), 0, 1).sigma == pytest.approx(
        loop_sigma(runs, units), rel=1e-12
    )


@pytest.mark.parametrize(
    ("sizes", "few"),
    [
        ((1,) * 6, False),
        ((1,) * 5, True),
        ((3, *[1] * 7), False),
        ((4, *[1] * 9), True),
        ((4, 4, 4, 4, 1, 1, 1), True),
        ((2, *[1] * 6), False),
    ],
)
def test_few_units_and_large_ones_may_do_what_no_run_showed(
    sizes: tuple[int, ...], few: bool
) -> None:
    """Six effective units, and one of 30 %, are not yet few and large."""
    units = np.repeat(np.arange(len(sizes)), sizes)
    runs = np.ones((4, len(units)))
    runs[0, -1] = 0
    sigma = LimitBaseline(runs, units, 0, 1).sigma
    assert sigma == pytest.approx(loop_sigma(runs.tolist(), units.tolist()), rel=1e-12)
    half = len(units) / len(sizes) / 2
    complete = half + sum(size**2 for size in sizes) / 4
    assert (4 * (len(units) * sigma) ** 2 > complete) == few


def test_sigma_of_runs_without_a_difference_is_not_0() -> None:
    """Ten alone, B = 2: v is half of one, nu 4."""
    expected = 2.7764451 / 1.96 * math.sqrt(0.5 / 2) / 10
    assert LimitBaseline(np.ones((2, 10)), np.arange(10), 0, 1).sigma == pytest.approx(
        expected, rel=1e-6
    )


def test_a_unit_that_holds_most_is_taken_to_answer_as_a_whole() -> None:
    """It has (B - 1) degrees of freedom or few more, and differs in one of the runs: Students t of 3 and 80 of 100 / 4."""
    sizes = np.repeat(np.arange(21), [80, *[1] * 20])
    sigma = LimitBaseline(np.ones((4, 100)), sizes, 0, 1).sigma
    assert sigma == pytest.approx(stats.t.ppf(0.975, 3) / 1.96 * 0.8 / 4, rel=0.01)


def test_what_a_baseline_says_of_itself() -> None:
    one = LimitBaseline(
        np.array([[1, 0, 1, 1], [1, 1, 0, 1], [1, 0, 0, 1]]), np.arange(4), 0.02, 52
    )
    assert one.mean == pytest.approx(8 / 12)
    pairs = [
        np.mean(one.values[a] != one.values[b]) for a, b in itertools.combinations(range(3), 2)
    ]
    assert one.flip_rate == pytest.approx(np.mean(pairs)) == pytest.approx(1 / 3)
    rated = LimitBaseline([[0.5], [1.0]], [0], 0, 1)  # type: ignore[arg-type]  # a list does, too
    assert rated.flip_rate == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("values", "units", "max_drop", "looks", "why"),
    [
        ([[1, 1]], [0, 1], 0, 1, "two runs"),
        ([1, 1], [0, 1], 0, 1, "two runs"),
        ([[], []], [], 0, 1, "one instance"),
        ([[1, NAN], [1, 1]], [0, 1], 0, 1, "none is missing"),
        ([[1, 1.1], [1, 1]], [0, 1], 0, 1, "from 0 to 1"),
        ([[1, -0.1], [1, 1]], [0, 1], 0, 1, "from 0 to 1"),
        ([[1, 1], [1, 1]], [0], 0, 1, "one unit"),
        ([[1, 1], [1, 1]], [0, 1], -0.1, 1, "max_drop"),
        ([[1, 1], [1, 1]], [0, 1], 1.1, 1, "max_drop"),
        ([[1, 1], [1, 1]], [0, 1], 0, 0, "one look"),
    ],
)
def test_a_baseline_that_is_none_is_refused(
    values: Any, units: Any, max_drop: float, looks: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        LimitBaseline(np.array(values, float), np.array(units), max_drop, looks)


def test_the_ends_are_allowed() -> None:
    LimitBaseline(np.array([[0.0], [1.0]]), np.array([0]), 0.0, 1)
    LimitBaseline(np.array([[0.0], [1 + 1e-15]]), np.array([0]), 1.0, 1)


def test_a_look_more_than_there_should_be_is_refused() -> None:
    one = EDetector(LimitBaseline(np.ones((2, 3)), np.arange(3), 0, 2))
    one.add_look([1, 1 + 1e-15, 0])
    one.add_look([NAN, NAN, NAN])
    with pytest.raises(ValueError, match="for 2 looks"):
        one.add_look([1, 1, 1])


def test_a_missing_value_counts_as_the_best() -> None:
    baseline = LimitBaseline(np.array(RUNS), np.array(MANY), 0.0, 9)
    missing = EDetector(baseline)
    best = EDetector(baseline)
    wrong = EDetector(baseline)
    for week in WEEKS:
        values = np.array(week, float)
        gone = values.copy()
        full = values.copy()
        worst = values.copy()
        gone[:3] = NAN
        full[:3] = 1.0
        worst[:3] = 0.0
        e = missing.add_look(gone)
        assert e == best.add_look(full)
        assert e < wrong.add_look(worst)


def test_no_value_at_all_is_no_evidence() -> None:
    one = EDetector(LimitBaseline(np.array(RUNS), np.array(MANY), 0.0, 9))
    assert max(one.add_look([NAN] * 8) for _ in range(9)) < 1
    assert one.since is None


@pytest.mark.parametrize("max_drop", [0.0, 0.02])
def test_a_certain_drop_stays_a_number(max_drop: float) -> None:
    one = EDetector(LimitBaseline(np.ones((5, 300)), np.arange(300), max_drop, 52))
    evidence = [one.add_look(np.zeros(300)) for _ in range(52)]
    assert all(1e100 < e < 1e260 for e in evidence[10:])
    assert one.since == 1


def test_a_panel_at_the_ceiling_without_any_allowance() -> None:
    one = EDetector(LimitBaseline(np.ones((5, 50)), np.arange(50), 0.0, 52))
    assert one.since is None
    for _ in range(20):
        assert 0 < one.add_look(np.ones(50)) < 1
        assert one.since is None


@pytest.mark.parametrize("begins", [1, 8, 20])
def test_a_drop_is_dated(begins: int) -> None:
    rng = np.random.default_rng(begins)
    chance = rng.beta(4, 1, 200)
    one = EDetector(
        LimitBaseline((rng.random((5, 200)) < chance).astype(float), np.arange(200), 0.02, 52)
    )
    for look in range(1, begins + 8):
        one.add_look(rng.random(200) < (chance if look < begins else chance * 0.75))
    assert one.since is not None
    assert abs(one.since - begins) <= 1


def test_the_same_looks_give_the_same_numbers() -> None:
    baseline = LimitBaseline(np.array(RUNS), np.array(MANY), 0.01, 9)
    first = EDetector(baseline)
    second = EDetector(baseline)
    assert [first.add_look(week) for week in WEEKS] == [second.add_look(week) for week in WEEKS]


def test_the_price_of_luck_is_1_in_the_mean() -> None:
    """Of normal luck that is rounded up to the next k; below 0 it costs what 0 does, above 4 what 4 does."""
    ends = [-math.inf, *detector.Z_GRID[:-1], math.inf]
    shares = np.diff(stats.norm.cdf(ends))
    assert len(shares) == len(detector.MIXTURE_WEIGHTS) == 17
    assert 0.99 < float(shares @ detector.MIXTURE_WEIGHTS) <= 1


@pytest.mark.parametrize("units", [[0, 1, 2, 3], [0, 0, 1, 2]])
def test_a_bet_is_not_expected_to_grow_while_the_drop_is_allowed(units: list[int]) -> None:
    """Over all answers there can be, at just the drop that a k allows: at most 1 for it and each greater k."""
    runs = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]], float)
    share = runs.mean(axis=0)
    labels = Units(units)
    sigma = LimitBaseline(runs, np.array(units), 0.05, 52).sigma
    for k in (0, 1, 2):
        chances = share - (0.05 + detector.Z_GRID[k] * sigma)
        assert (chances > 0).all()
        expected = np.zeros((17, 6))
        for drawn in itertools.product((0, 1), repeat=len(labels.sizes)):
            # each unit as a whole, by the chance of its first; alone the others have their own
            answers = np.array(drawn)[labels.numbers]
            first = np.array(
                [chances[labels.numbers == unit].mean() for unit in range(len(labels.sizes))]
            )
            weight = np.prod(np.where(drawn, first, 1 - first))
            panel = EDetectors(runs[None], labels, 0.05, 52)
            panel.add_look(answers[None].astype(float))
            factors = np.exp(panel._wealth._log_factors[-1][0])
            assert (factors > 0).all()
            expected += weight * factors
        assert (expected[k:] <= 1 + 1e-12).all()
        assert (expected[k] > 0.999).all()
        assert k == 0 or (expected[0] > 1).all()


def test_panels_side_by_side_are_what_each_is_alone() -> None:
    rng = np.random.default_rng(1)
    runs = (rng.random((3, 4, 8)) < 0.8).astype(float)
    weeks = (rng.random((6, 3, 8)) < 0.5).astype(float)
    together = EDetectors(runs, Units(MANY), 0.02, 6)
    alone = [EDetector(LimitBaseline(each, np.array(MANY), 0.02, 6)) for each in runs]
    assert together.since().tolist() == [0, 0, 0]
    for week in weeks[:3]:
        assert together.add_look(week).tolist() == pytest.approx(
            [one.add_look(x) for one, x in zip(alone, week, strict=True)]
        )
        assert together.since().tolist() == [one.since or 0 for one in alone]
    part = together.for_panels(np.array([True, False, True]))
    assert part.since().tolist() == [alone[0].since or 0, alone[2].since or 0]
    for week in weeks[3:]:
        each = [alone[at].add_look(week[at]) for at in (0, 2)]
        e_of_part = part.add_look(week[[0, 2]])
        assert e_of_part.tolist() == pytest.approx(each)
        assert part.since().tolist() == [alone[at].since or 0 for at in (0, 2)]
    assert together.add_look(weeks[3])[0] != e_of_part[0]  # a copy goes on by itself
    early = EDetectors(runs, Units(MANY), 0.02, 6).for_panels(np.array([1]))
    assert early.add_look(weeks[0][1:2]).shape == (1,)


def test_a_lost_look_costs_its_stake() -> None:
    runs = np.ones((1, 5, 50))
    wrong = np.zeros((1, 50))
    one = EDetectors(runs, Units(np.arange(50)), 0.02, 4)
    fresh = EDetectors(runs, Units(np.arange(50)), 0.02, 4)
    one.add_look(wrong)
    one.lose_all()
    late = float(one.add_look(np.ones((1, 50)))[0])
    early = float(fresh.add_look(np.ones((1, 50)))[0])
    assert late < early < 1  # nothing is left of what grew


def test_a_stake_restarts_at_each_look() -> None:
    one = ShiryaevRobertsWealth(4)
    assert one.add_look(np.log([3.0, 1.0])) == pytest.approx((3 / 4 + 1 / 4) / 2 + 3 / 4)
    assert one.add_look(np.log([2.0, 1.0])) == pytest.approx(
        ((3 / 4 + 1 / 4) * 2 + 2 / 4) / 2 + 2 / 4
    )
    assert np.exp(one.log_growth()).tolist() == pytest.approx([(6 + 1) / 2, (2 + 1) / 2])
    assert one.looks_made == 2
    one.add_look(np.log([0.0 + 1e-300, 1.0]))
    assert one.add_look(np.array([900.0, 0.0])) == pytest.approx(1e250 / 2)
    with pytest.raises(ValueError, match="for 4 looks"):
        one.add_look(np.zeros(2))


def test_units_are_any_labels_in_any_order() -> None:
    units = Units([5, -1, 5, 3])
    assert (units.numbers.tolist(), units.sizes.tolist()) == ([2, 0, 2, 1], [1, 1, 2])
    assert units.totals(np.array([[1.0, 2.0, 4.0, 8.0], [0, 0, 1, 0]])).tolist() == [
        [2, 8, 5],
        [0, 0, 1],
    ]
