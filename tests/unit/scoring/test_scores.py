"""Values of instances made here -> scores, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.scoring.groups import scores_by_group
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.scores import bounds_of, helm_mean, score_of


def key(number: int, trial: int = 0) -> InstanceKey:
    return (f"id{number}", trial, None)


def context(values: dict[InstanceKey, float], *, scale: tuple[float, float] | None = None) -> MetricValues:
    return MetricValues("m", "m", helm_mean(values), merged=False, scale=scale, values=values)


def test_trials_of_an_instance_are_one_value_of_the_sample() -> None:
    """Two trials of three instances are no six instances: the interval would be too narrow."""
    values = {key(number, trial): float(number == 0) for number in range(3) for trial in range(2)}
    score = score_of(context(values), set(), failed_as_zero=False)
    assert score is not None
    assert score.value == pytest.approx(1 / 3)
    assert score.stats.count == 3


def test_groups_leave_out_what_the_score_leaves_out() -> None:
    values = {key(number): 1.0 for number in range(8)}
    members = {"ward": {"a": [key(n) for n in range(4)], "b": [key(n) for n in range(4, 8)]}}
    missing = {key(0), key(1), key(2)}
    groups = scores_by_group(context(values), members, missing, failed_as_zero=False)["ward"]
    assert {name: (found["m"].value, found["m"].stats.count) for name, found in groups.items()} == {
        "a": (1.0, 1), "b": (1.0, 4),
    }  # fmt: skip


def test_groups_count_as_zero_what_the_score_counts_as_zero() -> None:
    values = {key(number): 1.0 for number in range(8)}
    members = {"ward": {"a": [key(n) for n in range(4)], "b": [key(n) for n in range(4, 8)]}}
    groups = scores_by_group(context(values), members, {key(0), key(1), key(2)}, failed_as_zero=True)["ward"]
    assert {name: found["m"].value for name, found in groups.items()} == {"a": 0.25, "b": 1.0}


def test_groups_show_the_corrected_value_beside_helms() -> None:
    """Which groups there are is for HELM's metric to say; an instance may count in one of the two only."""
    values = {key(number): 0.0 for number in range(8)}
    right = {key(number): 1.0 for number in (0, 1, 2, 4)} | {key(5): 0.0, key(9): 1.0}
    members = {
        "ward": {"a": [key(n) for n in range(4)], "b": [key(4), key(5)], "c": [key(6), key(7)], "d": [key(9)]},
        "own": {"x": [key(0)], "y": [key(9)]},
    }
    beside = MetricValues("m.corrected", "m.corrected", None, merged=True, values=right)
    found = scores_by_group(context(values), members, {key(0)}, failed_as_zero=True, beside=beside)
    assert list(found) == ["ward"]
    assert {
        ward: {label: (score.metric, score.value, score.stats.count) for label, score in scores.items()}
        for ward, scores in found["ward"].items()
    } == {
        "a": {"m": ("m", 0.0, 4), "m.corrected": ("m.corrected", pytest.approx(2 / 3), 3)},
        "b": {"m": ("m", 0.0, 2), "m.corrected": ("m.corrected", 0.5, 2)},
        "c": {"m": ("m", 0.0, 2)},
    }
    excluded = scores_by_group(context(values), members, {key(0)}, failed_as_zero=False, beside=beside)
    assert excluded["ward"]["a"]["m.corrected"].value == 1.0
    assert excluded["ward"]["a"]["m.corrected"].stats.count == 2


def test_bounds_are_on_the_scale_of_the_metric() -> None:
    rated = context({key(0): 4.0, key(1): 2.0}, scale=(1.0, 5.0))
    assert bounds_of(rated, {key(1)}) == (2.5, 4.5)
    assert bounds_of(context({key(0): 4.0, key(1): 2.0}), {key(1)}) is None


def test_the_mean_is_of_trials_means_and_not_of_all_values() -> None:
    """A trial that lost instances weighs as much as a whole one, as in HELM."""
    values = {key(0, 0): 1.0, key(1, 0): 1.0, key(2, 0): 1.0, key(0, 1): 0.0}
    assert helm_mean(values) == 0.5


def test_a_perturbed_instance_is_a_value_of_its_own_in_the_sample() -> None:
    values: dict[InstanceKey, float] = {("id0", 0, None): 1.0, ("id0", 0, "typos"): 0.0}
    score = score_of(context(values), set(), failed_as_zero=False)
    assert score is not None
    assert score.stats.count == 2


def test_a_metric_that_is_no_mean_has_its_value_without_an_interval() -> None:
    """F1 over all instances at once: its instances' values say nothing of how sure it is."""
    pooled = MetricValues("f1", "f1", 0.75, merged=False, values={key(0): 1.0, key(1): 0.0})
    score = score_of(pooled, set(), failed_as_zero=False)
    assert score is not None
    assert (score.value, score.stats.count, score.stats.mean) == (0.75, 2, 0.75)
    assert (score.stats.ci_low, score.stats.ci_high, score.stats.stddev, score.stats.stderr) == (None, None, None, None)


