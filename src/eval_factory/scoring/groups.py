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
) -> dict[str, dict[str, dict[str, Score]]]:
    """The score of `metric` for each value of each field that sorts the instances into a few groups.

    Args:
        members: field -> value -> instances.
        missing: instances without a value that counts.
        failed_as_zero: whether they count as 0, as in the score of the whole.
    """
    values_that_count = counted(metric.values, missing & metric.values.keys(), failed_as_zero=failed_as_zero)
    groups: dict[str, dict[str, dict[str, Score]]] = {}
    for name, by_value in sorted(members.items()):
        values = {
            value: {key: values_that_count[key] for key in keys if key in values_that_count}
            for value, keys in sorted(by_value.items())
        }
        values = {value: kept for value, kept in values.items() if kept}
        if 2 <= len(values) <= min(MOST_GROUPS, len(metric.values) // 2):
            groups[name] = {value: {metric.label: mean_score(metric, kept)} for value, kept in values.items()}
    return groups
