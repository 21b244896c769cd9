"""The schema of a suite: what an editor completes, explains and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from eval_factory.config import suite_model
from eval_factory.config.json_schema import suite_schema
from eval_factory.config.suite_layers import preset_names
from eval_factory.tasks.framework import load_framework
from suites import section, target

SCHEMA = suite_schema(load_framework())
PROPERTIES = SCHEMA["properties"]["suite"]["properties"]


def errors(**changes: Any) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors({"suite": section(**changes)})]


def mappings(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of mappings, but for those under `definitions`."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for key, inner in schema.items():
            if key != "definitions":
                yield from mappings(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from mappings(inner)


def test_it_is_a_schema_of_draft_7_that_says_what_it_is_of() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["title"] == "eval-factory: suite"
    assert errors() == []


def test_every_key_of_every_model_is_there_with_its_description() -> None:
    found = [set(one["properties"]) for one in mappings(SCHEMA)]
    models = ("SuiteSection", "EvaluationEntry", "Selection", "TargetEntry", "VariantEntry", "CellPattern")
    assert all(set(getattr(suite_model, model).model_fields) in found for model in models)
    described = [field for one in mappings(SCHEMA["properties"]["suite"]) for field in one["properties"].values()]
    assert all(field["description"].endswith(".") for field in described)


def test_defaults_are_those_of_framework_yml_and_presets_are_offered() -> None:
    assert PROPERTIES["preset"]["anyOf"][0] == {"enum": preset_names()}
    stated = {name: field["default"] for name, field in PROPERTIES.items() if "default" in field}
    assert stated == {name: value for name, value in load_framework().defaults.suite.items() if value is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluations": ["medec", {"type": "helm:mmlu:subject=anatomy", "params": None}, {"name": "x"}]},
        {"evaluations": [{"select": {"access": "public", "without": ["medec"]}}], "preset": None},
        {"max_cost": "${COST}", "max_processes": 2, "max_wall_s": 0.5, "preset": "${P}"},
        {"judges": [{"name": "gpt", "model_id": "x", "api_key": "K"}], "variants": [{"name": "a"}]},
        {"targets": [target("a", params={"limit_samples": 3, "extra": {"on_failure": "zero"}}, limit_group="g")]},
        {"targets": [{"name": "${WHO}-a"}]},
    ],
    ids=str,
)
def test_right_ones(changes: dict[str, Any]) -> None:
    assert errors(**changes) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"zzz": 1}, {"max_cost": 0}, {"max_processes": 257}, {"max_attempts": 1.5}, {"preset": "smok"},
        {"evaluations": ["medecc"]}, {"evaluations": [{"type": "medec", "zzz": 1}]}, {"evaluations": {}},
        {"evaluations": [{"type": "medec", "params": {"zzz": 1}}]}, {"evaluations": [{"select": {"access": "all"}}]},
        {"targets": [{"api_endpoint": {}}]}, {"targets": [{"name": "a b"}]}, {"targets": [{"name": "suite_a"}]},
        {"targets": [target("a", params={"limit_samples": 0})]}, {"targets": [{"name": "a", "api_endpoint": {"type": "x"}}]},
        {"variants": [{"params": {}}]}, {"include": [{"zzz": 1}]}, {"judges": [{"name": "gpt"}]},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_ones(changes: dict[str, Any]) -> None:
    assert errors(**changes) != []
