"""Each formula beside statsmodels' or SciPy's, or by hand."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from eval_factory.scoring.intervals import (
    cluster_robust,
    clustered,
    design_effect,
    effective_clusters,
    lower_end,
    of_equal_values,
    on_a_scale,
    student_t,
    t_quantile,
    variance_of,
    wilson,
    wilson_clustered,
)


def of_a_mean(values: list[float], clusters: list[int]) -> float:
    """The standard error by statsmodels, with its small-sample factor."""
    fitted = OLS(values, [1.0] * len(values)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    return float(fitted.bse[0])


def drawn(clusters: int, seed: int) -> tuple[list[float], list[int]]:
    """Values that are alike inside clusters of different sizes."""
    source = random.Random(seed)  # noqa: S311 - nothing secret
    values, labels = [], []
    for cluster in range(clusters):
        level = source.uniform(1, 5)
        for _ in range(source.randint(1, 6)):
            values.append(level + source.gauss(0, 0.5))
            labels.append(cluster)
    return values, labels


@pytest.mark.parametrize(("right", "count"), [(1, 5), (8, 10), (3, 100), (500, 1000), (0, 10), (10, 10)])
def test_wilson_is_statsmodels(right: int, count: int) -> None:
    expected = proportion_confint(right, count, method="wilson")
    assert wilson(right / count, count) == pytest.approx(expected, abs=1e-12)


def test_wilson_takes_a_number_that_is_not_whole_and_another_quantile() -> None:
    low, high = wilson(0.3, 12.5, 2.5)
    for end in (low, high):  # both ends solve Wilson's equation
        assert (0.3 - end) ** 2 == pytest.approx(2.5**2 * end * (1 - end) / 12.5)
    assert low < 0.3 < high


def test_wilson_ends_on_the_scale() -> None:
    assert wilson(0.0, 7)[0] == 0.0
    assert wilson(1.0, 7)[1] == 1.0


@pytest.mark.parametrize("degrees", [1, 4, 54, 999])
def test_t_quantiles_are_scipys(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees))


def test_effective_clusters_are_kishs_number() -> None:
    assert effective_clusters("aabbcc") == 3
    assert effective_clusters("aaaaaabcd") == 81 / 39
    assert effective_clusters("abc") == 3
    assert effective_clusters("aa") == 1


@pytest.mark.parametrize(("clusters", "seed"), [(3, 1), (5, 2), (30, 3)])
def test_cluster_robust_is_statsmodels_with_the_effective_number_for_its_degrees(clusters: int, seed: int) -> None:
    values, labels = drawn(clusters, seed)
    stderr, effective = of_a_mean(values, labels), effective_clusters(labels)
    assert 2 < effective < clusters
    found = clustered(values, labels)
    assert found is not None
    assert found.clusters == effective
    assert math.sqrt(found.variance) == pytest.approx(stderr)
    assert found.design_effect == pytest.approx(stderr**2 / (stats.sem(values) ** 2))
    half = stats.t.ppf(0.975, effective - 1) * stderr
    mean = sum(values) / len(values)
    assert cluster_robust(values, labels) == pytest.approx((mean - half, mean + half))


def test_every_value_its_own_cluster_is_students_t() -> None:
    values = [1.0, 4.0, 2.5, 7.0]
    assert cluster_robust(values, "abcd") == pytest.approx(student_t(values))
    found = clustered(values, "abcd")
    assert found is not None
    assert found.design_effect == pytest.approx(1.0)


@pytest.mark.parametrize("clusters", ["aaa", "aab"])
def test_fewer_than_two_effective_clusters_say_nothing(clusters: str) -> None:
    values = [1.0, 0.0, 1.0]
    assert clustered(values, clusters) is None
    assert cluster_robust(values, clusters) is None
    assert wilson_clustered(values, clusters) is None
    assert on_a_scale(values, (0, 1), clusters) is None
    assert on_a_scale([0.5], (0, 1)) is None


def test_equal_values_have_no_design_effect() -> None:
    found = clustered([2.0, 2.0, 2.0], "abc")
    assert found is not None
    assert (found.variance, found.design_effect) == (0.0, None)


def test_the_sample_variance_and_students_t_are_scipys() -> None:
    values = [1.0, 2.0, 4.0, 8.5]
    assert variance_of(values) == pytest.approx(stats.tvar(values))
    assert student_t(values) == pytest.approx(DescrStatsW(values).tconfint_mean())


def test_on_a_scale_is_t_of_the_values_and_a_pseudo_value_at_each_end() -> None:
    values = [5.0, 5.0, 4.0, 5.0, 3.0, 5.0]
    with_ends = DescrStatsW([*values, 1.0, 9.0])
    half = stats.t.ppf(0.975, 5) * with_ends.std_mean
    expected = (with_ends.mean - half, with_ends.mean + half)
    assert on_a_scale(values, (1, 9)) == pytest.approx(expected)
    low, high = on_a_scale([5.0, 5.0, 5.0, 4.9], (1, 5)) or (0.0, 0.0)
    assert high == 5.0
    assert 1.0 < low < 4.9
    assert on_a_scale([1.0, 1.0, 1.0, 1.1], (1, 5))[0] == 1.0  # type: ignore[index]


def test_on_a_scale_of_clusters_has_a_pseudo_cluster_at_each_end() -> None:
    values = [0.2, 0.4, 0.9, 0.7, 0.1, 0.3, 0.5, 0.5, 0.6, 0.2]
    labels = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    stderr = of_a_mean([*values, 0, 0, 1, 1], [*labels, 5, 5, 6, 6])
    mean, total = (sum(values) + 2) / 14, 14
    correction = (total - 1) / total  # statsmodels' factor is C / (C - 1) * (n - 1) / (n - k), with k = 1
    assert correction < 1
    half = stats.t.ppf(0.975, 4) * stderr
    assert on_a_scale(values, (0, 1), labels) == pytest.approx((max(0, mean - half), min(1, mean + half)))


def test_clustered_proportions_are_wilsons_on_the_effective_number() -> None:
    """Four clusters of four; half a pseudo-cluster at each end is two values."""
    values = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    labels = [number // 4 for number in range(16)]
    with_halves = [*values, 0.0, 0.0, 1.0, 1.0]
    effect = (of_a_mean(with_halves, [*labels, 4, 4, 5, 5]) / stats.sem(with_halves)) ** 2
    assert effect > 1.5
    assert design_effect(values, (0.0, 1.0), labels) == pytest.approx(effect)
    quantile = stats.t.ppf(0.975, 3)
    low, high = wilson_clustered(values, labels) or (0.0, 0.0)
    for end in (low, high):
        assert (11 / 16 - end) ** 2 == pytest.approx(quantile**2 * end * (1 - end) / (16 / effect))
    assert low < 11 / 16 < high


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
    assert design_effect(values, (1.0, 5.0), labels) == pytest.approx(variance / (squares / 17 / 16))
    assert design_effect([1.0, 0.0] * 6, (0.0, 1.0), labels) == pytest.approx(1.0, abs=0.6)
    ones = [float(value > 3) for value in values]
    count = 12 / design_effect(ones, (0.0, 1.0), labels)
    assert wilson_clustered(ones, labels) == pytest.approx(wilson(0.5, count, t_quantile(2.0)))


def test_pseudo_clusters_on_a_scale_are_at_least_of_the_mean_size() -> None:
    """Ten of one source and six of others: 2.42 effective clusters of 6.6, less half of the mean, 16 / 7."""
    values, labels = [0.5, 0.7] * 8, [0] * 10 + list(range(1, 7))
    effective = 256 / 106
    size = 16 / effective - 8 / 7
    total, mean = 16 + 2 * size, (9.6 + size) / (16 + 2 * size)
    totals = [6 - 10 * mean, *(value - mean for value in values[10:]), -size * mean, size * (1 - mean)]
    half = stats.t.ppf(0.975, effective - 1) * math.sqrt(9 / 8 * sum(one**2 for one in totals)) / total
    assert size > 16 / 7
    assert on_a_scale(values, (0, 1), labels) == pytest.approx((max(0, mean - half), min(1, mean + half)))
    equal = [number // 4 for number in range(16)]
    assert on_a_scale(values, (0, 1), equal) == pytest.approx(on_a_scale([0.6] * 16, (0, 1), equal), abs=1e-9)


def test_a_scale_of_cases_begins_at_their_mean_lowest_or_at_the_lowest_of_all() -> None:
    """Mean lowest -1, highest 1: a third of that is 2/3."""
    lowest = [-3.0, 0.0, 0.0, -1.0, -1.0]
    assert lower_end([-1.0, 0.1, 0.2, 0.8, 1.0], lowest, 1.0) == -1.0  # quartiles .1 and .8
    assert lower_end([-1.0, 0.1, 0.2, 0.7, 1.0], lowest, 1.0) == -3.0
    assert lower_end([0.5], lowest, 1.0) == -1.0


def test_clusters_that_balance_out_do_not_make_more_of_the_sample() -> None:
    """One right and one wrong in each pair: the effective number stays the number."""
    values, labels = [1.0, 0.0] * 20, [number // 2 for number in range(40)]
    assert wilson_clustered(values, labels) == pytest.approx(wilson(0.5, 40, t_quantile(19)))


def test_equal_values_leave_room_for_what_was_not_seen() -> None:
    """SciPy's exact interval of 12 of 12."""
    exact = stats.binomtest(12, 12).proportion_ci(method="exact")
    assert of_equal_values(1.0, 12, (0, 1)) == pytest.approx((exact.low, exact.high))
    assert of_equal_values(0.0, 12, (0, 1)) == pytest.approx((0.0, 1 - exact.low))
    low, high = of_equal_values(4.0, 12, (1, 5))
    assert low == pytest.approx(4 - 3 * (1 - exact.low))
    assert high == pytest.approx(4 + (1 - exact.low))


_SAMPLES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 6)), min_size=2, max_size=40
).filter(lambda pairs: effective_clusters([cluster for _, cluster in pairs]) >= 2)


@given(_SAMPLES)
def test_the_mean_lies_in_its_interval_and_that_on_the_scale(pairs: list[tuple[float, int]]) -> None:
    values, labels = [value for value, _ in pairs], [label for _, label in pairs]
    mean = sum(values) / len(values)
    for ends in (on_a_scale(values, (0, 1)), on_a_scale(values, (0, 1), labels)):
        assert ends is not None
        assert 0 <= ends[0] <= mean + 1e-9
        assert mean - 1e-9 <= ends[1] <= 1
    ones = [float(value > 0.4) for value in values]
    ends = wilson_clustered(ones, labels)
    assert ends is not None
    assert 0 <= ends[0] <= sum(ones) / len(ones) + 1e-9
    assert sum(ones) / len(ones) - 1e-9 <= ends[1] <= 1
