"""The schema of a policy: what an editor completes, explains and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from eval_factory.analysis.gate_policy import BenchmarkLimits, Defaults, Limits, PolicyFile
from eval_factory.analysis.gate_schema import gate_policy_schema

SCHEMA = gate_policy_schema()


def errors(document: Any) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(document)]


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    if isinstance(schema.get("additionalProperties"), dict):
        inside.append(schema["additionalProperties"])
    for one in inside:
        yield from schemas(one)


def test_it_is_a_schema_of_draft_7_that_says_what_it_is_of() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert list(SCHEMA)[:3] == ["$schema", "title", "description"]
    assert (SCHEMA["title"], SCHEMA["required"]) == ("eval-factory: policy of a gate", ["version", "benchmarks"])


def test_every_key_of_every_model_is_there_with_its_description() -> None:
    found = [set(one["properties"]) for one in schemas(SCHEMA) if "properties" in one]
    assert found == [set(model.model_fields) for model in (PolicyFile, Defaults, BenchmarkLimits, Limits)]
    described = [field for one in schemas(SCHEMA) for field in one.get("properties", {}).values()]
    assert all(field["description"].endswith(".") for field in described)
    assert "metric's own unit" not in SCHEMA["properties"]["benchmarks"]["description"]


def test_it_needs_no_reference_and_shows_no_default_that_is_null() -> None:
    for one in schemas(SCHEMA):
        assert not {"$ref", "$defs"} & one.keys()
        assert one.get("default", 1) is not None
    assert SCHEMA["properties"]["on_inconclusive"]["default"] == "fail"
    assert [one["title"] for one in schemas(SCHEMA) if "title" in one] == [SCHEMA["title"]]


@pytest.mark.parametrize(
    ("benchmarks", "sound"),
    [
        ({"a": {}}, True),
        ({"a": {"min": None, "groups": {"title": {"$ref": {"min": 0.1}}}}}, True),
        ({"a": {"mim": 0.1}}, False),
        ({"a": {"groups": {"f": {"v": {"metric": "x"}}}}}, False),
        ({"a": {"groups": {"f": {"v": {"max_drop": -0.1}}}}}, False),
        ({"a": {"max_relative_drop": 1.1}}, False),
        ({"a": {"direction": "up"}}, False),
        ({"a": None}, False),
        ({}, False),
    ],
)
def test_it_refuses_another_shape(benchmarks: dict[str, Any], sound: bool) -> None:
    assert (errors({"version": 1, "benchmarks": benchmarks}) == []) is sound
