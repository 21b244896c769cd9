"""Scores of groups of instances, each tested against the rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests

from eval_factory.helm.output import MAX_GROUPS
from eval_factory.scoring.groups import (
    SMALLEST_GROUP,
    Groups,
    _clustered_t,
    _welch,
    p_value_of_difference,
    scores_by_group,
)
from eval_factory.scoring.intervals import holm_corrected
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.permutation import permutation_p
from eval_factory.scoring.scores import InstanceKey, MetricValues
from facts import says
from known import ends, near, there
from unit.scoring.test_scores import context, key

ONES = [1.0] * 9 + [0.0], [1.0] * 5 + [0.0] * 15
RATED = [3.0, 4.5, 5.0, 2.0], [1.0, 2.0, 2.5, 1.5, 4.0, 1.0]


def test_zeros_and_ones_are_fishers() -> None:
    expected = stats.fisher_exact([[9, 1], [5, 15]]).pvalue
    assert p_value_of_difference((ONES[0], None), (ONES[1], None)) == near(expected)
    assert p_value_of_difference(
        (ONES[0], list(range(10))), (ONES[1], list(range(10, 30)))
    ) == near(expected)


def test_others_are_a_permutation_of_welchs_statistic() -> None:
    """By SciPy, over all 210 permutations: twice the smaller tail."""

    def welch(group: NDArray[Any], rest: NDArray[Any], axis: int = -1) -> Any:
        apart = group.mean(axis) - rest.mean(axis)
        return apart / np.sqrt(
            (group.var(axis) / group.shape[axis]) + (rest.var(axis) / rest.shape[axis])
        )

    expected = stats.permutation_test(RATED, welch, vectorized=True, n_resamples=np.inf).pvalue
    for one, other in (RATED, RATED[::-1]):
        assert p_value_of_difference((one, None), (other, None)) == near(expected, abs=0.06)


def test_where_most_values_differ_welchs_t_counts_as_well() -> None:
    """By SciPy: ten values that vary most, beside forty. Rounded to marks t does not count."""
    chance = np.random.default_rng(21)
    group = (chance.normal(1.6, 2.2, 10)).tolist()
    rest = chance.normal(0, 1, 40).tolist()
    by_t = stats.ttest_ind(group, rest, equal_var=False).pvalue
    sides = [list(range(10)), list(range(10, 50))]
    by_permutation = permutation_p(group, rest, *sides)
    assert by_permutation < by_t
    for one, other in ((group, rest), (rest, group)):
        assert p_value_of_difference((one, None), (other, None)) == near(by_t)
    for step in (1.0, 0.25):
        marks = [(np.round(np.array(side) / step) * step).tolist() for side in (group, rest)]
        assert len({*marks[0], *marks[1]}) < 25
        by_permutation = permutation_p(*marks, *sides)
        found = p_value_of_difference((marks[0], None), (marks[1], None))
        assert found == near(by_permutation)
        assert by_permutation < stats.ttest_ind(*marks, equal_var=False).pvalue


def test_a_group_of_one_value_beside_values_that_differ_is_a_permutation() -> None:
    rest = np.random.default_rng(1).normal(0, 1, 60).tolist()
    sides = [list(range(10)), list(range(10, 70))]
    group = [0.4] * 10
    assert _welch(group, rest) < 0.01
    found = there(p_value_of_difference((group, None), (rest, None)))
    assert found == near(permutation_p(group, rest, *sides))


NEARLY_ALL_FIVES = [5.0] * 184 + [1.0, 2.0, 3.0] * 2


def test_a_small_group_without_a_fault_is_no_finding() -> None:
    """Of 190 others six have a fault: three of four groups of ten have none."""
    p_value = there(p_value_of_difference(([5.0] * 10, None), (NEARLY_ALL_FIVES, None)))
    assert p_value > 0.5


def test_a_small_group_with_many_faults_is_one() -> None:
    group = [5.0] * 6 + [1.0] * 4
    assert there(p_value_of_difference((group, None), (NEARLY_ALL_FIVES, None))) < 0.01


def test_few_sources_without_a_fault_are_no_finding() -> None:
    """Five sources of five that are right, beside fifty of which some err: t alone says p < .05."""
    rest = [0.0] * 25 + [1.0] * 225
    sources = [f"rest {number // 5}" for number in range(250)]
    group = ([1.0] * 25, [f"group {number // 5}" for number in range(25)])
    p_value = there(p_value_of_difference(group, (rest, sources)))
    assert p_value > 0.3
    assert there(_clustered_t(group, (rest, sources))) < 0.1


def test_sources_on_both_sides_are_exchanged_within_themselves() -> None:
    """Each of twenty sources is better in the group, by less than the sources differ."""
    sources = [number // 3 for number in range(60)]
    rest = [source / 10 + 0.01 * (number % 3) for number, source in enumerate(sources)]
    group = [value + 0.05 for value in rest]
    assert there(p_value_of_difference((group, sources), (rest, sources))) < 0.01
    apart = [source + 100 for source in sources]
    assert there(p_value_of_difference((group, sources), (rest, apart))) > 0.5


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        (([1.0], None), (ONES[1], None)),
        ((ONES[0], None), ([1.0], None)),
        (([2.0, 2.0], None), ([3.0, 3.0], None)),
        (([1.0, 0.0], "aa"), ([1.0, 0.0], "bb")),
        (([1.0, 1.0, 1.0], "aab"), ([0.0, 0.0], "cd")),
    ],
)
def test_what_cannot_be_tested(
    group: tuple[list[float], str | None], rest: tuple[list[float], str | None]
) -> None:
    assert p_value_of_difference(group, rest) is None


SIX = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("in_group", "rest", "others", "degrees"),
    [
        ([0, 0, 1, 1, 2, 2], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [2, 3, 3, 4, 4, 5, 5, 6], 2),
        (
            [0, 0, 0, 0, 1, 2],
            [0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
            [3, 3, 4, 4, 5, 5],
            1,
        ),  # two effective clusters
    ],
)
def test_clustered_values_are_a_regression_on_the_group(
    in_group: list[int], rest: list[float], others: list[int], degrees: int
) -> None:
    """By statsmodels, whose variance has the factor (n - 1) / (n - 2) beside ours; by the side with fewer clusters."""
    design = [[1.0, 1.0]] * 6 + [[1.0, 0.0]] * len(rest)
    fitted = OLS([*SIX, *rest], design).fit(
        cov_type="cluster", cov_kwds={"groups": [*in_group, *others]}
    )
    count = 6 + len(rest)
    statistic = fitted.params[1] / (fitted.bse[1] / ((count - 1) / (count - 2)) ** 0.5)
    expected = near(2 * stats.t.sf(statistic, degrees))
    assert _clustered_t((SIX, in_group), (rest, others)) == expected
    assert _clustered_t((rest, others), (SIX, in_group)) == expected
    greater = there(p_value_of_difference((SIX, in_group), (rest, others)))
    assert greater >= 2 * stats.t.sf(statistic, degrees) - 1e-9
    assert p_value_of_difference((SIX, [0, 0, 0, 0, 0, 1]), (rest, others)) is None


def test_a_side_without_sources_beside_one_with_them() -> None:
    """Each of its instances is a source of its own."""
    values = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0]
    expected = p_value_of_difference((values[0], "aabb"), (values[1], "xyz"))
    assert p_value_of_difference((values[0], "aabb"), (values[1], None)) == expected is not None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    # statsmodels calls it each time, which takes as long as all of the rest
    with patch("gc.collect"):
        expected = list(multipletests(p_values, method="holm")[1])
    assert holm_corrected(p_values) == near(expected)


def keys(first: int, end: int) -> list[InstanceKey]:
    return [key(number) for number in range(first, end)]


def test_groups_leave_out_what_the_score_leaves_out() -> None:
    values = {key(number): 1.0 for number in range(30)}
    members = {"ward": {"a": keys(0, 15), "b": keys(15, 30)}}
    missing = {key(0), key(1), key(2)}
    groups = scores_by_group(context(values), members, missing, failed_as_zero=False).scores["ward"]
    assert {name: (found["m"].value, found["m"].stats.count) for name, found in groups.items()} == {
        "a": (1.0, 12),
        "b": (1.0, 15),
    }


def test_only_fields_that_sort_into_a_few_groups_are_shown() -> None:
    values = {key(number): 1.0 for number in range(20)}
    members = {
        "one": {"only": list(values)},
        "few": {"b": keys(0, 10), "a": keys(10, 20)},
        "most": {str(n): [key(n), key(n + 10)] for n in range(10)},
        "many": {str(n): [key(n)] for n in range(20)},
        "other": {"x": [key(0)], "y": [key(99)]},  # of another split: not in this metric's values
    }
    found = scores_by_group(context(values), members, set(), failed_as_zero=False)
    assert [(name, list(groups)) for name, groups in found.scores.items()] == [("few", ["a", "b"])]
    assert found.hidden == {"most": [2] * 10}


def test_a_field_with_more_values_than_the_most_groups_is_left_out() -> None:
    """However many instances there are: nobody reads such a table."""
    size = SMALLEST_GROUP
    values = {key(number): 1.0 for number in range(size * (MAX_GROUPS + 1))}
    more = {str(n): keys(size * n, size * (n + 1)) for n in range(MAX_GROUPS + 1)}
    most = dict(list(more.items())[:MAX_GROUPS])
    found = scores_by_group(
        context(values), {"most": most, "more": more}, set(), failed_as_zero=False
    )
    assert ({name: len(groups) for name, groups in found.scores.items()}, found.hidden) == (
        {"most": 60},
        {},
    )


def test_groups_show_the_corrected_value_beside_helms() -> None:
    """Which groups there are is for HELM's metric to say; an instance may count in one of the two only."""
    values = {key(number): 0.0 for number in range(40)}
    right = {key(number): 1.0 for number in (0, 1, 2, 10, 11)} | {key(12): 0.0, key(99): 1.0}
    members = {
        "ward": {
            "a": keys(0, 10),
            "b": keys(10, 20),
            "c": keys(20, 30),
            "d": [key(99)],
            "e": keys(30, 39),
        },
        "own": {"x": [key(0)], "y": [key(99)]},
    }
    beside = MetricValues("m.corrected", "m.corrected", None, values=right)
    found = scores_by_group(
        context(values), members, {key(0)}, failed_as_zero=True, corrected_metric=beside
    )
    shown = {
        ward: {
            label: (score.metric, score.value, score.stats.count) for label, score in scores.items()
        }
        for ward, scores in found.scores["ward"].items()
    }
    helms = {"m": ("m", 0.0, 10)}
    both = {**helms, "m.corrected": ("m.corrected", near(2 / 3), 3)}
    assert shown == {"a": both, "b": both, "c": helms}
    assert (list(found.scores), found.hidden) == (["ward"], {"ward": [9]})


