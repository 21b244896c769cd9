"""Which 95 % interval a mean gets, and each formula."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from eval_factory.core.results import Stats
from eval_factory.scoring.intervals import (
    NO_INTERVAL,
    RESAMPLES,
    SEED,
    bca_interval_of_ratio,
    describe,
    design_effect,
    effective_clusters,
    interval_of_equal_values,
    interval_of_mean,
    lower_end_of_scale,
    mean_and_variance,
    note_on_few_sources,
    percentile,
    student_t_interval,
    t_quantile,
    variance_of,
    wilson,
    wilson_clustered,
)
from known import ends, near, there


def of_a_mean(values: list[float], clusters: list[int]) -> float:
    """The standard error by statsmodels, with its small-sample factor."""
    fitted = OLS(values, [1.0] * len(values)).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True
    )
    return float(fitted.bse[0])


def drawn(clusters: int, seed: int) -> tuple[list[float], list[int]]:
    """Values that are alike inside clusters of different sizes."""
    source = random.Random(seed)  # noqa: S311 - nothing secret
    values = []
    labels = []
    for cluster in range(clusters):
        level = source.uniform(1, 5)
        for _ in range(source.randint(1, 6)):
            values.append(level + source.gauss(0, 0.5))
            labels.append(cluster)
    return values, labels


def test_wilson_is_statsmodels_and_takes_a_number_that_is_not_whole_and_another_quantile() -> None:
    for right, count in ((1, 5), (8, 10), (3, 100), (500, 1000), (0, 10), (10, 10)):
        expected = proportion_confint(right, count, method="wilson")
        assert wilson(right / count, count) == near(expected, abs=1e-12)
    low, high = wilson(0.3, 12.5, 2.5)
    for end in (low, high):  # both ends solve Wilson's equation
        assert (0.3 - end) ** 2 == near(2.5**2 * end * (1 - end) / 12.5)
    assert low < 0.3 < high


@pytest.mark.parametrize(("clusters", "seed"), [(3, 1), (5, 2), (30, 3)])
def test_cluster_robust_is_statsmodels_with_the_effective_number_for_its_degrees(
    clusters: int, seed: int
) -> None:
    values, labels = drawn(clusters, seed)
    stderr = of_a_mean(values, labels)
    effective = effective_clusters(labels)
    assert 2 < effective < clusters
    assert math.sqrt(mean_and_variance(values, labels)[1]) == near(stderr)
    found = describe(values, clusters=labels)
    assert (found.stderr, found.design_effect) == near(
        (stderr, stderr**2 / (stats.sem(values) ** 2))
    )
    half = stats.t.ppf(0.975, effective - 1) * stderr
    mean = sum(values) / len(values)
    assert student_t_interval(values, clusters=labels) == near((mean - half, mean + half))


def test_effective_clusters_are_kishs_number_and_fewer_than_two_say_nothing() -> None:
    assert [effective_clusters(one) for one in ("aabbcc", "aaaaaabcd", "abc", "aa")] == [
        3,
        81 / 39,
        3,
        1,
    ]
    values = [1.0, 0.0, 1.0]
    for few in ("aaa", "aab"):
        assert describe(values, clusters=few).stderr is None
        assert interval_of_mean(values, clusters=few) == NO_INTERVAL
        assert interval_of_mean([2.0, 4.0, 9.0], clusters=few) == interval_of_mean(
            [0.2, 0.4, 0.9], clusters=few
        )
    assert (
        interval_of_mean([0.5]) == interval_of_mean([0.2, 0.4, 0.9], clusters="aab") == NO_INTERVAL
    )
    equal = describe([2.0, 2.0, 2.0], clusters="abc")
    assert (equal.stderr, equal.design_effect) == (0.0, None)


def test_students_t_is_scipys_and_on_a_scale_it_has_a_pseudo_value_at_each_end() -> None:
    values = [1.0, 2.0, 4.0, 8.5]
    assert variance_of(values) == near(stats.tvar(values))
    assert student_t_interval(values) == near(DescrStatsW(values).tconfint_mean())
    values = [5.0, 5.0, 4.0, 5.0, 3.0, 5.0]
    with_ends = DescrStatsW([*values, 1.0, 9.0])
    half = stats.t.ppf(0.975, 5) * with_ends.std_mean
    assert student_t_interval(values, (1, 9)) == near(
        (with_ends.mean - half, with_ends.mean + half)
    )
    low, high = student_t_interval([5.0, 5.0, 5.0, 4.9], (1, 5))
    assert 1.0 < low < 4.9 < high == 5.0
    assert student_t_interval([1.0, 1.0, 1.0, 1.1], (1, 5))[0] == 1.0


def test_on_a_scale_of_clusters_has_a_pseudo_cluster_at_each_end() -> None:
    values = [0.2, 0.4, 0.9, 0.7, 0.1, 0.3, 0.5, 0.5, 0.6, 0.2]
    labels = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    stderr = of_a_mean([*values, 0, 0, 1, 1], [*labels, 5, 5, 6, 6])
    mean = (sum(values) + 2) / 14
    half = stats.t.ppf(0.975, 4) * stderr
    assert student_t_interval(values, (0, 1), labels) == near(
        (max(0, mean - half), min(1, mean + half))
    )


def test_clustered_proportions_are_wilsons_on_the_effective_number() -> None:
    """Four clusters of four; half a pseudo-cluster at each end is two values."""
    values = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    labels = [number // 4 for number in range(16)]
    with_halves = [*values, 0.0, 0.0, 1.0, 1.0]
    effect = (of_a_mean(with_halves, [*labels, 4, 4, 5, 5]) / stats.sem(with_halves)) ** 2
    assert effect > 1.5
    assert design_effect(values, (0.0, 1.0), labels) == near(effect)
    quantile = stats.t.ppf(0.975, 3)
    low, high = wilson_clustered(values, labels)
    assert low < 11 / 16 < high
    for end in (low, high):
        assert (11 / 16 - end) ** 2 == near(quantile**2 * end * (1 - end) / (16 / effect))


def test_pseudo_clusters_are_larger_where_few_clusters_are_large() -> None:
    """Sizes 6, 2, 2 and 2 of ratings from 1 to 5: 3 effective clusters of 4, less half of the mean size 3, are 2.5."""
    values = [1.0, 2.0, 1.0, 3.0, 2.0, 1.0, 5.0, 4.0, 5.0, 5.0, 4.0, 5.0]
    labels = [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert effective_clusters(labels) == 3
    mean = (38 + 2.5 * 6) / 17
    ends = [2.5 * (1 - mean), 2.5 * (5 - mean)]
    totals = [10 - 6 * mean, 9 - 2 * mean, 10 - 2 * mean, 9 - 2 * mean, *ends]
    variance = 6 / 5 * sum(one**2 for one in totals) / 17**2
    squares = sum((one - mean) ** 2 for one in values) + 2.5 * ((1 - mean) ** 2 + (5 - mean) ** 2)
    assert design_effect(values, (1.0, 5.0), labels) == near(variance / (squares / 17 / 16))
    assert design_effect([1.0, 0.0] * 6, (0.0, 1.0), labels) == near(1.0, abs=0.6)
    ones = [float(value > 3) for value in values]
    count = 12 / design_effect(ones, (0.0, 1.0), labels)
    assert wilson_clustered(ones, labels) == near(wilson(0.5, count, t_quantile(2.0)))


def test_pseudo_clusters_on_a_scale_are_at_least_of_the_mean_size() -> None:
    """Ten of one source and six of others: 2.42 effective clusters of 6.6, less half of the mean, 16 / 7."""
    values = [0.5, 0.7] * 8
    labels = [0] * 10 + list(range(1, 7))
    effective = 256 / 106
    size = 16 / effective - 8 / 7
    total = 16 + 2 * size
    mean = (9.6 + size) / (16 + 2 * size)
    totals = [
        6 - 10 * mean,
        *(value - mean for value in values[10:]),
        -size * mean,
        size * (1 - mean),
    ]
    half = (
        stats.t.ppf(0.975, effective - 1) * math.sqrt(9 / 8 * sum(one**2 for one in totals)) / total
    )
    assert size > 16 / 7
    assert student_t_interval(values, (0, 1), labels) == near(
        (max(0, mean - half), min(1, mean + half))
    )
    equal = [number // 4 for number in range(16)]
    assert student_t_interval(values, (0, 1), equal) == near(
        student_t_interval([0.6] * 16, (0, 1), equal), abs=1e-9
    )


def test_a_scale_of_cases_begins_at_their_mean_lowest_or_at_the_lowest_of_all() -> None:
    """Mean lowest -1, highest 1: a third of that is 2/3."""
    lowest = [-3.0, 0.0, 0.0, -1.0, -1.0]
    assert (
        lower_end_of_scale([-1.0, 0.1, 0.2, 0.8, 1.0], lowest, 1.0) == -1.0
    )  # quartiles .1 and .8
    assert lower_end_of_scale([-1.0, 0.1, 0.2, 0.7, 1.0], lowest, 1.0) == -3.0
    assert lower_end_of_scale([0.5], lowest, 1.0) == -1.0


def test_equal_values_leave_room_for_what_was_not_seen() -> None:
    """SciPy's exact interval of 12 of 12."""
    exact = stats.binomtest(12, 12).proportion_ci(method="exact")
    assert interval_of_equal_values(1.0, 12, (0, 1)) == near((exact.low, exact.high))
    assert interval_of_equal_values(0.0, 12, (0, 1)) == near((0.0, 1 - exact.low))
    assert interval_of_equal_values(4.0, 12, (1, 5)) == near(
        (4 - 3 * (1 - exact.low), 4 + (1 - exact.low))
    )


