"""Intervals and percentiles of values whose figures are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.results import Stats
from eval_factory.scoring.statistics import describe, percentile


def test_wilson_for_zeros_and_ones() -> None:
    stats = describe([1.0] * 8 + [0.0] * 2)
    assert (stats.count, stats.mean, stats.ci_method) == (10, 0.8, "wilson")
    # Wilson 1927 for 8 of 10 at 95 %, computed by hand from the formula
    assert stats.ci_low == pytest.approx(0.4901625, abs=1e-6)
    assert stats.ci_high == pytest.approx(0.9433178, abs=1e-6)
    assert stats.stddev == pytest.approx(0.421637, abs=1e-6)


def test_student_t_for_other_values() -> None:
    stats = describe([1.0, 2.0, 3.0, 4.0, 5.0])
    assert stats.ci_method == "student-t"
    # t(0.975, 4) = 2.776445, standard error = sqrt(2.5 / 5)
    assert stats.ci_low == pytest.approx(3 - 2.776445 * 0.7071068, abs=1e-5)
    assert stats.ci_high == pytest.approx(3 + 2.776445 * 0.7071068, abs=1e-5)


def test_one_value_has_no_interval() -> None:
    stats = describe([0.5])
    assert (stats.stderr, stats.ci_low, stats.ci_method) == (None, None, None)


def test_equal_values() -> None:
    stats = describe([4.0, 4.0, 4.0])
    assert (stats.ci_low, stats.ci_high) == (4.0, 4.0)


def test_percentile() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(range(1, 101)), 0.95) == 95


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_percentile_is_the_nearest_rank_and_never_between_two_values(share: float) -> None:
    for count in range(1, 120):
        values = [float(value) for value in range(1, count + 1)]
        assert percentile(values[::-1], share) == math.ceil(share * count)
    assert type(percentile([1.0, 2.0], share)) is float


def test_an_interval_ends_where_the_scale_ends() -> None:
    assert describe([0.9, 0.1, 0.8]).ci_low == 0.0
    assert describe([0.9, 0.1, 0.8]).ci_high == 1.0
    rated = describe([5.0, 5.0, 5.0, 4.6], scale=(1.0, 5.0))
    assert rated.ci_high == 5.0
    free = describe([3.0, -1.0, 9.0])
    assert free.ci_low is not None
    assert free.ci_low < -1.0


def test_ratings_of_one_are_no_proportions() -> None:
    lowest = describe([1.0] * 8, scale=(1.0, 5.0))
    assert (lowest.ci_low, lowest.ci_high, lowest.ci_method) == (1.0, 1.0, "student-t")


def test_two_values_have_an_interval() -> None:
    """t(0.975, 1) = 12.706205; the standard error of 2 and 4 is 1."""
    stats = describe([2.0, 4.0])
    assert (stats.count, stats.mean) == (2, 3.0)
    assert stats.stderr == pytest.approx(1.0)
    assert stats.stddev == pytest.approx(math.sqrt(2))
    assert stats.ci_low == pytest.approx(3 - 12.706205, abs=1e-5)
    assert stats.ci_high == pytest.approx(3 + 12.706205, abs=1e-5)


def test_one_value_is_its_mean() -> None:
    assert describe([0.5]) == Stats(1, 0.5, None, None, None, None, None)


def test_a_mean_that_was_computed_elsewhere_is_reported_and_is_the_middle() -> None:
    stats = describe([2.0, 4.0, 6.0], mean=5.0)
    half = 4.302653 * 2 / math.sqrt(3)  # t(0.975, 2)
    assert stats.mean == 5.0
    assert stats.ci_low == pytest.approx(5 - half, abs=1e-5)
    assert stats.ci_high == pytest.approx(5 + half, abs=1e-5)
    assert describe([2.0, 4.0], mean=0.0).mean == 0.0
    assert describe([2.0], mean=3.0).mean == 3.0
    assert describe([2.0, 2.0], mean=3.0) == Stats(2, 3.0, 0.0, 0.0, 3.0, 3.0, "student-t")
    assert describe([1.0, 0.0], mean=0.25).mean == 0.25


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        ([0.0, 0.5, 1.0], (True, True)),
        ([-0.5, 0.5, 1.0], (False, False)),
        ([0.0, 0.5, 1.5], (False, False)),
        ([0.0, 0.5, 2.0], (False, False)),
        ([-0.001, 0.5, 1.0], (False, False)),
    ],
)
def test_values_from_0_to_1_are_taken_for_a_scale_and_others_are_not(
    values: list[float], cut: tuple[bool, bool]
) -> None:
    stats = describe(values)
    assert stats.ci_low is not None
    assert stats.ci_high is not None
    assert (stats.ci_low == 0.0, stats.ci_high == 1.0) == cut
    assert (stats.ci_low < 0, stats.ci_high > 1) == (not cut[0], not cut[1])


def test_only_zeros_and_ones_are_proportions() -> None:
    assert describe([0.0, 1.0, 1.0]).ci_method == "wilson"
    assert describe([0.0, 0.5, 1.0]).ci_method == "student-t"
    assert describe([0.0, 1.0], scale=(0.0, 2.0)).ci_method == "student-t"
    assert describe([0.0, 1.0], scale=(0.0, 1.0)).ci_method == "wilson"
    nothing_right = describe([0.0] * 10)
    assert (nothing_right.ci_method, nothing_right.stderr) == ("wilson", 0.0)
    assert nothing_right.ci_low == 0.0
    assert nothing_right.ci_high == pytest.approx(0.277533, abs=1e-6)  # 1.96^2 / (10 + 1.96^2)


def test_figures_are_pythons_own_numbers() -> None:
    """They are written as YAML and JSON, which know no others."""
    for values in ([0.0, 1.0, 1.0], [0.1, 0.7, 0.4], [3.0, 4.0, 9.0], [2.0, 2.0]):
        figures = vars(describe(values))
        assert {type(value) for name, value in figures.items() if name not in ("count", "ci_method")} == {float}


def test_equal_values_need_no_table() -> None:
    assert describe([0.25] * 3, scale=(0.5, 1.0)) == Stats(3, 0.25, 0.0, 0.0, 0.25, 0.25, "student-t")


def test_a_standard_error_of_one_is_an_error() -> None:
    assert describe([2.0, 4.0]).stderr == pytest.approx(1.0)
    exact = describe([-1.0, 1.0])
    assert exact.stderr == 1.0
    assert exact.ci_high == pytest.approx(12.706205, abs=1e-5)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, 1), (0.1, 1), (0.2, 1), (0.21, 2), (0.4, 2), (0.5, 3), (0.8, 4), (0.81, 5), (0.95, 5), (1.0, 5)],
)
def test_the_nearest_rank_is_the_first_that_so_many_do_not_exceed(share: float, expected: int) -> None:
    assert percentile([5, 3, 1, 4, 2], share) == expected


def test_percentiles_of_one() -> None:
    assert percentile([7.0], 0.0) == percentile([7.0], 0.5) == percentile([7.0], 1.0) == 7.0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 100))
def test_so_many_of_the_values_do_not_exceed_their_percentile(values: list[int], percent: int) -> None:
    found = percentile(values, percent / 100)
    assert found is not None
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values) - 1e-9
    assert 100 * sum(value < found for value in values) <= percent * len(values) + 1e-9


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=2, max_size=30))
def test_the_mean_lies_in_its_interval_and_that_on_the_scale(values: list[float]) -> None:
    stats = describe(values)
    assert stats.ci_low is not None
    assert stats.ci_high is not None
    assert 0 <= stats.ci_low <= stats.mean + 1e-9
    assert stats.mean - 1e-9 <= stats.ci_high <= 1