def test_a_small_group_is_hidden_and_said() -> None:
    values = {key(number): 1.0 for number in range(33)}
    members = {
        "ward": {"a": keys(0, 10), "b": keys(10, 19), "c": keys(19, 33)},
        "tiny": {"x": keys(0, 3), "y": keys(3, 5)},
    }
    found = scores_by_group(context(values), members, set(), failed_as_zero=False)
    assert {name: list(groups) for name, groups in found.scores.items()} == {"ward": ["a", "c"]}
    notes = list(found.notes())
    (note,) = notes
    assert note.importance is Importance.BACKGROUND
    says(note.text, "by tiny", "1 group of ward")
    (alone,) = replace(found, hidden={"ward": [9]}).notes()
    says(alone.text, "1 group of ward")
    assert list(Groups().notes()) == []


def test_each_group_is_tested_against_the_rest_the_hidden_ones_among_it() -> None:
    """Fisher's exact test by SciPy on 9 of 10 against 6 of 18, and so on; Holm's correction over the shown two."""
    right = {*range(9), *range(10, 13), *range(20, 23)}
    values = {key(number): float(number in right) for number in range(28)}
    members = {"ward": {"a": keys(0, 10), "b": keys(10, 20), "c": keys(20, 28)}}
    found = scores_by_group(context(values), members, set(), failed_as_zero=False).scores["ward"]
    p_a, p_b = (
        stats.fisher_exact(table).pvalue for table in ([[9, 1], [6, 12]], [[3, 7], [12, 6]])
    )
    assert p_a < p_b
    a, b = (found[name]["m"].stats for name in "ab")
    assert (a.p_value, b.p_value, a.p_holm, b.p_holm) == near((p_a, p_b, 2 * p_a, p_b))