_SAMPLES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 6)), min_size=2, max_size=40
).filter(lambda pairs: effective_clusters([cluster for _, cluster in pairs]) >= 2)


@given(_SAMPLES)
def test_the_mean_lies_in_its_interval_and_that_on_the_scale(
    pairs: list[tuple[float, int]],
) -> None:
    values = [value for value, _ in pairs]
    labels = [label for _, label in pairs]
    mean = sum(values) / len(values)
    for low, high in (
        student_t_interval(values, (0, 1)),
        student_t_interval(values, (0, 1), labels),
    ):
        assert 0 <= low <= mean + 1e-9
        assert mean - 1e-9 <= high <= 1
    ones = [float(value > 0.4) for value in values]
    low, high = wilson_clustered(ones, labels)
    assert 0 <= low <= sum(ones) / len(ones) + 1e-9
    assert sum(ones) / len(ones) - 1e-9 <= high <= 1


def test_ten_of_ten_are_an_exact_bound() -> None:
    """scipy.stats.binomtest(10, 10).proportion_ci(method="exact") begins at 0.6915029."""
    for value, exact in ((1.0, (0.6915029, 1.0)), (0.0, (0.0, 0.3084971))):
        found = describe([value] * 10)
        assert (found.ci_method, found.stderr, ends(found)) == (
            "exact-one-sided",
            0.0,
            near(exact, abs=1e-7),
        )
        assert value in ends(found)