def test_a_metric_that_is_no_mean_is_absent_where_an_instance_is_missing() -> None:
    pooled = MetricValues("f1", "f1", 0.75, merged=False, values={key(0): 1.0, key(1): 0.0})
    assert score_of(pooled, {key(1)}, failed_as_zero=False) is None
    assert score_of(pooled, {key(1)}, failed_as_zero=True) is None
    unseen = MetricValues("corpus", "corpus", 0.4, merged=False)
    assert score_of(unseen, {key(1)}, failed_as_zero=False) is None
    whole = score_of(unseen, set(), failed_as_zero=False)
    assert whole is not None
    assert whole.value == 0.4


def test_merged_values_are_a_mean_although_helm_has_none() -> None:
    merged = MetricValues("m", "m", None, merged=True, values={key(0): 1.0, key(1): 0.0})
    score = score_of(merged, set(), failed_as_zero=False)
    assert score is not None
    assert score.value == 0.5
    assert score.stats.ci_low is not None


def test_a_missing_instance_leaves_the_score_or_counts_as_zero() -> None:
    values = {key(0): 1.0, key(1): 1.0, key(2): 1.0}
    excluded, zeroed = (score_of(context(values), {key(2)}, failed_as_zero=zero) for zero in (False, True))
    assert excluded is not None
    assert zeroed is not None
    assert (excluded.value, excluded.stats.count) == (1.0, 2)
    assert zeroed.value == pytest.approx(2 / 3)
    assert zeroed.stats.count == 3
    assert score_of(context(values), set(values), failed_as_zero=False) is None


def test_bounds_do_not_look_at_what_missing_instances_were_given() -> None:
    """HELM gives an instance without an answer some value; it may lie outside the scale."""
    assert bounds_of(context({key(0): 1.0, key(1): 7.0}), {key(1)}) == (0.5, 1.0)
    assert bounds_of(context({key(0): 1.0, key(1): 7.0}), set()) is None
    assert bounds_of(MetricValues("m", "m", 0.5, merged=False), {key(1)}) is None


def test_bounds_of_a_whole_run_are_helms_value_itself() -> None:
    pooled = MetricValues("f1", "f1", 0.75, merged=False, values={key(0): 1.0, key(1): 0.0})
    assert bounds_of(pooled, set()) == (0.75, 0.75)
    assert bounds_of(pooled, {key(9)}) == (0.75, 0.75)


def test_only_fields_that_sort_into_a_few_groups_are_shown() -> None:
    values = {key(number): 1.0 for number in range(8)}
    members = {
        "one": {"only": list(values)},
        "few": {"b": [key(n) for n in range(4)], "a": [key(n) for n in range(4, 8)]},
        "most": {str(n): [key(n), key(n + 4)] for n in range(4)},
        "many": {str(n): [key(n)] for n in range(8)},
        "other": {"x": [key(0)], "y": [key(99)]},  # of another split: not in this metric's values
    }
    found = scores_by_group(context(values), members, set(), failed_as_zero=False)
    assert list(found) == ["few", "most"]
    assert list(found["few"]) == ["a", "b"]


_VALUES = st.dictionaries(
    st.tuples(st.integers(0, 5).map(str), st.integers(0, 2), st.sampled_from([None, "typos"])),
    st.floats(0, 1),
    min_size=1,
)
_SOME_MISSING = _VALUES.flatmap(
    lambda values: st.tuples(st.just(values), st.sets(st.sampled_from(sorted(values, key=str))))
)


@given(_VALUES)
def test_the_mean_lies_between_the_least_and_the_greatest_value(values: dict[InstanceKey, float]) -> None:
    assert min(values.values()) - 1e-9 <= helm_mean(values) <= max(values.values()) + 1e-9


@given(_SOME_MISSING)
def test_the_score_lies_within_its_bounds_whatever_is_missing(
    drawn: tuple[dict[InstanceKey, float], set[InstanceKey]],
) -> None:
    values, missing = drawn
    low, high = bounds_of(context(values), missing) or (None, None)
    assert low is not None
    assert high is not None
    true_value = helm_mean(values)  # what the missing ones would have been, had they been answered
    assert low - 1e-9 <= true_value <= high + 1e-9
    zeroed = score_of(context(values), missing, failed_as_zero=True)
    assert zeroed is not None
    assert zeroed.value == pytest.approx(low)
    if not missing:
        assert low == high == true_value


@given(_SOME_MISSING)
def test_an_excluded_instance_has_no_say(drawn: tuple[dict[InstanceKey, float], set[InstanceKey]]) -> None:
    values, missing = drawn
    other = {at: 1.0 - value if at in missing else value for at, value in values.items()}
    before, after = (score_of(context(each), missing, failed_as_zero=False) for each in (values, other))
    assert before == after or not missing