def test_two_groups_are_one_test() -> None:
    values = {key(number): float(number < 12) for number in range(24)}
    members = {"ward": {"a": keys(0, 10), "b": keys(10, 24)}}
    found = scores_by_group(context(values), members, set(), failed_as_zero=False).scores["ward"]
    (tested,) = set(
        chain.from_iterable(
            (scores["m"].stats.p_value, scores["m"].stats.p_holm) for scores in found.values()
        )
    )
    assert tested == near(stats.fisher_exact([[10, 0], [2, 12]]).pvalue)


def test_an_instance_of_several_groups_is_in_the_rest_of_none_of_them() -> None:
    """A case may carry two themes; two samples that share it would not be independent."""
    values = {key(number): float(number % 3 == 0 or number > 30) for number in range(40)}
    members = {"theme": {"a": keys(0, 25), "b": keys(15, 40)}}
    found = scores_by_group(context(values), members, set(), failed_as_zero=False).scores["theme"]
    of_a, of_b = ([values[one] for one in members["theme"][name]] for name in "ab")
    p_a, p_b = (
        stats.fisher_exact(
            [[sum(group), len(group) - sum(group)], [sum(rest), len(rest) - sum(rest)]]
        ).pvalue
        for group, rest in ((of_a, of_b[10:]), (of_b, of_a[:15]))
    )
    a, b = (found[name]["m"].stats for name in "ab")
    assert (a.count, b.count, a.p_value, b.p_value) == (25, 25, near(p_a), near(p_b))
    assert p_a != near(p_b), "two tests"
    least = 2 * min(p_a, p_b)
    most = max(2 * min(p_a, p_b), p_a, p_b)
    assert sorted([a.p_holm or 0, b.p_holm or 0]) == near([least, most])


