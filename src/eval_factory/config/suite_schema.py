"""The JSON Schema of a suite, for editors: made of the models, with framework.yml's defaults. Draft 7.

It knows the shape, and the parameters and endpoints of run configs. That tasks and cells are there, and what several
files say together, `eval-factory run_suite --dry_run` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_factory.config.json_schema import Schema, run_config_schema
from eval_factory.config.suite_layers import preset_names
from eval_factory.config.suite_model import NAME, OF_THE_SUITE, SuiteSection
from eval_factory.config.suite_shape import HANDED, TOP
from eval_factory.tasks.framework import Framework

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""`${NAME}` may stand for a value of any type."""
_LEFT_OUT = ("$defs", "title", "default", "description")
_SHARED = ("params", "api_endpoint", "type")
_END = r"\Z"
_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def suite_schema(framework: Framework) -> Schema:
    """What a suite's file may hold."""
    whole = SuiteSection.model_json_schema()
    run = run_config_schema(framework)["properties"]
    shared = {
        "params": run["config"]["properties"]["params"],
        "api_endpoint": run["target"]["properties"]["api_endpoint"],
        "type": run["config"]["properties"]["type"],
    }
    section = _mapping(whole, whole["$defs"], framework.defaults.suite)
    properties = section["properties"]
    for name in HANDED:
        extra = shared["params"]["properties"]["extra"]["properties"]
        if name in extra:
            properties[name] = {**extra[name], "description": properties[name]["description"]}
    properties["preset"]["anyOf"] = [{"enum": preset_names()}, _VARIABLE, {"type": "null"}]
    of_targets = properties["targets"]["anyOf"][0]["items"]["properties"]["name"]["anyOf"][0]
    of_targets["pattern"] = of_targets["pattern"].replace("^", f"^(?!{OF_THE_SUITE})", 1)
    of_evaluations = properties["evaluations"]["anyOf"][0]
    of_evaluations["items"] = {"anyOf": [_reference("type"), of_evaluations["items"]]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: suite",
        "description": "A null means the default. ${NAME} and ${NAME:-default} are taken from the environment.",
        "type": "object",
        "properties": {TOP: {"description": "Evaluations x variants x targets.", **section}},
        "required": [TOP],
        "additionalProperties": False,
        "definitions": shared,
    }


def _reference(name: str) -> Schema:
    """What stands at several places stands under `definitions` once; beside a bare reference nothing counts."""
    return {"allOf": [{"$ref": f"#/definitions/{name}"}]}


def _mapping(model: Schema, models: Mapping[str, Schema], defaults: Mapping[str, Any]) -> Schema:
    required = model.get("required", [])
    properties = {}
    for name, field in model["properties"].items():
        described = {"description": field["description"].replace("\n", " ")}
        if name in _SHARED:
            properties[name] = {**described, **_reference(name)}
        else:
            plain = {} if defaults.get(name) is None else {"default": defaults[name]}
            options = _options(name, field, models, needed=name in required)
            properties[name] = {**described, **plain, "anyOf": options}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _options(name: str, field: Schema, models: Mapping[str, Schema], *, needed: bool) -> list[Schema]:
    given = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
    options = [_option(option, models) for option in given]
    if name == "name":
        options[0]["pattern"] = rf"{NAME.pattern.removesuffix(_END)}$|\$\{{"
    variable = [] if options[0]["type"] in ("array", "object", "string") and "enum" not in options[0] else [_VARIABLE]
    return [*options, *variable, *([] if needed else [{"type": "null"}])]


def _option(option: Schema, models: Mapping[str, Schema]) -> Schema:
    if "$ref" in option:
        return _mapping(models[option["$ref"].rpartition("/")[2]], models, {})
    found = {_KEYWORDS.get(key, key): value for key, value in option.items() if key not in _LEFT_OUT}
    if found.get("items"):
        found["items"] = _option(found["items"], models)
    return found
