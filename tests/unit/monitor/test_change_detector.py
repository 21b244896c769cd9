"""The line that says "something changed": its ranks, its bets, and what several of them need."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from eval_factory.monitor.detector import ChangeDetector, alarm_level

TOTALS = [80.0, 82.0, 81.0, 80.0]
WEEKS = [81.0, 80.0, 75.0, 75.0, 74.0, 90.0]


def loop(
    known: Sequence[float], looks: int, seed: int, weeks: Sequence[float]
) -> list[tuple[float, int | None]]:
    rng = np.random.default_rng(seed)
    before = list(known)
    grown: dict[tuple[float, bool], list[float]] = {}
    found: list[tuple[float, int | None]] = []
    for at, total in enumerate(weeks, 1):
        before.append(total)
        below = sum(one < total for one in before)
        same = sum(one == total for one in before)
        p = (below + rng.uniform(1e-9, 1 - 1e-9) * same) / len(before)
        stakes = []
        for c in (0.1, 0.3, 0.5, 0.7, 0.9):
            for low in (True, False):
                since = grown.setdefault((c, low), [])
                since[:] = [one * c * (p if low else 1 - p) ** (c - 1) for one in [*since, 1.0]]
                stakes.append(sum(since) / looks)
        means = [statistics.fmean(each[start] for each in grown.values()) for start in range(at)]
        value = statistics.fmean(stakes) + (looks - at) / looks
        found.append((value, means.index(max(means)) + 1 if max(means) > 1 else None))
    return found


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_it_is_what_the_formulas_say(seed: int) -> None:
    one = ChangeDetector(TOTALS, 6, seed)
    assert one.since is None
    for week, (value, since) in zip(WEEKS, loop(TOTALS, 6, seed, WEEKS), strict=True):
        assert one.add_look(week) == pytest.approx(value, rel=1e-9)
        assert one.since == since
    with pytest.raises(ValueError, match="for 6 looks"):
        one.add_look(80.0)


def test_the_same_totals_give_the_same_numbers() -> None:
    first, second, other = (ChangeDetector(TOTALS, 9, seed) for seed in (3, 3, 4))
    numbers = [first.add_look(week) for week in WEEKS]
    assert numbers == [second.add_look(week) for week in WEEKS]
    assert numbers != [other.add_look(week) for week in WEEKS]


def test_totals_that_are_equal_but_for_rounding_are_tied() -> None:
    exact = ChangeDetector([0.3, 0.3], 3, 0)
    rounded = ChangeDetector([0.1 + 0.2, 0.3], 3, 0)
    assert [exact.add_look(0.3) for _ in range(3)] == [
        rounded.add_look(0.1 + 0.2) for _ in range(3)
    ]


@pytest.mark.parametrize("shift", [-12, 12])
def test_it_finds_a_change_for_the_worse_and_for_the_better(shift: float) -> None:
    rng = np.random.default_rng(1)
    one = ChangeDetector(rng.normal(80, 1, 10), 52, 0)
    means = [80.0] * 19 + [80 + shift] * 20
    values = [one.add_look(rng.normal(mean, 1)) for mean in means]
    assert max(values[:19]) < 5
    assert max(values) > 20
    assert one.since is not None
    assert abs(one.since - 20) <= 5


def test_while_nothing_changes_it_alarms_seldom() -> None:
    rng = np.random.default_rng(2)
    alarms = 0
    for year in range(200):
        totals = rng.binomial(20, 0.9, 57).tolist()
        one = ChangeDetector(totals[:5], 52, year)
        if max(map(one.add_look, totals[5:])) >= 20:
            alarms += 1
    assert alarms <= 10


def test_extremes_stay_numbers() -> None:
    one = ChangeDetector([0.0], 200, 0)
    values = [one.add_look(float(look)) for look in range(1, 201)]
    assert all(0 < value < math.inf for value in values)
    assert 1 <= (one.since or 0) < 10


def test_several_need_their_number_times_as_much() -> None:
    assert alarm_level(0.05) == 20
    assert alarm_level(0.05, tests=2) == 40