def test_a_mean_that_was_computed_elsewhere_is_reported_and_is_the_middle() -> None:
    stats = describe([2.0, 4.0, 6.0], mean=5.0)
    half = 4.302653 * 2 / math.sqrt(3)  # t(0.975, 2)
    assert (stats.mean, *ends(stats)) == near((5.0, 5 - half, 5 + half), abs=1e-5)
    assert describe([2.0, 4.0], mean=0.0).mean == 0.0
    assert describe([2.0], mean=3.0).mean == 3.0
    assert describe([2.0, 2.0], mean=3.0) == Stats(
        2, 3.0, stddev=0.0, stderr=0.0, ci_low=None, ci_high=None, ci_method=None
    )
    rated, moved = (describe([2.0, 4.0, 5.0], mean=mean, scale=(1, 9)) for mean in (None, 4.0))
    assert moved.ci_low == near(ends(rated)[0] + 1 / 3)
    assert describe([1.0, 0.0], mean=0.25).mean == 0.25


def test_values_from_0_to_1_are_taken_for_a_scale_and_others_are_not() -> None:
    assert ends(describe([0.0, 0.5, 1.0])) == (0.0, 1.0)
    for values in ([-0.5, 0.5, 1.0], [0.0, 0.5, 1.5], [0.0, 0.5, 2.0], [-0.001, 0.5, 1.0]):
        low, high = ends(describe(values))
        assert low < 0 < 1 < high


