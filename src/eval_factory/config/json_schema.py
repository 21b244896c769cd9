"""Makes the JSON Schemas of a run config and of a suite, with which editors check files.

The schemas are made from the pydantic models and the defaults of framework.yml. They cover keys,
types, ranges and names of tasks. Rules that depend on the task, on other files or on the
environment are only checked by `--dry_run`. In a run config no key is required, because a flag may
set the value. The schemas follow draft 7 of JSON Schema, because editors understand this draft. For
the same reason, the schema of a run config has no references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_factory.config import foreign_keys
from eval_factory.config.foreign_keys import KEYS
from eval_factory.config.model import RunConfig
from eval_factory.config.suite_layers import PASSED_KEYS, TOP, preset_names
from eval_factory.config.suite_model import SuiteSection
from eval_factory.core.enums import SLURM
from eval_factory.core.plain_yaml import packaged
from eval_factory.core.strict_model import KEYWORDS
from eval_factory.tasks.framework import Framework

_Schema = dict[str, Any]

_IGNORED_KEYWORDS = ("$defs", "title", "required", "default", "description")
"""Keywords that are not copied from pydantic's schemas. This module resolves references, and sets
the defaults and the descriptions itself.
"""

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""The schema of `${NAME}`, which is allowed in place of a value of any type."""
_SHARED = ("params", "api_endpoint", "type")  # keys that a suite and a run config share
_DESCRIBED_AS = {
    "suite.slurm": SLURM,
    "suite.targets.slurm": SLURM,
    "suite.exclude": "suite.include",
}
"""A section of a suite -> the section with equal keys whose descriptions are used."""

_TEXTS: Mapping[str, str] = packaged("config/descriptions.yml")
DESCRIPTIONS = {path: text for path, text in _TEXTS.items() if path.partition(".")[0] != TOP}
"""The dotted path of a key of a run config -> the description that an editor shows."""


def run_config_schema(framework: Framework) -> _Schema:
    """Return the JSON Schema of a run config."""
    run = RunConfig.model_json_schema()
    schema = _mapping(run, "", run["$defs"], framework.defaults.run_config)
    suite_model = SuiteSection.model_json_schema()
    for name in KEYS:
        field = suite_model["properties"][name]["anyOf"][0]  # the second option is null
        schema["properties"][name] = _field(
            field, name, suite_model["$defs"], framework.defaults.suite[name]
        )
    params = schema["properties"]["config"]["properties"]  # the keys of the section `config`
    names = [task.name for task in framework.evaluations]
    program = framework.framework.name
    known_tasks = {
        "enum": names,
        "enumDescriptions": [task.description for task in framework.evaluations],
    }
    other_forms = {"type": "string", "pattern": rf"^({program}:.+|{program}\.({'|'.join(names)})$)"}
    params["type"]["anyOf"] = [known_tasks, other_forms, _VARIABLE, {"type": "null"}]
    extra: _Schema = params["params"]["properties"]["extra"]["properties"]
    tasks_by_key: dict[str, list[str]] = {}
    for task in framework.evaluations:
        for name, rule in task.helm.parameters.items():
            if rule.fixed is not None:
                continue
            values = f" ({', '.join(rule.allowed)})" if rule.allowed else ""
            # A parameter may have another name in `extra`, which is described in the same way.
            for key in filter(None, (name, rule.other_name)):
                tasks_by_key.setdefault(key, []).append(f"{task.name}{values}")
    for key, tasks in tasks_by_key.items():
        extra[key]["description"] += f" Tasks: {', '.join(tasks)}."
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: run config",
        "description": "A null means the default. ${NAME} and ${NAME:-default} are taken "
        "from the environment.",
        **schema,
    }


def _mapping(model: _Schema, path: str, models: Mapping[str, _Schema], defaults: Any) -> _Schema:
    """Return the schema of a section with all its keys.

    The keys are the fields of the model, their other names, and the foreign keys without an effect.

    Args:
        model: pydantic's schema of the section.
        path: the dotted path of the section in its file; empty for the complete file.
        models: the name of each model -> pydantic's schema.
        defaults: the defaults of the section.
    """
    properties: _Schema = {}
    required = model.get("required", []) if _is_in_suite(path) else []
    for name, field in model["properties"].items():
        default = defaults.get(name) if isinstance(defaults, Mapping) else None
        field_path = f"{path}.{name}".lstrip(".")
        properties[name] = _field(field, field_path, models, default, is_required=name in required)
        if name == "api_key":
            properties["api_key_name"] = {**properties[name], "description": "The same as api_key."}
    for name in foreign_keys.known_in(path):
        properties[name] = {"description": "Accepted, without an effect here."}
    requirement = {"required": required} if _is_in_suite(path) else {}
    return {
        "type": "object",
        "properties": properties,
        **requirement,
        "additionalProperties": False,
    }


