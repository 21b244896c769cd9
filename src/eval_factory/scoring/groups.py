"""Scores groups of instances (by category, sub-split or any field with few values), and tests each
group against the rest of the instances.

The tests take into account that instances may share a source, such as a note or a patient.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.formats import counted
from eval_factory.core.results import Score
from eval_factory.helm.output import can_form_groups
from eval_factory.scoring.intervals import effective_clusters, has_shared_source, holm_corrected
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.permutation import permutation_p
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    mean_score,
    sample_of,
    with_missing_counted,
)

_Sample = tuple[Sequence[float], Sequence[Hashable] | None]
"""The value of each instance, and the source of each instance; None if no sources are known."""


def p_value_of_difference(group: _Sample, rest: _Sample) -> float | None:
    """Return the two-sided p value of the hypothesis that two samples have the same mean.

    The test depends on the values:

    - Values that share sources: a permutation test and a t test with a cluster-robust variance. A
      permutation moves all values of a source together. The larger p value counts.
    - Values that are all 0 or 1: Fisher's exact test (R. A. Fisher, JRSS 85:87-94, 1922).
    - Other values, more than half of which are distinct: a permutation test of the studentized
      difference (scoring/permutation.py) and Welch's t test. The larger p value counts, because a
      permutation test alone may mistake the wider spread of a small group for a difference of the
      means.
    - Other values, such as a few marks: the permutation test alone. The t test is not valid here.

    Args:
        group: the values of the group, with their sources.
        rest: the values of the other instances, with their sources.

    Returns:
        None if the hypothesis cannot be tested, for example because a sample has fewer than two
        values.
    """
    values, known_sources = group
    rest_values, known_rest_sources = rest
    if len(values) < 2 or len(rest_values) < 2:
        return None
    sources = _source_of_each(values, known_sources, prefix="group")
    rest_sources = _source_of_each(rest_values, known_rest_sources, prefix="rest")
    if has_shared_source(known_sources) or has_shared_source(known_rest_sources):
        by_t = _clustered_t((values, sources), (rest_values, rest_sources))
        if by_t is None:
            return None
        return max(by_t, permutation_p(values, rest_values, sources, rest_sources))
    every_value = (*values, *rest_values)
    if all(value in (0.0, 1.0) for value in every_value):
        # scipy is imported here: the import takes half a second, and most results have no groups.
        from scipy import stats

        # a row for each sample: the number of values 1, and the number of values 0
        table = []
        for sample in (values, rest_values):
            ones = int(sum(sample))
            table.append([ones, len(sample) - ones])
        return float(stats.fisher_exact(table).pvalue)
    if len(set(values)) == len(set(rest_values)) == 1:
        return None  # Without any spread, chance cannot be estimated.
    by_permutation = permutation_p(values, rest_values, sources, rest_sources)
    if 2 * len(set(every_value)) > len(every_value):
        return max(_welch(values, rest_values), by_permutation)
    return by_permutation


def _source_of_each(
    values: Sequence[float], known_sources: Sequence[Hashable] | None, *, prefix: str
) -> Sequence[Hashable]:
    """Return the source of each value. Without known sources, each value gets its own source.

    `prefix` makes the new sources of the two samples distinct.
    """
    if known_sources is not None:
        return known_sources
    return [(prefix, number) for number in range(len(values))]


def _welch(values: Sequence[float], rest_values: Sequence[float]) -> float:
    """Return the p value of the t test for unequal variances.

    Source: B. L. Welch, Biometrika 34:28-35, 1947. At least one sample must have distinct values.
    """
    from scipy import special  # imported here: see scoring/intervals.py

    # the variance of the mean of each sample, and of the difference of the means
    group_variance = statistics.variance(values) / len(values)
    rest_variance = statistics.variance(rest_values) / len(rest_values)
    variance = group_variance + rest_variance
    # the Welch-Satterthwaite equation for the degrees of freedom
    share = group_variance / variance
    degrees = 1 / (share**2 / (len(values) - 1) + (1 - share) ** 2 / (len(rest_values) - 1))
    statistic = (statistics.fmean(values) - statistics.fmean(rest_values)) / math.sqrt(variance)
    return 2 * float(special.stdtr(degrees, -abs(statistic)))


def _clustered_t(
    group: tuple[Sequence[float], Sequence[Hashable]],
    rest: tuple[Sequence[float], Sequence[Hashable]],
) -> float | None:
    """Return the p value of a t test with a cluster-robust variance.

    The degrees of freedom are one less than the number of effective clusters in the sample with
    fewer of them. A. C. Cameron and D. L. Miller (Journal of Human Resources 50:317-372, 2015,
    section VI) explain why few clusters in one sample require this conservative choice. A source
    may have values in both samples: its contributions to the two means are added before they are
    squared.

    Returns:
        None if there are too few clusters, or if the variance is 0.
    """
    # source -> its contribution to the difference of the two means
    influence: dict[Hashable, float] = defaultdict(float)
    effective = []  # the number of effective clusters in each sample
    for sign, (values, sources) in ((1, group), (-1, rest)):
        mean = statistics.fmean(values)
        for value, source in zip(values, sources, strict=True):
            influence[source] += sign * (value - mean) / len(values)
        effective.append(effective_clusters(sources))
    clusters = len(influence)
    degrees = min(effective) - 1
    if clusters < 2 or degrees < 1:
        return None
    squares = math.fsum(value * value for value in influence.values())
    variance = clusters / (clusters - 1) * squares
    if variance == 0:
        return None
    from scipy import special  # imported here: see scoring/intervals.py

    statistic = (statistics.fmean(group[0]) - statistics.fmean(rest[0])) / math.sqrt(variance)
    return 2 * float(special.stdtr(degrees, -abs(statistic)))


SMALLEST_GROUP = 10
"""The smallest number of instances in a group that is shown. The interval of a smaller group is too
wide to be useful.
"""


@dataclass(frozen=True)
class Groups:
    """The scores of the groups of a run."""

    scores: Mapping[str, Mapping[str, Mapping[str, Score]]] = field(default_factory=dict)
    """Field -> value -> metric -> score."""
    hidden: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Field -> the sizes of its groups that are too small to be shown."""

    def notes(self) -> Iterator[Note]:
        """Yield one note on all groups that are too small to be shown, if there are any."""
        hidden_fields = []
        partly_hidden = []
        for name, sizes in self.hidden.items():
            if self.scores.get(name):
                partly_hidden.append(f"{counted(len(sizes), 'group')} of {name}")
            else:
                hidden_fields.append(name)
        if hidden_fields:
            text = f"too few questions for scores by {', '.join(hidden_fields)}"
            yield Note(Importance.BACKGROUND, "; ".join([text, *partly_hidden]))
        elif partly_hidden:
            yield Note(Importance.BACKGROUND, f"too few questions in {', '.join(partly_hidden)}")


