"""False alarms and power of a panel, in small runs of benchmarks/monitor_alarms.py."""

from __future__ import annotations

import sys
from collections import Counter

import monitor_alarms as simulation
import numpy as np
import pytest
from monitor_alarms import ROWS, Panel

from eval_factory.monitor import detector

YEARS = 200
NOISY = ROWS["100, r 30 %, accuracy 0.8"]


@pytest.mark.parametrize(
    "name",
    [
        "80, 20 alone, r 30 %",
        *(
            pytest.param(name, marks=pytest.mark.simulation)
            for name in ("100, r 30 %, accuracy 0.8", "ratings, fives, r 30 %", "5 % missing")
        ),
    ],
)
def test_alarms_are_seldom_false(name: str) -> None:
    """At 1 % a year more than 3.5 % of 200 are met in one series of 1,000."""
    assert max(simulation.false_alarms(ROWS[name], YEARS)) <= 0.035


def test_a_baseline_that_is_taken_for_exact_gives_false_alarms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the simulation would show a mistake in sigma."""
    monkeypatch.setattr(detector, "sigma_of", lambda values, *_: np.zeros(len(values)))
    assert float((simulation.first_alarms(NOISY, YEARS, 0.0, 0.0) > 0).mean()) > 0.08


ONE_FAILS = ROWS["25 of 100 fail as a whole in 10 %, B 10"]


@pytest.mark.parametrize(("floor", "least", "most"), [(0.0, 0.1, 1.0), (0.5, 0.0, 0.05)])
def test_a_source_that_fails_as_a_whole_is_no_alarm(
    monkeypatch: pytest.MonkeyPatch, floor: float, least: float, most: float
) -> None:
    """Without the floor of each unit's variance every fifth unchanged year has an alarm."""
    assert detector.MIN_VARIANCE_SHARE == 0.5
    sigma_of = detector.sigma_of
    monkeypatch.setattr(
        detector, "sigma_of", lambda values, units, _: sigma_of(values, units, floor)
    )
    assert least <= float((simulation.first_alarms(ONE_FAILS, 100, 0.0, 0.0) > 0).mean()) <= most


@pytest.mark.simulation
def test_a_drop_is_found_with_the_runs_that_are_recommended() -> None:
    counts, found, weeks = simulation.power(ROWS["100, r 10 %, accuracy 0.8"], 100)
    assert set(counts) <= {5, 10}
    assert found >= 0.97
    assert 2 <= weeks <= 7
    counts, found, _ = simulation.power(ROWS["20 alone, r 30 %"], 100)
    assert counts == Counter({None: simulation.BASELINES})
    assert np.isnan(found)


@pytest.mark.simulation
def test_a_baseline_that_was_bad_by_chance_does_not_hide_a_drop() -> None:
    """With 5 runs, which most such baselines had, 93.5 % of years found it."""
    counts, found, _ = simulation.power(ROWS["300 in fives, r 30 %, accuracy 0.8"], 100)
    assert counts[10] > counts[5]
    assert found >= 0.97


def test_one_of_five_tasks_alone_takes_longer() -> None:
    weeks = [
        np.median(simulation.first_alarms(Panel(tasks=tasks), 60, 0.02, 0.1, 20, alone=True))
        for tasks in (1, 5)
    ]
    assert 20 <= weeks[0] < weeks[1]


def test_the_line_of_changes_is_seldom_wrong() -> None:
    assert simulation.changes(ROWS["999 of 1,000 right"], YEARS) <= 0.05


@pytest.mark.parametrize(
    ("panel", "tolerance"),
    [
        (Panel((1,) * 400), 0.01),
        (Panel((5,) * 80, 0.3, 0.5, 0.3), 0.02),
        (Panel((1,) * 400, rated=True), 0.02),
    ],
)
def test_answers_are_as_they_are_said_to_be(panel: Panel, tolerance: float) -> None:
    answers = simulation.Answers(panel, 50, np.random.default_rng(0))
    every = np.arange(50)
    first = answers.draw(every)
    second = answers.draw(every)
    fallen = answers.draw(every, 0.1)
    worth = panel.accuracy + 0.375 * (1 - panel.accuracy) if panel.rated else panel.accuracy
    assert first.mean() == pytest.approx(worth, abs=tolerance)
    assert ((first == 1) != (second == 1)).mean() == pytest.approx(panel.flips, abs=tolerance)
    assert first.mean() - fallen.mean() == pytest.approx(0.1, abs=tolerance)
    assert sorted(set(first.ravel().tolist())) == (
        [0, 0.25, 0.5, 0.75, 1] if panel.rated else [0, 1]
    )


@pytest.mark.more_data
def test_every_row_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["monitor_alarms.py", "--years", "400"])
    assert simulation.main() == 0