def test_groups_of_clustered_instances_have_clustered_intervals_and_tests() -> None:
    values = {key(number): float(number % 20 < 13) for number in range(40)}
    members = {"ward": {"a": keys(0, 20), "b": keys(20, 40)}}
    plain = scores_by_group(context(values), members, set(), failed_as_zero=False).scores["ward"][
        "a"
    ]["m"]
    metric = context(values)
    metric.clusters = {f"id{number}": str(number // 4) for number in range(40)}
    found = scores_by_group(metric, members, set(), failed_as_zero=False).scores["ward"]["a"]["m"]
    assert (found.stats.clusters, found.stats.ci_method) == (5, "wilson-clustered")
    assert ends(found.stats)[0] < ends(plain.stats)[0]
    assert found.stats.p_value == near(1.0)


def test_sources_of_the_rest_alone_count_too() -> None:
    """Of the rest 20 sources of five are right or wrong as a whole: 20 answers, and not 100."""
    group = [1.0] * 4 + [0.0] * 8
    rest = [float(number // 5 < 14) for number in range(100)]
    sources = [f"s{number // 5}" for number in range(100)]
    apart = there(p_value_of_difference((group, None), (rest, None)))
    together = there(p_value_of_difference((group, None), (rest, sources)))
    assert apart < 0.05 < together