def test_only_zeros_and_ones_are_proportions() -> None:
    assert (
        describe([0.0, 1.0, 1.0]).ci_method
        == describe([0.0, 1.0], scale=(0.0, 1.0)).ci_method
        == "wilson"
    )
    for others in (describe([0.0, 0.5, 1.0]), describe([0.0, 1.0], scale=(0.0, 2.0))):
        assert others.ci_method == "student-t-pseudo-values"


def test_values_beyond_their_scale_are_on_none() -> None:
    assert describe([0.25] * 3, scale=(0.5, 1.0)) == Stats(
        3, 0.25, stddev=0.0, stderr=0.0, ci_low=None, ci_high=None, ci_method=None
    )
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
    assert (ends(found), found.ci_method) == (ends(as_on_a_scale), "student-t-pseudo-values")
    equal = describe([1.0] * 30, lowest=lowest)
    assert (equal.ci_method, equal.ci_low) == (
        "exact-one-sided",
        near(1 - 4 * (1 - 0.025 ** (1 / 30))),
    )
    assert describe([1.0, 0.0, 1.0], lowest=[0.0] * 3).ci_method == "wilson"
    assert ends(describe([1.0] * 29 + [-3.0], lowest=lowest))[0] < 0.6


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ("abcdefgh", None),
        ("aabbccddeeff", None),
        ("aaaabbccddeeffg", None),
        ("aaaaaabbccddeeffghij", None),
        (
            "aabbccddeef",
            "few sources decide the interval: the 6 sources of the questions say as much as 5.8 of equal size, and the largest holds 18 % of the questions",
        ),
        (
            "aaaaaaabcdefghijklmno",
            "few sources decide the interval: the 15 sources of the questions say as much as 7.0 of equal size, and the largest holds 33 % of the questions",
        ),
        (
            "aab",
            "there is no interval: the 2 sources of the questions say as much as 1.8 of equal size, and 2 such sources are needed",
        ),
        (
            "aabb",
            "few sources decide the interval: the 2 sources of the questions say as much as 2.0 of equal size, and the largest holds 50 % of the questions",
        ),
    ],
)
def test_few_sources_are_said(clusters: str, said: str | None) -> None:
    assert note_on_few_sources(clusters) == said


def test_the_nearest_rank_is_the_first_that_so_many_do_not_exceed() -> None:
    ranks = {0.0: 1, 0.1: 1, 0.2: 1, 0.21: 2, 0.4: 2, 0.5: 3, 0.8: 4, 0.81: 5, 0.95: 5, 1.0: 5}
    assert {share: percentile([5, 3, 1, 4, 2], share) for share in ranks} == ranks


def test_clustered_values_say_so() -> None:
    """Two clusters of four that agree inside: no more than two values. SE by hand: distances' sums are 2 and -2, so the
    variance is 2 / 1 * 8 / 64 = 0.25; of independent values it were 2 / 7 / 8 = 0.0357."""
    stats = describe([1.0] * 4 + [0.0] * 4, clusters=["a"] * 4 + ["b"] * 4)
    assert (stats.clusters, stats.stderr) == (2, 0.5)
    assert (stats.design_effect, stats.effective_n) == near((7.0, 8 / 7))
    assert stats.ci_method == "wilson-clustered"
    assert ends(stats)[0] < 0.02


def test_each_instance_a_source_of_its_own_is_no_clustering() -> None:
    alone = describe([1.0, 0.0, 1.0])
    clustered = describe([1.0, 0.0, 1.0], clusters="abc")
    assert (alone.clusters, alone.design_effect, alone.effective_n) == (None, None, None)
    assert (clustered.clusters, clustered.ci_method, ends(clustered)) == (3, "wilson", ends(alone))
    assert clustered.design_effect == near(1.0)


