"""Intervals and percentiles of values whose figures are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.results import Stats
from eval_factory.scoring.statistics import describe, few_sources, percentile


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


def test_equal_values_of_an_unknown_scale_have_no_interval() -> None:
    """A width of zero would be wrong, and nothing says how far away another value could be."""
    stats = describe([4.0, 4.0, 4.0])
    assert (stats.mean, stats.stddev, stats.stderr) == (4.0, 0.0, 0.0)
    assert (stats.ci_low, stats.ci_high, stats.ci_method) == (None, None, None)


def test_ten_of_ten_are_an_exact_bound() -> None:
    """scipy.stats.binomtest(10, 10).proportion_ci(method="exact") begins at 0.6915029."""
    all_right, none_right = describe([1.0] * 10), describe([0.0] * 10)
    assert (all_right.ci_method, all_right.ci_high) == ("exact-one-sided", 1.0)
    assert all_right.ci_low == pytest.approx(0.6915029, abs=1e-7)
    assert (none_right.ci_method, none_right.ci_low, none_right.stderr) == ("exact-one-sided", 0.0, 0.0)
    assert none_right.ci_high == pytest.approx(0.3084971, abs=1e-7)


def test_a_jury_that_always_says_the_same_has_an_interval() -> None:
    """One rating in 1 - 0.025 ** (1 / 8) = 0.36943 may be another one, and lie at an end of the scale."""
    fives = describe([5.0] * 8, scale=(1.0, 5.0))
    assert (fives.ci_high, fives.ci_method) == (5.0, "exact-one-sided")
    assert fives.ci_low == pytest.approx(5 - 4 * 0.3694167, abs=1e-6)
    twos = describe([2.0] * 8, scale=(1.0, 5.0))
    assert twos.ci_low == pytest.approx(2 - 0.3694167, abs=1e-6)
    assert twos.ci_high == pytest.approx(2 + 3 * 0.3694167, abs=1e-6)


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
    assert (lowest.ci_low, lowest.ci_method) == (1.0, "exact-one-sided")
    assert lowest.ci_high == pytest.approx(1 + 4 * 0.3694167, abs=1e-6)


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
    assert describe([2.0, 2.0], mean=3.0) == Stats(2, 3.0, 0.0, 0.0, None, None, None)
    rated, moved = describe([2.0, 4.0, 5.0], scale=(1, 9)), describe([2.0, 4.0, 5.0], mean=4.0, scale=(1, 9))
    assert rated.ci_low is not None
    assert moved.ci_low == pytest.approx(rated.ci_low + 1 / 3)
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
    assert describe([0.0, 0.5, 1.0]).ci_method == "student-t-pseudo-values"
    assert describe([0.0, 1.0], scale=(0.0, 2.0)).ci_method == "student-t-pseudo-values"
    assert describe([0.0, 1.0], scale=(0.0, 1.0)).ci_method == "wilson"


def test_figures_are_pythons_own_numbers() -> None:
    """They are written as YAML and JSON, which know no others."""
    others = ("count", "ci_method", "clusters", "trials", "trial_stddev", "p_value", "p_holm")
    for values in ([0.0, 1.0, 1.0], [0.1, 0.7, 0.4], [3.0, 4.0, 9.0], [1.0, 1.0, 3.0]):
        for clusters in (None, ["a", "a", "b"]):
            figures = vars(describe(values, clusters=clusters)).items()
            kinds = {type(value) for name, value in figures if name not in others and value is not None}
            assert kinds == {float}


def test_values_beyond_their_scale_are_on_none() -> None:
    assert describe([0.25] * 3, scale=(0.5, 1.0)) == Stats(3, 0.25, 0.0, 0.0, None, None, None)
    beyond = describe([0.25, 0.75, 0.75], scale=(0.5, 1.0))
    assert (beyond.ci_low, beyond.ci_high, beyond.ci_method) == (None, None, None)
    assert describe([0.25, 0.75, 0.75] * 33, scale=(0.5, 1.0)).ci_method is None
    many = describe([0.25, 0.75, 0.75, 0.75] * 25, scale=(0.5, 1.0))
    assert (many.count, many.ci_method) == (100, "student-t")
    assert describe([-1.0, 0.75, 0.75]).ci_method == "student-t"  # no scale is known


def test_cases_with_a_lowest_value_of_their_own() -> None:
    """29 of 30 cases are 1, and each could be -3: a loss that is in no such sample is possible."""
    lowest = [-3.0] * 30
    found = describe([1.0] * 29 + [0.5], lowest=lowest)
    as_on_a_scale = describe([1.0] * 29 + [0.5], scale=(-3.0, 1.0))
    assert (found.ci_low, found.ci_high) == (as_on_a_scale.ci_low, as_on_a_scale.ci_high)
    assert found.ci_method == "student-t-pseudo-values"
    equal = describe([1.0] * 30, lowest=lowest)
    assert equal.ci_method == "exact-one-sided"
    assert equal.ci_low == pytest.approx(1 - 4 * (1 - 0.025 ** (1 / 30)))
    assert describe([1.0, 0.0, 1.0], lowest=[0.0] * 3).ci_method == "wilson"
    lost = describe([1.0] * 29 + [-3.0], lowest=lowest)
    assert lost.ci_low is not None
    assert lost.ci_low < 0.6


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ("abcdefgh", None),
        ("aabbccddeeff", None),
        ("aabbccddeef", "few sources decide the interval: 6 sources say as much as 5.8 of equal size, and the largest holds 18 %"),
        ("aaaabbccddeeffg", None),
        ("aaaaaabbccddeeffghij", None),
        ("aaaaaaabcdefghijklmno", "few sources decide the interval: 15 sources say as much as 7.0 of equal size, and the largest holds 33 %"),
        ("aab", "there is no interval: 2 sources say as much as 1.8 of equal size, and 2 are needed"),
        ("aabb", "few sources decide the interval: 2 sources say as much as 2.0 of equal size, and the largest holds 50 %"),
    ],
)  # fmt: skip
def test_few_sources_are_said(clusters: str, said: str | None) -> None:
    assert few_sources(clusters) == said


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


def test_clustered_values_say_so() -> None:
    """Two clusters of four that agree inside: no more than two values. SE by hand: distances' sums are 2 and -2, so the
    variance is 2 / 1 * 8 / 64 = 0.25; of independent values it were 2 / 7 / 8 = 0.0357."""
    stats = describe([1.0] * 4 + [0.0] * 4, clusters=["a"] * 4 + ["b"] * 4)
    assert (stats.clusters, stats.stderr) == (2, 0.5)
    assert stats.design_effect == pytest.approx(7.0)
    assert stats.effective_n == pytest.approx(8 / 7)
    assert stats.ci_method == "wilson-clustered"
    assert stats.ci_low is not None
    assert stats.ci_low < 0.02


def test_a_design_effect_below_one_adds_no_instances() -> None:
    stats = describe([1.0, 0.0] * 5, clusters=[number // 2 for number in range(10)])
    assert (stats.design_effect, stats.effective_n) == (0.0, 10.0)


def test_each_instance_a_source_of_its_own_is_no_clustering() -> None:
    alone, clustered = describe([1.0, 0.0, 1.0]), describe([1.0, 0.0, 1.0], clusters="abc")
    assert (alone.clusters, alone.design_effect, alone.effective_n) == (None, None, None)
    assert (clustered.clusters, clustered.ci_method) == (3, "wilson")
    assert (clustered.ci_low, clustered.ci_high) == (alone.ci_low, alone.ci_high)
    assert clustered.design_effect == pytest.approx(1.0)


def test_instances_of_one_source_have_no_interval() -> None:
    stats = describe([1.0, 0.0, 1.0], clusters="aaa")
    assert (stats.clusters, stats.stderr, stats.design_effect, stats.effective_n) == (1, None, None, None)
    assert (stats.ci_low, stats.ci_high, stats.ci_method) == (None, None, None)
    assert stats.stddev is not None
    assert describe([1.0], clusters="a") == Stats(1, 1.0, None, None, None, None, None, clusters=1)


def test_methods_of_clustered_values() -> None:
    labels = "aabb"
    assert describe([0.2, 0.4, 0.9, 0.3], clusters=labels).ci_method == "student-t-pseudo-values-clustered"
    assert describe([2.0, 4.0, 9.0, 3.0], clusters=labels).ci_method == "student-t-clustered"
    equal = describe([1.0] * 4, clusters=labels)
    assert (equal.ci_method, equal.design_effect, equal.effective_n) == ("exact-one-sided-clustered", None, None)
    assert equal.ci_low == pytest.approx(0.025**0.5)  # of two clusters, not of four values
