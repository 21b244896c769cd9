"""Tests of what the runs of one asking come to: values from 0 to 1, figures, and why a look is no evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core import results
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.monitor.measurement import (
    PanelMeasurement,
    measure,
    read_values,
    reasons_not_to_compare,
    write_values,
)
from eval_factory.monitor.panel import Limit
from stored_results import MODEL, PROVENANCE, criterion, instance, result, written

VALUES = {"a": 1.0, "b": 0.0, "c": 1.0, "d": None}


def limit(name: str = "task", **changes: Any) -> Limit:
    return replace(Limit(name, "task", None, 0.02), **changes)


def asked(folder: Path, made: results.TaskResult, *limits: Limit) -> PanelMeasurement:
    written(folder / "model" / "task", made)
    return measure(folder / "model", limits or (limit(),))


def made(
    values: dict[str, float | None] | None = None, score: Any = None, **changes: Any
) -> results.TaskResult:
    given = VALUES if values is None else values
    records = [
        instance(
            key,
            value,
            categories={"topic": "heart" if key in "ab" else "lung"},
            cluster=f"note {key in 'ab'}",
        )
        for key, value in given.items()
    ]
    found = result(records, **changes)
    return (
        found
        if score is None
        else replace(found, scores={"exact_match": replace(found.scores["exact_match"], **score)})
    )


def test_each_instance_has_its_value_and_what_failed_has_none(tmp_path: Path) -> None:
    found = asked(tmp_path, made())
    assert found.limits == {"task": VALUES}
    assert found.clusters["task"] == {
        "a": "note True",
        "b": "note True",
        "c": "note False",
        "d": "note False",
    }


def test_each_answer_has_a_hash_of_its_text(tmp_path: Path) -> None:
    records = [instance("a", 1.0), instance("b", 1.0), instance("c", 1.0), instance("d", None)]
    records[0] = replace(records[0], completion="B")
    records[1] = replace(records[1], completion="B")
    records[2] = replace(records[2], completion="B.")
    found = asked(tmp_path, result(records))
    answers = found.answers["task"]
    assert answers.keys() == {"a", "b", "c"}
    assert answers["a"] == answers["b"] != answers["c"]
    digest = write_values(tmp_path, found)
    assert read_values(tmp_path, digest).answers == found.answers


def test_a_group_is_its_members(tmp_path: Path) -> None:
    found = asked(tmp_path, made(), limit("g", field="topic", value="heart"))
    assert found.limits == {"g": {"a": 1.0, "b": 0.0}}


@pytest.mark.parametrize(
    ("given", "score", "expected", "back"),
    [
        (
            {"a": 5.0, "b": 1.0, "c": 3.0},
            {"scale": (1.0, 5.0), "higher_is_better": True},
            [1.0, 0.0, 0.5],
            3.0,
        ),
        (
            {"a": 0.25, "b": 1.0, "c": 0.0},
            {"scale": (0.0, 1.0), "higher_is_better": False},
            [0.75, 0.0, 1.0],
            0.5,
        ),
        (
            {"a": 0.25, "b": 1.0, "c": 0.0},
            {"scale": None, "higher_is_better": None},
            [0.25, 1.0, 0.0],
            0.5,
        ),
    ],
)
def test_values_are_from_worst_to_best(
    tmp_path: Path,
    given: dict[str, float],
    score: dict[str, Any],
    expected: list[float],
    back: float,
) -> None:
    found = asked(tmp_path, made(dict(given), score))
    assert list(found.limits["task"].values()) == expected
    scale = found.scales["task"]
    assert scale.score_of(0.5) == back
    assert [scale.score_of(scale.value_of(value)) for value in given.values()] == pytest.approx(
        list(given.values())
    )


def test_a_rubrics_scale_begins_at_its_worst_case(tmp_path: Path) -> None:
    cases = {
        "a": [criterion(5, "met"), criterion(-5, "not met")],
        "b": [criterion(10, "not met"), criterion(-20, "met")],
    }
    records = [
        instance(key, value, "rubric_score", criteria=tuple(cases[key]))
        for key, value in (("a", 1.0), ("b", -2.0))
    ]
    found = asked(tmp_path, result(records, ("rubric_score",)))
    assert found.scales["task"].low == -2.0
    assert found.limits["task"] == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize(
    ("changes", "values", "score", "said"),
    [
        ({"metric": "rouge"}, None, None, "there is no score rouge; there are exact_match"),
        ({"field": "ward", "value": "x"}, None, None, "its fields: topic"),
        ({"field": "topic", "value": "x"}, None, None, "its values of topic: heart, lung"),
        ({}, {"a": 7.0, "b": 0.0}, None, "has no such scale"),
        ({"max_drop": 1.0}, None, None, "is as large as the scale"),
    ],
)
def test_a_limit_that_cannot_be_tested_is_named(
    tmp_path: Path,
    changes: dict[str, Any],
    values: dict[str, float | None] | None,
    score: Any,
    said: str,
) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(tmp_path, made(values, score), limit(**changes))


def test_what_is_watched_is_of_all_answers(tmp_path: Path) -> None:
    counts = results.Instances(4, 3, 1, 1, 0, 0, refused=2, unreadable=3)
    found = made()
    endpoints = {"model": replace(MODEL, stated_models={"m-2": 3, "m-1": 1})}
    found = replace(
        found,
        validity=replace(found.validity, instances=counts),
        provenance=replace(PROVENANCE, endpoints=endpoints),
    )
    watched = asked(tmp_path, found).watched
    assert watched == {
        "refused": 0.5,
        "unreadable": 0.75,
        "empty": 0.25,
        "failed": 0.25,
        "length": 3.0,
        "latency": 0.1,
        "stated": ["m-1", "m-2"],
    }


def test_one_slow_answer_leaves_the_watched_latency_as_it_is(tmp_path: Path) -> None:
    found = made()
    seconds = (0.1, 0.2, 9.0, None)
    records = [
        replace(record, latency_s=one) for record, one in zip(found.instances, seconds, strict=True)
    ]
    assert asked(tmp_path, replace(found, instances=records)).watched["latency"] == 0.2


def test_what_was_measured_is_read_again_by_its_hash(tmp_path: Path) -> None:
    found = asked(tmp_path, made())
    digest = write_values(tmp_path, found)
    assert read_values(tmp_path, digest) == found
    file = tmp_path / "values.json"
    file.write_text(file.read_text().replace("1.0", "0.0", 1))
    with pytest.raises(PrerequisiteError, match="was changed"):
        read_values(tmp_path, digest)
    file.unlink()
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        read_values(tmp_path, digest)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"dataset_files": {"scenarios/x/test.json": "e" * 64}}, "different data"),
        ({"helm": "0.5.17"}, "different versions of HELM"),
        ({"errata_version": 4}, "known defects"),
    ],
)
def test_a_look_at_something_else_is_no_evidence(
    tmp_path: Path, changes: dict[str, Any], said: str | None
) -> None:
    found = made()
    asked(tmp_path / "before", found)
    asked(tmp_path / "after", replace(found, provenance=replace(PROVENANCE, **changes)))
    reasons = list(
        reasons_not_to_compare(
            tmp_path / "before" / "model", tmp_path / "after" / "model", [limit()]
        )
    )
    assert len(reasons) == (said is not None)
    assert said is None or (reasons[0].startswith("task: ") and said in reasons[0])


def test_other_questions_are_no_evidence(tmp_path: Path) -> None:
    asked(tmp_path / "before", made())
    asked(tmp_path / "after", made({"a": 1.0, "b": 0.0, "c": 1.0, "e": 1.0}))
    (reason,) = reasons_not_to_compare(
        tmp_path / "before" / "model", tmp_path / "after" / "model", [limit()]
    )
    assert "different instances" in reason
