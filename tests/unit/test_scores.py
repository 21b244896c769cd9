"""Values of instances made here -> scores, by hand."""

from __future__ import annotations

import pytest

from eval_factory.scores import Context, InstanceKey, bounds_of, helm_mean, score_of, scores_by_group


def key(number: int, trial: int = 0) -> InstanceKey:
    return (f"id{number}", trial, None)


def context(values: dict[InstanceKey, float], *, scale: tuple[float, float] | None = None) -> Context:
    return Context("m", "m", helm_mean(values), merged=False, scale=scale, values=values)


def test_trials_of_an_instance_are_one_value_of_the_sample() -> None:
    """Two trials of three instances are no six instances: the interval would be too narrow."""
    values = {key(number, trial): float(number == 0) for number in range(3) for trial in range(2)}
    score = score_of(context(values), set(), zero=False)
    assert score is not None
    assert score.value == pytest.approx(1 / 3)
    assert score.stats.count == 3


def test_groups_leave_out_what_the_score_leaves_out() -> None:
    values = {key(number): 1.0 for number in range(8)}
    members = {"ward": {"a": [key(n) for n in range(4)], "b": [key(n) for n in range(4, 8)]}}
    missing = {key(0), key(1), key(2)}
    groups = scores_by_group(context(values), members, missing, zero=False)["ward"]
    assert {name: (found["m"].value, found["m"].stats.count) for name, found in groups.items()} == {
        "a": (1.0, 1), "b": (1.0, 4),
    }  # fmt: skip


def test_groups_count_as_zero_what_the_score_counts_as_zero() -> None:
    values = {key(number): 1.0 for number in range(8)}
    members = {"ward": {"a": [key(n) for n in range(4)], "b": [key(n) for n in range(4, 8)]}}
    groups = scores_by_group(context(values), members, {key(0), key(1), key(2)}, zero=True)["ward"]
    assert {name: found["m"].value for name, found in groups.items()} == {"a": 0.25, "b": 1.0}


def test_bounds_are_on_the_scale_of_the_metric() -> None:
    rated = context({key(0): 4.0, key(1): 2.0}, scale=(1.0, 5.0))
    assert bounds_of(rated, {key(1)}) == (2.5, 4.5)
    assert bounds_of(context({key(0): 4.0, key(1): 2.0}), {key(1)}) is None
