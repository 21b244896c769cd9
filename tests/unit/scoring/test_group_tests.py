"""Tests of groups beside SciPy's and statsmodels'."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests

from eval_factory.scoring.group_tests import holm, p_value_of_difference

ONES = [1.0] * 9 + [0.0], [1.0] * 5 + [0.0] * 15
RATED = [3.0, 4.5, 5.0, 2.0], [1.0, 2.0, 2.5, 1.5, 4.0, 1.0]


def test_zeros_and_ones_are_fishers() -> None:
    expected = stats.fisher_exact([[9, 1], [5, 15]]).pvalue
    assert p_value_of_difference((ONES[0], None), (ONES[1], None)) == pytest.approx(expected)
    assert p_value_of_difference((ONES[0], list(range(10))), (ONES[1], list(range(10, 30)))) == pytest.approx(expected)


def test_others_are_welchs() -> None:
    expected = stats.ttest_ind(*RATED, equal_var=False).pvalue
    assert p_value_of_difference((RATED[0], None), (RATED[1], None)) == pytest.approx(expected)
    assert p_value_of_difference((RATED[1], None), (RATED[0], None)) == pytest.approx(expected)


def test_what_cannot_be_tested() -> None:
    assert p_value_of_difference(([1.0], None), (ONES[1], None)) is None
    assert p_value_of_difference((ONES[0], None), ([1.0], None)) is None
    assert p_value_of_difference(([2.0, 2.0], None), ([3.0, 3.0], None)) is None
    assert p_value_of_difference(([1.0, 0.0], "aa"), ([1.0, 0.0], "bb")) is None
    assert p_value_of_difference(([1.0, 1.0, 1.0], "aab"), ([0.0, 0.0], "cd")) is None


def test_clustered_values_are_a_regression_on_the_group() -> None:
    """By statsmodels, whose variance has the factor (n - 1) / (n - 2) beside ours."""
    group, rest = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    in_group, others = [0, 0, 1, 1, 2, 2], [2, 3, 3, 4, 4, 5, 5, 6]
    design = [[1.0, 1.0]] * 6 + [[1.0, 0.0]] * 8
    fitted = OLS([*group, *rest], design).fit(cov_type="cluster", cov_kwds={"groups": [*in_group, *others]})
    statistic = fitted.params[1] / (fitted.bse[1] / (13 / 12) ** 0.5)
    expected = 2 * stats.t.sf(statistic, 2)  # three clusters on the side that has fewer
    assert p_value_of_difference((group, in_group), (rest, others)) == pytest.approx(expected)
    assert p_value_of_difference((rest, others), (group, in_group)) == pytest.approx(expected)


def test_clusters_of_unequal_size_count_as_fewer() -> None:
    group, in_group = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0], [0, 0, 0, 0, 1, 2]  # two effective ones
    rest, others = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [3, 3, 4, 4, 5, 5]
    design = [[1.0, 1.0]] * 6 + [[1.0, 0.0]] * 6
    fitted = OLS([*group, *rest], design).fit(cov_type="cluster", cov_kwds={"groups": [*in_group, *others]})
    statistic = fitted.params[1] / (fitted.bse[1] / (11 / 10) ** 0.5)
    assert p_value_of_difference((group, in_group), (rest, others)) == pytest.approx(2 * stats.t.sf(statistic, 1))
    assert p_value_of_difference((group, [0, 0, 0, 0, 0, 1]), (rest, others)) is None


def test_a_side_without_sources_beside_one_with_them() -> None:
    """Each of its instances is a source of its own."""
    values = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0]
    expected = p_value_of_difference((values[0], "aabb"), (values[1], "xyz"))
    assert p_value_of_difference((values[0], "aabb"), (values[1], None)) == expected
    assert expected is not None


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(P_VALUES)
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    with patch("gc.collect"):  # statsmodels calls it each time, which takes as long as all of the rest
        expected = list(multipletests(p_values, method="holm")[1])
    assert holm(p_values) == pytest.approx(expected)


def test_what_was_not_tested_does_not_count() -> None:
    assert holm([0.04, None, 0.03]) == [pytest.approx(0.06), None, pytest.approx(0.06)]
    assert holm([None]) == [None]
    assert holm([]) == []
