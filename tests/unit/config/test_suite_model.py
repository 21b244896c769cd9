from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eval_factory.config.suite_layers import name_of_type, name_with_variant
from eval_factory.config.suite_model import _MAX_NAME_LENGTH, CellPattern, EvaluationEntry, SuiteSection, TargetEntry
from eval_factory.core.rundir import RESERVED_NAMES
from eval_factory.tasks.framework import load_framework


@pytest.mark.parametrize("name", ["a", "_a", "9", "gpt-4.1_mini", "A" * _MAX_NAME_LENGTH])
def test_names_that_every_file_system_takes(name: str) -> None:
    assert TargetEntry(name=name, limit_group="our cluster").name == name
    assert EvaluationEntry(type="medec", name=name).name == name


@pytest.mark.parametrize("name", ["", " ", ".a", "-a", "a b", "a/b", "..", "ä", "a\n", "A" * (_MAX_NAME_LENGTH + 1)])
def test_names_that_are_no_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        TargetEntry(name=name)
    with pytest.raises(ValidationError):
        EvaluationEntry(type="medec", name=name)


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "suite_results", "SUITE_x"])
def test_a_target_has_no_name_of_the_suites_own_files(name: str) -> None:
    with pytest.raises(ValidationError):
        TargetEntry(name=name)


@pytest.mark.parametrize("entry", [{}, {"params": {}}, {"select": {}, "type": "medec"}, {"select": {}, "name": "x"}])
def test_an_evaluation_is_one_task_or_a_selection(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EvaluationEntry.model_validate(entry)


def test_a_pattern_says_something() -> None:
    for key in ("evaluation", "target", "variant"):
        assert CellPattern.model_validate({key: "*"})
    with pytest.raises(ValidationError):
        CellPattern()


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("max_processes", 256, [0, 257, True, 1.5]), ("max_attempts", 1, [0, 101]),
        ("max_outage_s", 0.5, [0, -1, 367 * 24 * 3600, True]), ("max_cost", 0.001, [0, -1, float("inf"), True]),
        ("max_requests", 1, [0, 1.5]), ("max_tokens_total", 10**12, [0, 10**12 + 1]), ("max_wall_s", 1, [0, "1s"]),
    ],
)  # fmt: skip
def test_limits(key: str, right: float, wrong: list[Any]) -> None:
    assert getattr(SuiteSection.model_validate({key: right}), key) == right
    for value in wrong:
        with pytest.raises(ValidationError):
            SuiteSection.model_validate({key: value})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("pubmed_qa", "pubmed_qa"), ("helm.pubmed_qa", "pubmed_qa"), ("helm:ifeval", "helm-ifeval"),
        ("helm:mmlu:subject=anatomy", "helm-mmlu-subject-anatomy"),
    ],
)  # fmt: skip
def test_the_name_of_a_task(given: str, name: str) -> None:
    assert name_of_type(given, load_framework()) == name


def test_a_long_one_is_cut_and_still_its_own() -> None:
    names = {name_of_type(f"helm:mmlu:subject={'a' * 80}{end}", load_framework()) for end in "bc"}
    assert [len(name) for name in names] == [69, 69]


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ({"name": "default"}, "medec"), ({"name": "default", "params": {"top_p": 1}}, "medec"), ({"name": "cold"}, "medec"),
        ({"name": "cold", "params": {}}, "medec"), ({"name": "cold", "params": {"temperature": 0.0}}, "medec_cold"),
    ],
)  # fmt: skip
def test_the_name_with_a_variant(variant: dict[str, object], name: str) -> None:
    assert name_with_variant("medec", variant) == name
