"""Checks the limits of a gate for groups of instances.

A group has all instances with the same value of a field, such as `language=de`. A candidate is the
model that a gate accepts or refuses; a baseline is the earlier model with which the candidate is
compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from eval_factory.analysis.comparison_of_two import difference_of
from eval_factory.analysis.comparison_reasons import values_of
from eval_factory.analysis.comparison_records import Comparison
from eval_factory.analysis.gate_checks import (
    Check,
    check_of_coverage,
    check_of_min,
    check_without_number,
)
from eval_factory.analysis.gate_drops import Change
from eval_factory.analysis.gate_policy import EVERY_VALUE, BenchmarkPolicy, Limits
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.report.reader import StoredResult
from eval_factory.scoring.paired import PairedDifference


def checks_of_groups(
    policy: BenchmarkPolicy, metric: str, candidate: StoredResult, change: Change | None
) -> Iterator[Check]:
    """Yield the checks of the limits for groups.

    Args:
        policy: the policy for the benchmark.
        metric: the name of the score.
        candidate: the candidate's result.
        change: the change from the baseline; None if no limit of the benchmark needs a baseline.
    """
    for field, by_value in policy.groups.items():
        groups = candidate.result.groups.get(field, {})
        if not groups:
            yield check_without_number(f"the candidate has no groups by {field}", group=field)
            continue
        for value, limits in _limits_by_value(by_value, groups):
            group = f"{field}={value}"
            score = groups.get(value, {}).get(metric)
            if score is None:
                why = (
                    f"the candidate has no score {metric} of this group: "
                    "it is missing, or too small to be shown"
                )
                yield check_without_number(why, group=group)
                continue
            if limits.min is not None:
                yield check_of_min(score, limits.min, policy.direction, group=group)
            if limits.min_coverage is not None:
                coverage = _coverage_of_group(candidate, score, (field, value))
                yield check_of_coverage(coverage, limits.min_coverage, group=group)
            if change is not None and limits.limits_a_drop:
                difference = difference_in_group(
                    change.baseline, candidate, change.comparison, (field, value)
                )
                if difference is None:
                    why = "baseline and candidate have no instance of this group in common"
                    yield check_without_number(why, group=group)
                else:
                    yield from change.checks_of_drops(difference, limits, group)


def _limits_by_value(
    by_value: Mapping[str, Limits], groups: Collection[str]
) -> Iterator[tuple[str, Limits]]:
    """Yield the value and the limits of each group of a field.

    The groups that the policy names come first, and then the other groups if the policy has limits
    for `EVERY_VALUE`.
    """
    for value, limits in by_value.items():
        if value != EVERY_VALUE:
            yield value, limits
    if EVERY_VALUE in by_value:
        for value in sorted(set(groups) - by_value.keys()):
            yield value, by_value[EVERY_VALUE]


def _coverage_of_group(stored: StoredResult, score: Score, group: tuple[str, str]) -> float:
    """Return the share of a group's answers, or of their judgements, that the score counts.

    In a judged result, judgements are counted; in any other result, answers. Return 0 if there
    should be no answer or judgement.

    Args:
        stored: the result.
        score: the score of the group.
        group: the field of the group and its value.
    """
    judge_count = len(stored.result.validity.judges)
    is_judged = stored.result.validity.judgements is not None and judge_count > 0
    due = 0  # the number of answers or judgements that there should be
    counted = 0
    for record in _records_in(stored, group):
        if not score.covers(record):
            continue
        if not is_judged:  # each instance should have an answer that was scored
            due += 1
            if record.error is None and not record.unjudged:
                counted += 1
        elif record.criteria:  # in a rubric, each judge decides about each criterion
            due += judge_count * len(record.criteria)
            counted += sum(map(_decisions, record.criteria))
        elif record.judges or not _is_empty(record):  # no judge is asked about an empty answer
            due += judge_count
            counted += len(record.judges)
    if not due:
        return 0.0
    return counted / due


def _decisions(criterion: Mapping[str, Any]) -> int:
    """Return the number of judges who decided about a criterion."""
    return sum("criteria_met" in judgement for judgement in criterion["judges"].values())


def _is_empty(record: InstanceRecord) -> bool:
    """Return True if there is an answer, and the answer has no text."""
    return record.completion is not None and not record.completion.strip()


def difference_in_group(
    a: StoredResult, b: StoredResult, comparison: Comparison, group: tuple[str, str]
) -> PairedDifference | None:
    """Return the difference (b - a) over the instances of a group with a value in both results.

    The metric and the scale are those of the comparison. Return None if no instance of the group
    has a value in both results.

    Args:
        a: the first result.
        b: the second result.
        comparison: the comparison of both results over all instances.
        group: the field of the group and its value.
    """
    score = a.result.scores[comparison.metric]
    values_a = values_of(_records_in(a, group), score)
    values_b = values_of(_records_in(b, group), score)
    keys = sorted(values_a.means.keys() & values_b.means.keys())
    if not keys:
        return None
    return difference_of(values_a, values_b, keys, comparison.scale)


def _records_in(stored: StoredResult, group: tuple[str, str]) -> Iterator[InstanceRecord]:
    """Yield the records of the instances in a group."""
    field, value = group
    for record in stored.result.instances:
        if record.group_value(field) == value:
            yield record
