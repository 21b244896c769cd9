"""Compares two results on the instances that have a value in both.

The first result is called a, the second result b. Each of them, with its values by instance, is a
`Side`. An instance whose values in a and b differ is a flip. The instances of one source, such as a
note, are a cluster: they depend on each other.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from eval_factory.analysis.comparison_reasons import InstanceValues, Key, Side
from eval_factory.analysis.comparison_records import Comparison, Failed, Flips, Model
from eval_factory.core.results import Score
from eval_factory.scoring import paired
from eval_factory.scoring.intervals import PROPORTION, lower_end_of_scale
from eval_factory.scoring.paired import PairedDifference
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED_SUFFIX


def compare_two(
    a: Side, b: Side, *, models: tuple[Model, Model], margin: float | None
) -> Comparison:
    """Return the comparison of two results on the instances with a value in both.

    Args:
        a: the values of the first result.
        b: the values of the second result.
        models: the models of the two results.
        margin: the margin of the tests of non-inferiority and equivalence; None for no such tests.
    """
    score = a.stored.result.scores[a.metric]
    keys = [key for key in a.values.means if key in b.values.means]
    values_a = a.values.listed(keys)
    values_b = b.values.listed(keys)
    scale = _scale_of(score, [*values_a, *values_b])
    # A metric may be of a subset of the questions. An instance that it leaves out in both results
    # has not failed.
    not_in_metric = a.values.unscored & b.values.unscored
    shared = (a.values.all_keys & b.values.all_keys) - not_in_metric
    failed_a = shared & a.values.failed
    failed_b = shared & b.values.failed
    difference = difference_of(a.values, b.values, keys, scale)
    if a.metric.endswith(JUDGE_CORRECTED_SUFFIX):
        difference = paired.with_labels_uncertainty(difference, _uncertainty_of_labels(a, b))
    metric_of_b = None
    if b.metric != a.metric:
        metric_of_b = b.metric
    # An unknown direction (None) counts as higher.
    higher_is_better = score.higher_is_better is not False
    has_only_0_and_1 = {*values_a, *values_b} <= {0, 1}
    comparison = Comparison(
        task=a.stored.result.task,
        metric=a.metric,
        a=models[0],
        b=models[1],
        paired=difference,
        scale=scale,
        higher_is_better=higher_is_better,
        right_or_wrong=scale == PROPORTION and has_only_0_and_1,
        flips=_flips(a.values, b.values, keys, higher_is_better=higher_is_better),
        failed=Failed(
            a_only=len(failed_a - failed_b),
            b_only=len(failed_b - failed_a),
            both=len(failed_a & failed_b),
        ),
        bounds=_bounds(a.values, b.values, shared, scale),
        margin=margin,
        metric_of_b=metric_of_b,
        ids=(_ids_of(a), _ids_of(b)),
    )
    if margin is None:
        return comparison
    return replace(
        comparison,
        non_inferiority=paired.non_inferiority(
            difference, margin, higher_is_better=higher_is_better
        ),
        equivalence=paired.equivalence(difference, margin),
    )


def _ids_of(side: Side) -> Mapping[str, str] | None:
    """Return a dict from the ids of this result to the first result's; None if ids are equal."""
    if side.pairing is None:
        return None
    return side.pairing.ids


def _scale_of(score: Score, values: Iterable[float]) -> tuple[float, float] | None:
    """Return the metric's scale, by default 0 to 1; None if a value is outside the scale."""
    low, high = score.scale or PROPORTION
    if all(low <= value <= high for value in values):
        return low, high
    return None


