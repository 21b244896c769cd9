"""Scores of groups of instances (by category, sub-split, any field with few values), each tested
against the rest.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.results import Score
from eval_factory.helm.output import are_few
from eval_factory.scoring.intervals import effective_clusters, holm, is_shared
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    mean_score,
    sample_of,
    with_missing_counted,
)

_Sample = tuple[Sequence[float], Sequence[Hashable] | None]
"""One value per instance, and of each the source that it shares with others; None where none is
known.
"""


def p_value_of_difference(group: _Sample, rest: _Sample) -> float | None:
    """Two-sided, of the test that two samples have the same mean; None where it cannot be tested.

    0/1 values: Fisher's exact test (R. A. Fisher, JRSS 85:87-94, 1922). Others: Welch's t test (B.
    L. Welch, Biometrika 34:28-35, 1947). Clustered values: t of the difference with the
    cluster-robust variance. Its degrees of freedom are those of the side that has fewer effective
    clusters: C. A. Cameron and D. L. Miller (Journal of Human Resources 50:317-372, 2015, section
    VI) show why few clusters on one side ask for so few; the choice is on the safe side.
    """
    values = group[0]
    others = rest[0]
    if len(values) < 2 or len(others) < 2:
        return None
    if is_shared(group[1]) or is_shared(rest[1]):
        return _clustered(group, rest)
    from scipy import (
        stats,
    )  # imported here: it takes half a second, and most results have no groups

    if all(value in (0.0, 1.0) for value in (*values, *others)):
        table = [[int(sum(side)), len(side) - int(sum(side))] for side in (values, others)]
        return float(stats.fisher_exact(table).pvalue)
    one, other = (
        (statistics.fmean(side), statistics.stdev(side), len(side)) for side in (values, others)
    )
    if one[1] == other[1] == 0:
        return None
    return float(stats.ttest_ind_from_stats(*one, *other, equal_var=False).pvalue)


def _clustered(group: _Sample, rest: _Sample) -> float | None:
    """A source may be on both sides: what it adds to either mean is added up before it is
    squared.
    """
    influence: dict[Hashable, float] = defaultdict(float)
    clusters = []
    for sign, (values, sources) in ((1, group), (-1, rest)):
        labels = (
            list(sources)
            if sources is not None
            else [(sign, number) for number in range(len(values))]
        )
        mean = statistics.fmean(values)
        for value, label in zip(values, labels, strict=True):
            influence[label] += sign * (value - mean) / len(values)
        clusters.append(effective_clusters(labels))
    number = len(influence)
    degrees = min(clusters) - 1
    variance = (
        number / (number - 1) * math.fsum(one * one for one in influence.values())
        if number > 1
        else 0.0
    )
    if variance == 0 or degrees < 1:
        return None
    from scipy import special  # imported here: see scoring/intervals.py

    statistic = (statistics.fmean(group[0]) - statistics.fmean(rest[0])) / math.sqrt(variance)
    return 2 * float(special.stdtr(degrees, -abs(statistic)))


# instances below which a group is not shown: its score would say next to nothing
SMALLEST_GROUP = 10


@dataclass(frozen=True)
class Groups:
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]] = field(default_factory=dict)
    """Field -> value -> metric -> score."""
    hidden: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Field -> the sizes of its groups that are too small to be shown."""

    def notes(self) -> Iterator[Note]:
        for name, sizes in self.hidden.items():
            groups, are = (
                ("1 group holds", "is") if len(sizes) == 1 else (f"{len(sizes)} groups hold", "are")
            )
            hidden = (
                f"by {name}: {groups} fewer than {SMALLEST_GROUP} instances ({sum(sizes)} in all)"
            )
            yield Note(
                Importance.BACKGROUND, f"{hidden} and {are} not shown; results.jsonl has them"
            )


def scores_by_group(
    metric: MetricValues,
    members: Mapping[str, Mapping[str, Sequence[InstanceKey]]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
    beside: MetricValues | None = None,
) -> Groups:
    """The score of `metric` for each value of each field that sorts the instances into a few
    groups.

    Each has the p-value of the test that it does not differ from the rest of the instances, and the
    same corrected for the field's groups. A group of fewer than ten instances is counted, not
    shown; it is among the others' rest.

    `members`: field -> value -> instances. `beside`: the corrected values of `metric`, where there
    are any: a group that HELM scores wrongly looks like a finding without them.
    """
    scores: dict[str, dict[str, dict[str, Score]]] = {}
    hidden = {}
    for name, by_value in sorted(members.items()):
        found = _scores_by_value(metric, by_value, missing, failed_as_zero=failed_as_zero)
        if not are_few(len(found), len(metric.values)):
            continue
        shown = [value for value, score in found.items() if score.stats.count >= SMALLEST_GROUP]
        if len(shown) < len(found):
            hidden[name] = [
                score.stats.count for score in found.values() if score.stats.count < SMALLEST_GROUP
            ]
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
    """Without the values of which no instance counts, and with the p-values of the groups that
    are large enough.
    """
    all_counted = with_missing_counted(metric.values, missing, failed_as_zero=failed_as_zero)
    values = {}
    for value, keys in sorted(by_value.items()):
        if counted := {key: all_counted[key] for key in keys if key in all_counted}:
            values[value] = counted
    found = {value: mean_score(metric, counted) for value, counted in values.items()}
    tested = [value for value, score in found.items() if score.stats.count >= SMALLEST_GROUP]
    p_values = []
    # an instance that is in several groups is no part of the rest of any of them
    for group in tested:
        rest: dict[InstanceKey, float] = {}
        for counted in values.values():
            rest |= counted
        for key in values[group]:
            del rest[key]
        p_values.append(
            p_value_of_difference(sample_of(metric, values[group]), sample_of(metric, rest))
        )
    # of two groups there is one difference, and one test, where no instance is in both
    one_test = len(values) == 2 and set.isdisjoint(*map(set, values.values()))
    corrected = p_values if one_test else holm(p_values)
    for value, p_value, p_holm in zip(tested, p_values, corrected, strict=True):
        found[value] = replace(
            found[value], stats=replace(found[value].stats, p_value=p_value, p_holm=p_holm)
        )
    return found
