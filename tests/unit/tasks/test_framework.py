"""framework.yml, as records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.tasks import framework
from eval_factory.tasks.framework import (
    ClusterRule,
    Framework,
    file_layout,
    framework_path,
    load_framework,
)


def test_a_task_is_found_by_both_of_its_names() -> None:
    known = load_framework()
    assert known.names() == [task.name for task in known.evaluations]
    first = known.evaluations[0]
    last = known.evaluations[-1]
    assert known.task(first.name) is first
    assert known.task(f"{known.framework.name}.{last.name}") is last
    assert known.task(f"other.{last.name}") is None
    assert known.task("") is None


@pytest.mark.parametrize(
    "told",
    [
        {"file": "a"},
        {"columns": ("a", "b"), "also": "in words"},
        {"elements": {"a": {"met": ("yes", "no")}}},
    ],
)
def test_a_layout_says_what_is_not_usual_and_is_made_of_it_again(told: dict[str, Any]) -> None:
    layout = file_layout(json.loads(json.dumps(told)))
    assert layout.as_dict() == told
    assert file_layout(layout.as_dict()) == layout


TEXT = framework_path().read_text("utf-8")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A framework.yml that somebody may change."""
    file = tmp_path / "framework.yml"
    monkeypatch.setattr(framework, "framework_path", lambda: file)
    return file


def test_the_file_has_the_types_and_values_that_its_records_say() -> None:
    """As texts, too: 1, 1.0 and true are equal."""
    checked = TypeAdapter(Framework).validate_python(parse_own_text(TEXT))
    assert checked == load_framework()
    assert repr(checked) == repr(load_framework())


def test_the_file_in_a_wheel_is_before_that_of_a_checkout(tmp_path: Path) -> None:
    checkout = Path(framework.__file__).resolve().parents[3] / "framework.yml"
    assert framework_path() == framework_path(tmp_path) == checkout
    (tmp_path / "framework.yml").touch()
    assert framework_path(tmp_path) == tmp_path / "framework.yml"


def test_a_file_of_ones_own_is_what_counts(own: Path) -> None:
    own.write_text(TEXT.replace("name: helm\n", "name: other\n", 1), "utf-8")
    other = load_framework.__wrapped__()
    known = load_framework()
    assert other == replace(known, framework=replace(known.framework, name="other"))


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("  pkg_name: eval_factory\n", "", "pkg_name"),
        ("  pkg_name: eval_factory\n", "  pkg_name: eval_factory\n  surprise: 1\n", "surprise"),
        ("framework:\n", "surprise: 1\nframework:\n", "surprise"),
        ("evaluations:\n", "evaluation:\n", "evaluations"),
        ("cluster: {what: calculator,", "cluster: {what: calculator, key: a,", "need each other"),
        ("framework:\n", "framework: [\n", "framework.yml"),
    ],
    ids=["missing", "unknown", "unknown part", "missing part", "cluster", "no YAML"],
)
def test_what_is_wrong_is_an_error(right: str, wrong: str, problem: str, own: Path) -> None:
    assert right in TEXT
    own.write_text(TEXT.replace(right, wrong, 1), "utf-8")
    with pytest.raises(ConfigError, match=problem):
        load_framework.__wrapped__()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, "by `field` or by `text`: set exactly one"),
        ({"field": "a", "text": "(b)"}, "by `field` or by `text`: set exactly one"),
        ({"text": "(b"}, "is not a regular expression: missing"),
        ({"text": "b"}, "must have one group, it has 0"),
        ({"text": "(b)(c)"}, "must have one group, it has 2"),
        (
            {"field": "a", "records": ("r",), "key": "k", "labels": ("l",)},
            "need each other, and they need `text`",
        ),
        ({"text": "(b)", "records": ("r",)}, "need each other"),
        ({"text": "(b)", "records": ("r",), "key": "k"}, "need each other"),
        ({"text": "(b)", "key": "k", "labels": ("l",)}, "need each other"),
    ],
)
def test_a_cluster_that_is_declared_wrongly(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ClusterRule(what="note", **rule).check()
