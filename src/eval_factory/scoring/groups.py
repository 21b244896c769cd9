"""Scores of groups of instances: by category, by sub-split, by any field of theirs with few values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.results import Score
from eval_factory.scoring.group_tests import holm, p_value_of_difference
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import counted, mean_score, sample_of

MOST_GROUPS = 60
SMALLEST_GROUP = 10
"""Instances below which a group is not shown: its score would say next to nothing."""

Values = Mapping[InstanceKey, float]


@dataclass(frozen=True)
class Groups:
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]] = field(default_factory=dict)
    """Field -> value -> metric -> score."""
    hidden: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Field -> the sizes of its groups that are too small to be shown."""

    def notes(self) -> Iterator[Note]:
        for name, sizes in self.hidden.items():
            groups = "1 group holds" if len(sizes) == 1 else f"{len(sizes)} groups hold"
            hidden = (
                f"by {name}: {groups} fewer than {SMALLEST_GROUP} instances ({sum(sizes)} in all) and"
                f" {'is' if len(sizes) == 1 else 'are'} not shown; results.jsonl has them"
            )
            yield Note(Importance.BACKGROUND, hidden)


def scores_by_group(
    metric: MetricValues,
    members: Mapping[str, Mapping[str, Sequence[InstanceKey]]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
    beside: MetricValues | None = None,
) -> Groups:
    """The score of `metric` for each value of each field that sorts the instances into a few groups.

    Each has the p-value of the test that it does not differ from the rest of the instances, and the same corrected for
    the field's groups. A group of fewer than ten instances is counted, not shown; it is among the others' rest.

    Args:
        members: field -> value -> instances.
        missing: instances without a value that counts.
        failed_as_zero: whether they count as 0, as in the score of the whole.
        beside: the corrected values of `metric`, where there are any: a group that HELM scores wrongly looks like a
            finding without them.
    """
    scores: dict[str, dict[str, dict[str, Score]]] = {}
    hidden = {}
    for name, by_value in sorted(members.items()):
        found = _scores_by_value(metric, by_value, missing, failed_as_zero=failed_as_zero)
        if not 2 <= len(found) <= min(MOST_GROUPS, len(metric.values) // 2):
            continue
        shown = [value for value, score in found.items() if score.stats.count >= SMALLEST_GROUP]
        if len(shown) < len(found):
            hidden[name] = [score.stats.count for score in found.values() if score.stats.count < SMALLEST_GROUP]
        if not shown:
            continue
        scores[name] = {value: {metric.label: found[value]} for value in shown}
        if beside is not None:
            corrected = _scores_by_value(beside, by_value, missing, failed_as_zero=failed_as_zero)
            for value in scores[name].keys() & corrected.keys():
                scores[name][value][beside.label] = corrected[value]
    return Groups(scores, hidden)


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
    values = {value: kept for value, kept in values.items() if kept}
    scores = {value: mean_score(metric, kept) for value, kept in values.items()}
    return _tested(metric, scores, values)


def _tested(metric: MetricValues, scores: Mapping[str, Score], values: Mapping[str, Values]) -> dict[str, Score]:
    """With the p-values of the groups that are large enough; of two groups there is one difference, and one test, where
    no instance is in both."""
    tested = [value for value, score in scores.items() if score.stats.count >= SMALLEST_GROUP]
    p_values = [_p_value(metric, value, values) for value in tested]
    one_test = len(values) == 2 and sum(map(len, values.values())) == len(set().union(*values.values()))
    corrected = p_values if one_test else holm(p_values)
    found = dict(scores)
    for value, p_value, p_holm in zip(tested, p_values, corrected, strict=True):
        stats = replace(found[value].stats, p_value=p_value, p_holm=p_holm)
        found[value] = replace(found[value], stats=stats)
    return found


def _p_value(metric: MetricValues, group: str, values: Mapping[str, Values]) -> float | None:
    """An instance that is in several groups is no part of the rest of any of them."""
    rest = {key: one for kept in values.values() for key, one in kept.items() if key not in values[group]}
    return p_value_of_difference(sample_of(metric, values[group]), sample_of(metric, rest))