def _bounds(
    a: InstanceValues, b: InstanceValues, keys: Collection[Key], scale: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the lowest and the highest difference (b - a) that the missing values allow.

    Return None if the scale is not known.

    Args:
        a: the values of the first result.
        b: the values of the second result.
        keys: the instances, including those with a missing value.
        scale: the lowest and the highest possible value; None if not known.
    """
    if scale is None:
        return None
    low, high = scale
    # For the lowest difference, each missing value of b counts as `low` and of a as `high`.
    smallest_sum = sum(b.means.get(key, low) - a.means.get(key, high) for key in keys)
    greatest_sum = sum(b.means.get(key, high) - a.means.get(key, low) for key in keys)
    return smallest_sum / len(keys), greatest_sum / len(keys)


def _flips(
    a: InstanceValues, b: InstanceValues, keys: Iterable[Key], *, higher_is_better: bool
) -> Flips:
    """Return the ids of the instances whose values differ, by the result with the better value."""
    higher_in_a = []
    higher_in_b = []
    for key in keys:
        if a.means[key] > b.means[key]:
            higher_in_a.append(key)
        elif b.means[key] > a.means[key]:
            higher_in_b.append(key)
    if higher_is_better:
        return Flips(a_only=tuple(higher_in_a), b_only=tuple(higher_in_b))
    return Flips(a_only=tuple(higher_in_b), b_only=tuple(higher_in_a))


def _uncertainty_of_labels(a: Side, b: Side) -> float:
    """Return the larger relative standard error of two corrections for a judge's mistakes.

    A correction divides by Youden's index (sensitivity + specificity - 1), which is estimated from
    labels. Return 0 if no standard error is known.
    """
    errors = [0.0]
    for side in (a, b):
        rubric = side.stored.result.validity.rubric
        if rubric is None or rubric.correction is None:
            continue
        correction = rubric.correction
        if correction.youden_stderr is not None:
            youden = correction.sensitivity + correction.specificity - 1
            errors.append(correction.youden_stderr / youden)
    return max(errors)


def difference_of(
    a: InstanceValues, b: InstanceValues, keys: Sequence[Key], scale: tuple[float, float] | None
) -> PairedDifference:
    """Return the difference (b - a) over the instances with a value in both results.

    Args:
        a: the values of the first result. The clusters of the first result are used for both; if it
            has none, those of the second result.
        b: the values of the second result.
        keys: the ids of the instances.
        scale: the scale of the metric. If it is None and each instance is a case of a rubric, the
            scale of the difference is computed from the scales of the cases.
    """
    values_a = a.listed(keys)
    values_b = b.listed(keys)
    if scale is None and a.lowest.keys() >= set(keys):
        changes = list(map(operator.sub, values_b, values_a))
        scale = _scale_of_cases(changes, [a.lowest[key] for key in keys])
    with_clusters = a
    if not a.clusters:
        with_clusters = b
    clusters = None
    if with_clusters.clusters:
        clusters = [_cluster_of(with_clusters, key) for key in keys]
    return paired.paired_difference(values_a, values_b, clusters=clusters, scale=scale)


def _scale_of_cases(
    changes: Sequence[float], lowest_scores: Sequence[float]
) -> tuple[float, float]:
    """Return the scale for the difference of two scores of the cases of a rubric.

    A case's score is at least its own lowest score and at most 1. The highest possible change of a
    case is therefore 1 - its lowest score, and the lowest possible change is the opposite number.
    `intervals.lower_end_of_scale` combines the lowest changes of all cases into one lowest change.

    Args:
        changes: the change (b - a) of each case.
        lowest_scores: the lowest possible score of each case.
    """
    highest_changes = [1 - lowest for lowest in lowest_scores]
    lowest_changes = [-change for change in highest_changes]
    highest_change = statistics.fmean(highest_changes)
    lowest_change = lower_end_of_scale(changes, lowest_changes, highest_change)
    # On a scale from `low` to 1, the lowest change is `low` - 1.
    return 1 + lowest_change, 1.0


def _cluster_of(values: InstanceValues, key: Key) -> str:
    """Return the name of an instance's cluster: its source, or the instance if it has no source."""
    if key in values.clusters:
        return f"cluster {values.clusters[key]}"
    return f"instance {key}"