def test_instances_of_one_source_and_equal_values_of_an_unknown_scale_have_no_interval() -> None:
    """A width of zero would be wrong, and nothing says how far away another value could be."""
    assert describe([0.5]) == Stats.without_interval(1, 0.5)
    assert describe([4.0, 4.0, 4.0]) == Stats(
        3, 4.0, stddev=0.0, stderr=0.0, ci_low=None, ci_high=None, ci_method=None
    )
    stats = describe([1.0, 0.0, 1.0], clusters="aaa")
    assert (stats.clusters, stats.stderr, stats.design_effect, stats.effective_n) == (
        1,
        None,
        None,
        None,
    )
    assert (stats.ci_low, stats.ci_high, stats.ci_method) == (None, None, None)
    assert stats.stddev is not None
    assert describe([1.0], clusters="a") == Stats.without_interval(1, 1.0, clusters=1)


SUMS = [2.0, 0.0, 3.0, 1.0, 4.0, 0.0, 1.0, 2.0]
COUNTS = [3, 1, 3, 4, 4, 2, 1, 5]


def test_it_is_scipys_with_a_fixed_seed() -> None:
    def ratio(one: Any, other: Any) -> float:
        return float(one.sum() / other.sum())

    expected = stats.bootstrap(
        (SUMS, COUNTS),
        ratio,
        paired=True,
        vectorized=False,
        method="BCa",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    found = bca_interval_of_ratio(SUMS, COUNTS)
    assert (found.low, found.high) == near((expected.low, expected.high))
    assert (found, found.method) == (bca_interval_of_ratio(SUMS, COUNTS), "bca-bootstrap")
    assert there(found.low) < 13 / 23 < there(found.high)


def test_clusters_are_drawn_whole() -> None:
    repeated = (
        [value for value, _ in product(SUMS, range(3))],
        [count for count, _ in product(COUNTS, range(3))],
    )
    labels = [number // 3 for number in range(24)]
    clustered = bca_interval_of_ratio(*repeated, labels)
    alone = bca_interval_of_ratio(SUMS, COUNTS)
    assert (clustered.low, clustered.high) == near((alone.low, alone.high))
    assert clustered.method == "bca-bootstrap-clustered"


@pytest.mark.parametrize(
    ("sums", "counts", "clusters"),
    [
        (SUMS[:4], COUNTS[:4], None),
        ([1.0] * 6, [2] * 6, None),
        ([0.0] * 6, [0] * 6, None),
        ([1.0] * 5 + [0.0], [1] * 5 + [0], None),
        (SUMS, COUNTS, "aabbccdd"),
        (SUMS, COUNTS, "aaabcdef"),  # 64 / 14 effective ones
        (
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [1, 0, 0, 0, 2, 0],
            None,
        ),  # resamples without a denominator
    ],
)
def test_what_resampling_cannot_tell(
    sums: list[float], counts: list[int], clusters: str | None
) -> None:
    assert bca_interval_of_ratio(sums, counts, clusters) == NO_INTERVAL
    assert bca_interval_of_ratio(SUMS, COUNTS, "aabcdefg") != NO_INTERVAL


def test_methods_of_clustered_values() -> None:
    labels = "aabb"
    assert (
        describe([0.2, 0.4, 0.9, 0.3], clusters=labels).ci_method
        == "student-t-pseudo-values-clustered"
    )
    assert describe([2.0, 4.0, 9.0, 3.0], clusters=labels).ci_method == "student-t-clustered"
    equal = describe([1.0] * 4, clusters=labels)
    assert (equal.ci_method, equal.design_effect, equal.effective_n) == (
        "exact-one-sided-clustered",
        None,
        None,
    )
    assert equal.ci_low == near(0.025**0.5)  # of two clusters, not of four values


def test_clusters_that_balance_out_do_not_make_more_of_the_sample() -> None:
    """One right and one wrong in each pair: the effective number stays the number."""
    values = [1.0, 0.0] * 20
    labels = [number // 2 for number in range(40)]
    assert wilson_clustered(values, labels) == near(wilson(0.5, 40, t_quantile(19)))
    stats = describe(values, clusters=labels)
    assert (stats.design_effect, stats.effective_n) == (0.0, 40.0)
