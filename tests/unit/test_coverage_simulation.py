"""The intervals cover what they say, in small runs of benchmarks/coverage_simulation.py and interval_coverage.py."""

from __future__ import annotations

import coverage_simulation as simulation
import interval_coverage
import numpy as np
import pytest
from coverage_simulation import Population
from interval_coverage import TABLES, Cell

SAMPLES = 300
SEED = 3
LEAST_OF_A_FEW = 0.90
"""Of 300 samples at 93 %, fewer than one series in 40 covers less."""


def named(beginning: str, populations: tuple[Population, ...]) -> Population:
    return next(one for one in populations if one.name.startswith(beginning))


@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize("name", ["jury: 97", "jury: 90", "ROUGE-like: 95"])
def test_values_at_an_end_of_their_scale_are_covered(name: str, size: int) -> None:
    population = named(name, simulation.ALONE)
    assert simulation.coverage(population, size, SAMPLES, SEED) >= LEAST_OF_A_FEW


def test_students_t_alone_does_not_cover_them() -> None:
    """So the simulation would show a mistake in our intervals."""
    assert (
        simulation.coverage_of_plain_t(named("jury: 97", simulation.ALONE), 10, SAMPLES, SEED) < 0.5
    )
    assert (
        simulation.coverage_of_plain_t(named("ROUGE-like: no", simulation.ALONE), 50, SAMPLES, SEED)
        >= 0.9
    )


@pytest.mark.parametrize("share", ["0.01 ", "0.5 ", "0.97 "])
def test_clustered_shares_are_covered(share: str) -> None:
    size = simulation.CALCULATORS * simulation.ROWS_OF_EACH
    assert (
        simulation.coverage(named(share, simulation.LARGE_CLUSTERS), size, 200, SEED)
        >= LEAST_OF_A_FEW
    )


def test_clusters_that_are_taken_for_none_are_not_covered() -> None:
    """55 of 19 with an ICC of 0.2, each instance on its own: about 65 %."""
    clustered = simulation.clustered_shares(0.5, 19)
    rows = clustered.draw(np.random.default_rng(SEED), 200, 1045)
    assert 0.5 < sum(abs(row.mean() - 0.5) < 1.96 * 0.5 / 1045**0.5 for row in rows) / 200 < 0.8


@pytest.mark.parametrize(
    ("share", "count", "least"),
    [(0.5, 20, 0.93), (0.9, 50, 0.93), (0.97, 300, 0.93), (0.5, 5, 0.99)],
)
def test_shares_are_covered_to_the_last_count(share: float, count: int, least: float) -> None:
    assert least <= simulation.coverage_of_share(share, count) <= 1.0 + 1e-9
    assert simulation.coverage_of_share(share, count) == pytest.approx(
        simulation.coverage_of_share(1 - share, count)
    )


NOT_HELD = {("rubrics", "5 % can lose 4, 60 % of them do", "30")}
"""Every fifth sample holds none of the cases that can lose points: nothing in it says that there are such."""


def cell(table: str, row: str, column: str) -> Cell:
    return next(one for one in TABLES[table][1]() if (one.row, one.column) == (row, column))


@pytest.mark.parametrize(
    ("table", "row", "column"),
    [
        ("corrected", "95% right; always the best", "120, 60"),  # 85 % with a plain t
        ("corrected", "97% right; always the best", "300, 100"),
        ("corrected", "95% fives; always the best", "120, 60"),
        ("corrected", "95% right; noisy", "12, 12"),
        ("bias", "97% right; always the best", "300, 60"),  # of no width in every sixth sample
        ("bias", "99% right; noisy", "120, 60"),
        ("bias", "95% right; follows half", "300, 100"),
        (
            "clusters",
            "race_based_med",
            "90%, 0.8",
        ),  # 80 % with as many degrees as clusters, less one
        ("clusters", "half of 400 in one", "50%, 0.2"),
        ("ratings", "five and singles", "90%, 0.8"),
        ("paired", "two large of 300", "90%, 0.8"),
        ("corrected_clusters", "five and singles; always the best", "90%, 0.5"),
        ("rubrics", "4 % are -3, all can be", "30"),  # 70 % with a plain t
        ("rubrics", "same, others .4 to 1", "30"),
    ],
)
def test_the_hardest_samples_are_held(table: str, row: str, column: str) -> None:
    """Of 200 samples at 93 %, fewer than one series in 10 holds less than 90.5."""
    found = interval_coverage.measured(cell(table, row, column), 200, 3)
    assert found.held >= 0.905
    assert found.without == 0
    if table in ("corrected", "bias"):
        assert found.most_on_a_side <= 0.075


@pytest.mark.parametrize("table", ["clusters", "paired", "corrected_clusters"])
def test_one_source_that_holds_nearly_all_gives_no_interval(table: str) -> None:
    cells = [one for one in TABLES[table][1]() if one.row.startswith("80 % in one")]
    found = [interval_coverage.measured(one, 20, 3) for one in cells]
    assert len(found) >= 6
    assert all(one.without > 0 for one in found)


@pytest.mark.more_data
@pytest.mark.parametrize("table", TABLES)
def test_every_sample_is_held(table: str) -> None:
    for one in TABLES[table][1]():
        found = interval_coverage.measured(one, 1000, 5)
        if found.without < 1 and (table, one.row, one.column) not in NOT_HELD:
            assert found.held >= 0.91, one
            assert table not in ("corrected", "bias") or found.most_on_a_side <= 0.07, one
