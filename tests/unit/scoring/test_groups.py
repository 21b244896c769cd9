"""Instances sorted by a field of theirs -> a score for each group."""

from __future__ import annotations

import pytest

from eval_factory.scoring.groups import MOST_GROUPS, scores_by_group
from eval_factory.scoring.metric_values import MetricValues
from unit.scoring.test_scores import context, key


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


def test_a_field_with_more_values_than_the_most_groups_is_left_out() -> None:
    """However many instances there are: nobody reads such a table."""
    count = 2 * (MOST_GROUPS + 1)
    values = {key(number): 1.0 for number in range(count)}
    members = {
        "most": {str(n): [key(n), key(n + MOST_GROUPS)] for n in range(MOST_GROUPS)},
        "more": {str(n): [key(n), key(n + MOST_GROUPS + 1)] for n in range(MOST_GROUPS + 1)},
    }
    found = scores_by_group(context(values), members, set(), failed_as_zero=False)
    assert {name: len(groups) for name, groups in found.items()} == {"most": 60}


def test_a_group_of_missing_instances_alone_is_left_out() -> None:
    values = {key(number): float(number) for number in range(6)}
    members = {"ward": {"a": [key(0), key(1)], "b": [key(2), key(3)], "c": [key(4), key(5)]}}
    missing = {key(4), key(5), ("of another split", 0, None)}
    ((name, groups),) = scores_by_group(context(values), members, missing, failed_as_zero=False).items()
    assert (name, {value: scores["m"].value for value, scores in groups.items()}) == ("ward", {"a": 0.5, "b": 2.5})
    zeroed = scores_by_group(context(values), members, missing, failed_as_zero=True)["ward"]
    assert {value: scores["m"].value for value, scores in zeroed.items()} == {"a": 0.5, "b": 2.5, "c": 0.0}


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
