"""Values of instances made here -> scores, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.scores import bounds_of, helm_mean, sample_of, score_of


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
def test_the_score_lies_within_its_bounds_with_any_instances_missing(
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


def test_one_value_an_instance_lies_on_the_scale_of_the_values() -> None:
    """The mean over an instance's trials is positive where its values are: the interval is that of a proportion."""
    values = {key(number, trial): float(number < 3) for number in range(4) for trial in range(2)}
    score = score_of(context(values), set(), failed_as_zero=False)
    assert score is not None
    assert (score.stats.ci_method, score.stats.mean) == ("wilson", 0.75)
    assert score.stats.ci_low is not None
    assert score.stats.ci_low > 0


@pytest.mark.parametrize("missing", [set(), {key(3)}])
def test_the_interval_ends_where_the_scale_ends(missing: set[InstanceKey]) -> None:
    values = {key(0): 5.0, key(1): 5.0, key(2): 1.0, key(3): 5.0}
    score = score_of(context(values, scale=(1.0, 5.0)), missing, failed_as_zero=False)
    assert score is not None
    assert (score.stats.ci_high, score.stats.mean) == (5.0, score.value)
    open_ended = score_of(context(values), missing, failed_as_zero=False)
    assert open_ended is not None
    assert open_ended.stats.ci_high is not None
    assert open_ended.stats.ci_high > 5.0


def test_the_spread_between_trials_stands_apart_from_the_sampling_error() -> None:
    """Three trials of two instances: their scores are 1, 0.5 and 0."""
    values = {key(0, 0): 1.0, key(1, 0): 1.0, key(0, 1): 1.0, key(1, 1): 0.0, key(0, 2): 0.0, key(1, 2): 0.0}
    score = score_of(context(values), set(), failed_as_zero=False)
    assert score is not None
    assert (score.stats.count, score.stats.trials) == (2, 3)
    assert score.stats.trial_stddev == pytest.approx(0.5)
    once = score_of(context({key(0): 1.0, key(1): 0.0}), set(), failed_as_zero=False)
    assert once is not None
    assert (once.stats.trials, once.stats.trial_stddev) == (None, None)


@pytest.mark.parametrize("missing", [set(), {key(7)}])
def test_the_interval_is_that_of_clusters(missing: set[InstanceKey]) -> None:
    metric = context({key(number): float(number < 4) for number in range(8)})
    metric.clusters = {f"id{number}": str(number // 2) for number in range(6)}
    score = score_of(metric, missing, failed_as_zero=False)
    assert score is not None
    assert score.stats.clusters == (4 if missing else 5)  # what was not sorted is a source of its own
    assert score.stats.ci_method == "wilson-clustered"


def test_one_value_an_instance_has_one_source() -> None:
    metric = context({key(number, trial): float(number < 3) for number in range(6) for trial in range(2)})
    metric.clusters = {f"id{number}": str(number // 3) for number in range(6)}
    values, sources = sample_of(metric, metric.values)
    assert (values, sources) == ([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], ["0", "0", "0", "1", "1", "1"])
    assert sample_of(context(metric.values), metric.values)[1] is None


def ratio(helm: float, counts: dict[InstanceKey, int]) -> MetricValues:
    """Eight instances whose values HELM counts more than once each."""
    values = {key(number): (number % 4) / 4 for number in range(8)}
    return MetricValues("precision", "precision", helm, merged=False, values=values, counts=counts)


def test_a_ratio_of_sums_has_a_bootstrap_interval() -> None:
    counts = {key(number): 4 for number in range(4)} | {key(number): 8 for number in range(4, 7)}
    # sums are 0 1 2 3, 0 2 4 and 0.75 of what HELM counted once
    score = score_of(ratio(12.75 / 41, counts), set(), failed_as_zero=False)
    assert score is not None
    assert (score.value, score.stats.count, score.stats.ci_method) == (12.75 / 41, 8, "bca-bootstrap")
    assert score.stats.ci_low is not None
    assert score.stats.ci_high is not None
    assert 0 < score.stats.ci_low < 12.75 / 41 < score.stats.ci_high < 0.75
    sorted_in_pairs = ratio(12.75 / 41, counts)
    sorted_in_pairs.clusters = {f"id{number}": str(number // 4) for number in range(8)}
    few = score_of(sorted_in_pairs, set(), failed_as_zero=False)
    assert few is not None
    assert few.stats.ci_method is None


@pytest.mark.parametrize("counts", [{}, {key(0): 4}, dict.fromkeys(map(key, range(8)), 0)])
def test_what_helm_computed_otherwise_has_none(counts: dict[InstanceKey, int]) -> None:
    score = score_of(ratio(0.9, counts), set(), failed_as_zero=False)
    assert score is not None
    assert (score.value, score.stats.ci_method, score.stats.ci_low) == (0.9, None, None)
