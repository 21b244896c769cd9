"""Krippendorff's alpha: his own example, by hand, and against the package `krippendorff`, which only the tests have."""

from __future__ import annotations

import math
import random

import krippendorff
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.scoring.krippendorff_alpha import ordinal_alpha

Table = list[list[int | None]]
"""A row a rater, a column a unit; None where the rater gave none."""


def units_of(table: Table) -> list[list[int]]:
    return [[rating for rating in column if rating is not None] for column in zip(*table, strict=True)]


def by_the_package(table: Table) -> float:
    numbers = [[math.nan if rating is None else float(rating) for rating in row] for row in table]
    return float(krippendorff.alpha(numbers, level_of_measurement="ordinal"))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    raters, units = draw(st.integers(2, 5)), draw(st.integers(1, 12))
    scale = draw(st.sampled_from([(1, 2), (1, 2, 3, 4, 5), (-3, 0, 7, 100)]))
    rating = st.none() | st.sampled_from(scale)
    row = st.lists(rating, min_size=units, max_size=units)
    return draw(st.lists(row, min_size=raters, max_size=raters))


@settings(max_examples=200)
@given(tables())
def test_it_is_the_packages_on_any_table_and_none_where_it_is_not_defined(table: Table) -> None:
    rated = [unit for unit in units_of(table) if len(unit) > 1]
    alpha = ordinal_alpha(units_of(table))
    if len({rating for unit in rated for rating in unit}) < 2:
        assert alpha is None
    else:
        assert alpha == pytest.approx(by_the_package(table), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_packages_on_a_jurys_table(seed: int) -> None:
    """Three judges, 400 answers by three criteria, one in ten judgements missing."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
    truth = [drawn.choices((1, 2, 3, 4, 5), (1, 2, 4, 8, 16))[0] for _ in range(1200)]
    table: Table = [
        [None if drawn.random() < 0.1 else min(5, max(1, rating + drawn.choice((-1, 0, 0, 0, 1)))) for rating in truth]
        for _ in range(3)
    ]
    alpha = ordinal_alpha(units_of(table))
    assert alpha == pytest.approx(by_the_package(table), rel=1e-9)
    assert alpha is not None
    assert 0.3 < alpha < 0.95


def test_krippendorffs_example() -> None:
    """K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): 0.815 for ordinal data."""
    table: Table = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    alpha = ordinal_alpha(units_of(table))
    assert alpha == pytest.approx(0.815, abs=0.0005)
    assert type(alpha) is float


def test_by_hand() -> None:
    """(1,1), (1,2), (3,3): n_1 = 3, n_2 = 1, n_3 = 2, n = 6; o_12 = 1; d_12 = 2, d_13 = 3.5, d_23 = 1.5.

    Observed 4; expected 3 * 4 + 6 * 12.25 + 2 * 2.25 = 90.
    """
    assert ordinal_alpha([[1, 1], [1, 2], [3, 3]]) == pytest.approx(1 - 5 * 4 / 90, rel=1e-15)


def test_a_unit_of_three_raters_weighs_as_three_ratings() -> None:
    """(1,1,2), (2,2): n_1 = 2, n_2 = 3, n = 5; o_12 = 2 / 2; d_12 = 2.5: alpha = 1 - 4 * 1 / 6."""
    assert ordinal_alpha([[1, 1, 2], [2, 2]]) == pytest.approx(1 / 3, rel=1e-15)


def test_only_the_order_of_ratings_counts() -> None:
    assert ordinal_alpha([[1, 2], [2, 2], [5, 2]]) == ordinal_alpha([[10, 20], [20, 20], [21, 20]])


def test_extremes() -> None:
    assert ordinal_alpha([[1, 1], [5, 5], [3, 3]]) == 1.0
    below = ordinal_alpha([[1, 5], [5, 1], [1, 5], [5, 1]])
    assert below is not None
    assert below < 0


@pytest.mark.parametrize(
    "units", [[], [[]], [[3]], [[3], [4], []], [[4, 4]], [[4, 4], [4, 4, 4], [1], [5]], [[2, 2], [1]]]
)
def test_where_it_is_not_defined_there_is_none(units: list[list[int]]) -> None:
    assert ordinal_alpha(units) is None


def test_what_one_rater_alone_rated_changes_nothing() -> None:
    units = [[1, 2], [3, 3], [4, 5]]
    assert ordinal_alpha([*units, [1], [5], []]) == ordinal_alpha(units)


def test_it_does_not_depend_on_the_order_to_the_last_digit() -> None:
    drawn = random.Random(7)  # noqa: S311 - no secret
    units = [[drawn.randint(1, 5) for _ in range(drawn.randint(0, 4))] for _ in range(200)]
    expected = ordinal_alpha(units)
    for _ in range(5):
        drawn.shuffle(units)
        for unit in units:
            drawn.shuffle(unit)
        assert ordinal_alpha(units) == expected