def _is_in_suite(path: str) -> bool:
    return path.partition(".")[0] == TOP


def _field(
    field: _Schema,
    path: str,
    models: Mapping[str, _Schema],
    default: Any,
    *,
    is_required: bool = False,
) -> _Schema:
    """Return the schema of a key, with its description and its default.

    Args:
        field: pydantic's schema of the key's value.
        path: the dotted path of the key in its file.
        models: the name of each model -> pydantic's schema.
        default: the default of the key.
        is_required: True if the value must not be null.
    """
    parent, _, name = path.rpartition(".")
    text_path = f"{_DESCRIBED_AS.get(parent, parent)}.{name}".lstrip(".")
    description = {"description": _TEXTS[text_path]}
    if name in _SHARED and _is_in_suite(path):
        return {**description, **_reference(name)}
    if "$ref" in field:
        return {**description, **_option(field, path, models, default), "type": ["object", "null"]}
    options = []
    for option in field.get("anyOf", [field]):
        if option.get("type") != "null":
            options.append(_option(option, path, models))
    default_entry = {} if default in (None, {}, []) else {"default": default}
    # `${NAME}` needs no option of its own in two cases: it cannot replace a list or a mapping, and
    # the schema of a free text already accepts it.
    needs_no_variable = any(
        option["type"] in ("array", "object")
        or (option["type"] == "string" and "enum" not in option)
        for option in options
    )
    variable = [] if needs_no_variable else [_VARIABLE]
    null = [] if is_required else [{"type": "null"}]
    return {**description, **default_entry, "anyOf": [*options, *variable, *null]}


def _option(
    option: _Schema, path: str, models: Mapping[str, _Schema], defaults: Any = None
) -> _Schema:
    """Return the schema of one of the alternatives of a value, without references."""
    if "$ref" in option:
        return _mapping(models[option["$ref"].rpartition("/")[2]], path, models, defaults)
    keywords = {}
    for key, value in option.items():
        if key not in _IGNORED_KEYWORDS:
            keywords[KEYWORDS.get(key, key)] = value
    if keywords.get("items"):
        item_model = models.get(keywords["items"].get("$ref", "").rpartition("/")[2], {})
        requirement = {"required": item_model["required"]} if "required" in item_model else {}
        keywords["items"] = {**_option(keywords["items"], path, models), **requirement}
    return keywords


def suite_schema(framework: Framework) -> _Schema:
    """Return the JSON Schema of a suite."""
    model = SuiteSection.model_json_schema()
    run = run_config_schema(framework)["properties"]
    run_keys = {**run["config"]["properties"], **run["target"]["properties"]}
    shared = {name: run_keys[name] for name in _SHARED}
    section = _mapping(model, TOP, model["$defs"], framework.defaults.suite)
    properties = section["properties"]
    extra = shared["params"]["properties"]["extra"]["properties"]
    for name in PASSED_KEYS:
        properties[name] = {**extra[name], "description": properties[name]["description"]}
    properties["preset"]["anyOf"] = [{"enum": preset_names()}, _VARIABLE, {"type": "null"}]
    evaluations = properties["evaluations"]["anyOf"][0]
    # An entry may be the name of a task, instead of a mapping.
    evaluations["items"] = {"anyOf": [_reference("type"), evaluations["items"]]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: suite",
        "description": "A null means the default. ${NAME} and ${NAME:-default} are taken "
        "from the environment.",
        "type": "object",
        "properties": {TOP: {"description": "Evaluations x variants x targets.", **section}},
        "required": [TOP],
        "additionalProperties": False,
        "definitions": shared,
    }


def _reference(name: str) -> _Schema:
    """Return a reference to a schema that is stored once under `definitions`.

    The reference is wrapped in `allOf`, because draft 7 ignores all keywords next to a bare `$ref`.
    """
    return {"allOf": [{"$ref": f"#/definitions/{name}"}]}
