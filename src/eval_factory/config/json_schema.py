"""Makes the JSON Schemas of a run config and of a suite, with which editors check files.

The schemas are made from the pydantic models and the defaults of framework.yml. They cover keys,
types, ranges and names of tasks. Rules that depend on the task, on other files or on the
environment are only checked by `--dry_run`. In a run config no key is required, because a flag may
set the value. For the sake of simple editors, the schemas follow draft 7 of JSON Schema, and the
schema of a run config has no references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_factory.config import foreign_keys
from eval_factory.config.foreign_keys import EXECUTOR_KEYS
from eval_factory.config.model import RunConfig
from eval_factory.config.suite_layers import KEYS_PASSED_TO_CELLS, SUITE_KEY, preset_names
from eval_factory.config.suite_model import SuiteSection
from eval_factory.core.enums import SLURM
from eval_factory.core.plain_yaml import load_packaged
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

_TEXTS: Mapping[str, str] = load_packaged("config/descriptions.yml")
DESCRIPTIONS = {path: text for path, text in _TEXTS.items() if path.partition(".")[0] != SUITE_KEY}
"""The dotted path of a key of a run config -> the description that an editor shows."""


def run_config_schema(framework: Framework) -> _Schema:
    """Return the JSON Schema of a run config."""
    run = RunConfig.model_json_schema()
    schema = _mapping(run, path="", models=run["$defs"], defaults=framework.defaults.run_config)
    # A run config shares these keys with a suite, whose model has them.
    suite_model = SuiteSection.model_json_schema()
    for name in EXECUTOR_KEYS:
        field = suite_model["properties"][name]["anyOf"][0]  # The second alternative is null.
        schema["properties"][name] = _field(
            field, name, suite_model["$defs"], framework.defaults.suite[name]
        )
    config = schema["properties"]["config"]["properties"]
    config["type"]["anyOf"] = [*_task_names(framework), _VARIABLE, {"type": "null"}]
    extra = config["params"]["properties"]["extra"]["properties"]
    _add_task_lists(extra, framework)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: run config",
        "description": "A null means the default. ${NAME} and ${NAME:-default} are taken "
        "from the environment.",
        **schema,
    }


def _task_names(framework: Framework) -> list[_Schema]:
    """Return the schemas of the names of tasks, and of the other forms of `config.type`."""
    names = [task.name for task in framework.evaluations]
    known_tasks = {
        "enum": names,
        "enumDescriptions": [task.description for task in framework.evaluations],
    }
    program = framework.framework.name
    run_entry = f"{program}:.+"
    name_with_program = rf"{program}\.({'|'.join(names)})$"
    other_forms = {"type": "string", "pattern": f"^({run_entry}|{name_with_program})"}
    return [known_tasks, other_forms]


def _add_task_lists(extra: _Schema, framework: Framework) -> None:
    """Add to the description of each parameter the list of the tasks that have the parameter.

    Args:
        extra: the schemas of the keys of `extra`, which are changed.
        framework: all tasks.
    """
    tasks_by_key: dict[str, list[str]] = {}
    for task in framework.evaluations:
        for name, rule in task.helm.parameters.items():
            if rule.fixed is not None:
                continue
            values = f" ({', '.join(rule.allowed)})" if rule.allowed else ""
            for key in (name, rule.other_name):
                if key is not None:
                    tasks_by_key.setdefault(key, []).append(f"{task.name}{values}")
    for key, tasks in tasks_by_key.items():
        extra[key]["description"] += f" Tasks: {', '.join(tasks)}."


def _mapping(model: _Schema, path: str, models: Mapping[str, _Schema], defaults: Any) -> _Schema:
    """Return the schema of a section with all its keys.

    The keys are the fields of the model, their other names, and the foreign keys without an effect.

    Args:
        model: pydantic's schema of the section.
        path: the dotted path of the section in its file; empty for the complete file.
        models: a dict from the name of each model to pydantic's schema of the model.
        defaults: the defaults of the section; None if it has none.
    """
    properties: _Schema = {}
    # A flag may set any value of a run config, so only keys of a suite can be required.
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
    """Return True if a dotted path is in a suite's file; False for a path in a run config."""
    return path.partition(".")[0] == SUITE_KEY


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
        models: a dict from the name of each model to pydantic's schema of the model.
        default: the default of the key.
        is_required: True if the value must not be null.
    """
    parent, _, name = path.rpartition(".")
    described_path = f"{_DESCRIBED_AS.get(parent, parent)}.{name}".lstrip(".")
    description = {"description": _TEXTS[described_path]}
    if name in _SHARED and _is_in_suite(path):
        return {**description, **_reference(name)}
    if "$ref" in field:
        schema = _alternative(field, path, models, default)
        return {**description, **schema, "type": ["object", "null"]}
    alternatives = []
    for alternative in field.get("anyOf", [field]):
        if alternative.get("type") != "null":
            alternatives.append(_alternative(alternative, path, models))
    if not any(map(_needs_no_variable, alternatives)):
        alternatives.append(_VARIABLE)
    if not is_required:
        alternatives.append({"type": "null"})
    default_entry = {} if default in (None, {}, []) else {"default": default}
    return {**description, **default_entry, "anyOf": alternatives}


def _needs_no_variable(alternative: _Schema) -> bool:
    """Return True if the schema of `${NAME}` is not needed next to an alternative of a value.

    `${NAME}` cannot replace a list or a mapping, and the schema of a free text already accepts it.
    """
    is_free_text = alternative["type"] == "string" and "enum" not in alternative
    return is_free_text or alternative["type"] in ("array", "object")


def _alternative(
    schema: _Schema, path: str, models: Mapping[str, _Schema], defaults: Any = None
) -> _Schema:
    """Return the schema of one of the alternatives of a value, without references.

    Args:
        schema: pydantic's schema of the alternative.
        path: the dotted path of the value in its file.
        models: a dict from the name of each model to pydantic's schema of the model.
        defaults: the defaults of the keys, if the value is a mapping.
    """
    if "$ref" in schema:
        return _mapping(models[_referenced_model(schema)], path, models, defaults)
    keywords = {}
    # `KEYWORDS` has JSON Schema's names for limits, such as `maximum` for pydantic's `le`.
    for key, value in schema.items():
        if key not in _IGNORED_KEYWORDS:
            keywords[KEYWORDS.get(key, key)] = value
    items = keywords.get("items")
    if items:
        keywords["items"] = _alternative(items, path, models)
        # The entries of a list are complete mappings, so their required keys are required.
        model = models.get(_referenced_model(items), {})
        if "required" in model:
            keywords["items"]["required"] = model["required"]
    return keywords


def _referenced_model(schema: _Schema) -> str:
    """Return the name of the model to which a schema refers, or an empty text."""
    reference: str = schema.get("$ref", "")  # such as `#/$defs/Judge`
    return reference.rpartition("/")[2]


def suite_schema(framework: Framework) -> _Schema:
    """Return the JSON Schema of a suite."""
    model = SuiteSection.model_json_schema()
    run = run_config_schema(framework)["properties"]
    run_keys = {**run["config"]["properties"], **run["target"]["properties"]}
    shared = {name: run_keys[name] for name in _SHARED}
    section = _mapping(model, SUITE_KEY, model["$defs"], framework.defaults.suite)
    properties = section["properties"]
    extra = shared["params"]["properties"]["extra"]["properties"]
    # A cell is one run of a suite. These keys of the suite become keys of `extra` in each cell, so
    # they have the schemas of the keys of `extra`, with other descriptions.
    for name in KEYS_PASSED_TO_CELLS:
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
        "properties": {SUITE_KEY: {"description": "Evaluations x variants x targets.", **section}},
        "required": [SUITE_KEY],
        "additionalProperties": False,
        "definitions": shared,
    }


def _reference(name: str) -> _Schema:
    """Return a reference to a schema that is stored once under `definitions`.

    The reference is wrapped in `allOf`, because draft 7 ignores all keywords next to a bare `$ref`.
    """
    return {"allOf": [{"$ref": f"#/definitions/{name}"}]}
