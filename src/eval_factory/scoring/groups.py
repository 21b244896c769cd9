"""Scores of groups of instances: by category, by sub-split, by any field of theirs with few values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval_factory.core.results import Score
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.scores import counted, mean_score

MOST_GROUPS = 60


def scores_by_group(
    metric: MetricValues,
    members: Mapping[str, Mapping[str, Sequence[InstanceKey]]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
    beside: MetricValues | None = None,
) -> dict[str, dict[str, dict[str, Score]]]:
    """The score of `metric` for each value of each field that sorts the instances into a few groups.

    Args:
        members: field -> value -> instances.
        missing: instances without a value that counts.
        failed_as_zero: whether they count as 0, as in the score of the whole.
        beside: the corrected values of `metric`, where there are any: a group that HELM scores wrongly looks like a
            finding without them.
    """
    groups: dict[str, dict[str, dict[str, Score]]] = {}
    for name, by_value in sorted(members.items()):
        found = _scores_by_value(metric, by_value, missing, failed_as_zero=failed_as_zero)
        if not 2 <= len(found) <= min(MOST_GROUPS, len(metric.values) // 2):
            continue
        groups[name] = {value: {metric.label: score} for value, score in found.items()}
        if beside is not None:
            corrected = _scores_by_value(beside, by_value, missing, failed_as_zero=failed_as_zero)
            for value in groups[name].keys() & corrected.keys():
                groups[name][value][beside.label] = corrected[value]
    return groups


def _scores_by_value(
    metric: MetricValues,
    by_value: Mapping[str, Sequence[InstanceKey]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
) -> dict[str, Score]:
    """Without the values of which no instance counts."""
    values_that_count = counted(metric.values, missing & metric.values.keys(), failed_as_zero=failed_as_zero)
    values = {
        value: {key: values_that_count[key] for key in keys if key in values_that_count}
        for value, keys in sorted(by_value.items())
    }
    return {value: mean_score(metric, kept) for value, kept in values.items() if kept}
