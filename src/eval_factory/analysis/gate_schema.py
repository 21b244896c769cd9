"""The JSON Schema of a gate's policy, for editors: made of the models. Draft 7, without references.

It knows the shape: keys, types, ranges. That a benchmark has a limit at all, its own or a default's, and that tasks,
metrics and groups are there, `eval-factory gate` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_factory.analysis.gate_policy import PolicyFile

Schema = dict[str, Any]


def gate_policy_schema() -> Schema:
    """What a policy may hold."""
    whole = PolicyFile.model_json_schema()
    about = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: policy of a gate",
        "description": "What a candidate's results have to keep (docs/gate.md).",
    }
    return about | _plain(whole, whole["$defs"]) | about


def _plain(schema: Mapping[str, Any], models: Mapping[str, Schema]) -> Schema:
    """A schema with what it refers to in its place; pydantic's titles and defaults, all null, are left out.

    A model's fields and a mapping's keys are names, whatever they are; their schemas are gone through.
    """
    if "$ref" in schema:
        model = models[schema["$ref"].rpartition("/")[2]]
        return _plain({**model, **{key: value for key, value in schema.items() if key != "$ref"}}, models)
    found: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _plain(field, models) for name, field in value.items()}
        elif key == "additionalProperties" and isinstance(value, dict):
            found[key] = _plain(value, models)
        elif key == "anyOf":
            found[key] = [_plain(option, models) for option in value]
        elif key not in ("$defs", "title") and (key != "default" or value is not None):
            found[key] = value
    return found
