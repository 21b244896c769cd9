from __future__ import annotations

import math

import pytest

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
