"""The schema of a suite: what an editor completes, explains and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from jsonschema import Draft7Validator

from eval_factory.config import suite_model
from eval_factory.config.json_schema import suite_schema
from eval_factory.config.suite_layers import preset_names
from eval_factory.config.suite_model import _MAX_NAME_LENGTH
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from suites import section, suite, target

SCHEMA = suite_schema(load_framework())
PROPERTIES = SCHEMA["properties"]["suite"]["properties"]


def errors(**changes: Any) -> list[str]:
    return [
        error.message
        for error in Draft7Validator(SCHEMA).iter_errors({"suite": section(**changes)})
    ]


def mappings(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of mappings with known keys, but for those under `definitions`."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            yield schema
        for key, inner in schema.items():
            if key != "definitions":
                yield from mappings(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from mappings(inner)


def test_every_key_of_every_model_is_there_with_its_description() -> None:
    found = [set(one["properties"]) for one in mappings(SCHEMA)]
    models = (
        "SuiteSection",
        "EvaluationEntry",
        "Selection",
        "TargetEntry",
        "VariantEntry",
        "CellPattern",
    )
    assert all(set(getattr(suite_model, model).model_fields) in found for model in models)
    described = list(
        chain.from_iterable(
            one["properties"].values() for one in mappings(SCHEMA["properties"]["suite"])
        )
    )
    assert all(field["description"].endswith(".") for field in described)


def test_defaults_are_those_of_framework_yml_and_presets_are_offered() -> None:
    assert PROPERTIES["preset"]["anyOf"][0] == {"enum": preset_names()}
    stated = {name: field["default"] for name, field in PROPERTIES.items() if "default" in field}
    assert stated == {
        name: value for name, value in load_framework().defaults.suite.items() if value is not None
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluations": ["medec", {"type": "helm:mmlu:subject=anatomy", "params": None}]},
        {"evaluations": [{"select": {"access": "public", "without": ["medec"]}}], "preset": None},
        {"judges": [{"name": "gpt", "model_id": "x", "api_key": "K"}], "variants": [{"name": "a"}]},
        {
            "targets": [
                target(
                    "a",
                    params={"limit_samples": 3, "extra": {"on_failure": "zero"}},
                    limit_group="our cluster",
                )
            ]
        },
        {
            "max_processes": 256,
            "max_attempts": 1,
            "max_outage_s": 0.5,
            "max_cost": 0.001,
            "max_requests": 1,
            "max_tokens_total": 10**12,
            "max_wall_s": 1,
        },
        {
            "include": [{"evaluation": "*"}],
            "exclude": [{"target": "small"}, {"variant": "*", "target": "small"}],
        },
        *(
            {"targets": [target(name)], "evaluations": [{"type": "medec", "name": name}]}
            for name in (
                "a",
                "_a",
                "9",
                "gpt-4.1_mini",
                "A" * _MAX_NAME_LENGTH,
            )
        ),
    ],
    ids=str,
)
def test_what_is_right_to_the_program_and_to_the_schema(changes: dict[str, Any]) -> None:
    assert suite(**changes).cells
    assert errors(**changes) == []


def test_what_another_file_or_the_environment_may_say_is_right_to_the_schema() -> None:
    assert (
        errors(max_cost="${COST}", max_processes=2, preset="${P}", evaluations=[{"name": "x"}])
        == []
    )
    assert errors(targets=[{"name": "${WHO}-a"}]) == []


LIMITS: dict[str, list[Any]] = {
    "max_processes": [0, 257, True, 1.5],
    "max_attempts": [0, 101, 1.5],
    "max_outage_s": [0, -1, 367 * 24 * 3600, True],
    "max_cost": [0, -1, True],
    "max_requests": [0, 1.5],
    "max_tokens_total": [0],
    "max_wall_s": [0, "1s"],
}
NO_FOLDERS = ("", " ", ".a", "-a", "a b", "a/b", "..", "ä", "A" * (_MAX_NAME_LENGTH + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"zzz": 1},
        {"preset": "smok"},
        {"evaluations": ["medecc"]},
        {"evaluations": [{"type": "medec", "zzz": 1}]},
        {"evaluations": {}},
        {"evaluations": [{"type": "medec", "params": {"zzz": 1}}]},
        {"evaluations": [{"select": {"access": "all"}}]},
        {"targets": [{"api_endpoint": {}}]},
        {"targets": [target("a", params={"limit_samples": 0})]},
        {"targets": [{"name": "a", "api_endpoint": {"type": "x"}}]},
        {"variants": [{"params": {}}]},
        {"include": [{"zzz": 1}]},
        {"judges": [{"name": "gpt"}]},
        *({"evaluations": [{"type": "medec", "name": name}]} for name in NO_FOLDERS),
        *({"targets": [target(name)]} for name in (*NO_FOLDERS, ".suite", "suite_results")),
        *chain.from_iterable([{key: value} for value in LIMITS[key]] for key in LIMITS),
    ],
    ids=str,
)
def test_what_is_wrong_to_the_program_and_to_the_schema(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        suite(**changes)
    assert errors(**changes) != []


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluations": [{}]},
        {"evaluations": [{"params": {}}]},
        {"evaluations": [{"select": {}, "type": "medec"}]},
        {"evaluations": [{"select": {}, "name": "x"}]},
        {"include": [{}]},
        {"targets": [target("SUITE_x")]},
        {"max_tokens_total": 10**12 + 1},
        {"max_cost": float("inf")},
        {"targets": [target("a\n")]},
        {"evaluations": [{"type": "medec", "name": "a\n"}]},
    ],
    ids=str,
)
def test_what_the_schema_does_not_tell_is_wrong_to_the_program(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        suite(**changes)