def scores_by_group(
    metric: MetricValues,
    members: Mapping[str, Mapping[str, Sequence[InstanceKey]]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
    corrected_metric: MetricValues | None = None,
) -> Groups:
    """Return the scores of the groups of each field that has only a few values.

    Each score has the p value of the hypothesis that the group does not differ from the rest of the
    instances. The score also has this p value, corrected for the number of the field's groups. A
    group of fewer than `SMALLEST_GROUP` instances is not shown, but its size is stored. Its
    instances are still in the rest with which another group is compared.

    Args:
        metric: the values that are scored.
        members: the instances of each group: field -> value of the field -> instances.
        missing: the instances without a value that counts.
        failed_as_zero: True if the missing instances count as 0.
        corrected_metric: the corrected values of the metric, if there are any. Their scores are
            shown next to HELM's scores, so that a reader does not take HELM's error in a group for
            a finding.
    """
    scores: dict[str, dict[str, dict[str, Score]]] = {}
    hidden = {}
    for name, by_value in sorted(members.items()):
        in_group = _scores_by_value(metric, by_value, missing, failed_as_zero=failed_as_zero)
        if not can_form_groups(len(in_group), len(metric.values)):
            continue
        shown = {}
        small = []
        for value, score in in_group.items():
            if score.stats.count >= SMALLEST_GROUP:
                shown[value] = {metric.label: score}
            else:
                small.append(score.stats.count)
        if small:
            hidden[name] = small
        if not shown:
            continue
        scores[name] = shown
        if corrected_metric is not None:
            corrected = _scores_by_value(
                corrected_metric, by_value, missing, failed_as_zero=failed_as_zero
            )
            for value in scores[name].keys() & corrected.keys():
                scores[name][value][corrected_metric.label] = corrected[value]
    return Groups(scores, hidden)


def _scores_by_value(
    metric: MetricValues,
    by_value: Mapping[str, Sequence[InstanceKey]],
    missing: set[InstanceKey],
    *,
    failed_as_zero: bool,
) -> dict[str, Score]:
    """Return the score of each group: the instances with one value of a field.

    Groups without an instance that counts are left out. The scores of groups with at least
    `SMALLEST_GROUP` instances have p values.
    """
    all_counted = with_missing_counted(metric.values, missing, failed_as_zero=failed_as_zero)
    groups = {}  # value of the field -> instance -> value of the metric
    for value, keys in sorted(by_value.items()):
        group = {key: all_counted[key] for key in keys if key in all_counted}
        if group:
            groups[value] = group
    scores = {value: mean_score(metric, group) for value, group in groups.items()}
    tested = [value for value, score in scores.items() if score.stats.count >= SMALLEST_GROUP]
    p_values = []
    for value in tested:
        # The rest has all instances of the other groups, except instances that are in this group.
        rest: dict[InstanceKey, float] = {}
        for group in groups.values():
            rest |= group
        for key in groups[value]:
            del rest[key]
        p_values.append(
            p_value_of_difference(sample_of(metric, groups[value]), sample_of(metric, rest))
        )
    # Two groups without a common instance have a single difference, so there is a single test.
    is_single_test = False
    if len(groups) == 2:
        first_group, second_group = groups.values()
        is_single_test = first_group.keys().isdisjoint(second_group)
    p_values_holm = p_values if is_single_test else holm_corrected(p_values)
    for value, p_value, p_holm in zip(tested, p_values, p_values_holm, strict=True):
        scores[value] = replace(
            scores[value], stats=replace(scores[value].stats, p_value=p_value, p_holm=p_holm)
        )
    return scores
