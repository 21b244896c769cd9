"""The JSON Schema of a run config, for editors: made of the models, with framework.yml's defaults.

It knows the shape: keys, types, ranges, names of tasks. What depends on the task, on other files or on the environment
is said by `eval-factory run_eval --dry_run`. Nothing is required, for any value may be given by a flag. Draft 7,
without references: what editors understand.

The JSON Schema of a suite, for editors: made of the models, with framework.yml's defaults. Draft 7.

It knows the shape, and the parameters and endpoints of run configs. That tasks and cells are there, and what several
files say together, `eval-factory run_suite --dry_run` says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eval_factory.config import foreign_keys
from eval_factory.config.model import DEMO_URLS, RunConfig, docstrings_of
from eval_factory.config.run_executor import EXECUTOR, KEYS, SLURM
from eval_factory.config.suite_layers import HANDED, TOP, preset_names
from eval_factory.config.suite_model import NAME, OF_THE_SUITE, RunExecutorSection, SlurmSection, SuiteSection
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.tasks.framework import Framework

Schema = dict[str, Any]

_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""What pydantic calls limits behind a validator -> what JSON Schema calls them."""
_MEANT_FOR_OTHERS = ("$defs", "title", "required", "default", "description")
"""What is taken from no model: references are resolved, and defaults and descriptions come from here."""

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""`${NAME}` may stand for a value of any type."""
_NAME_OF_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$|\$\{"
_URL = rf"^https?://[^/?#@\s]+([/?#]|$)|^({'|'.join(map(re.escape, DEMO_URLS))})$|\$\{{"
_PATTERNS = {"url": _URL, "oauth": r"^[a-z][a-z0-9_-]{0,40}$|\$\{"} | dict.fromkeys(
    ("api_key", "gpt_judge_api_key", "llama_judge_api_key", "claude_judge_api_key"), _NAME_OF_VARIABLE
)
_PATTERN_OF_JUDGES_NAME = rf"^(?!{MODEL_ROLE}$)[a-z][a-z0-9_-]{{0,40}}$|\$\{{"

_ENDPOINT, _EXTRA, _JUDGE = "target.api_endpoint", "config.params.extra", "config.params.extra.judges"
_NAME_OF_A_KEY = "NAME of the environment variable that"
_OF_A_DEFAULT_JUDGE = f"{_NAME_OF_A_KEY} holds the default judge's key; null: send it none."
_ADAPTER, _PRICE = f"{_ENDPOINT}.adapter_config", f"{_EXTRA}.prices"
DESCRIPTIONS = {
    "config": "What is evaluated and how.",
    "config.type": "The task ('eval-factory ls' lists them), or helm:RUN_ENTRY for any of HELM's. Flag: --eval_type.",
    "config.output_dir": "Folder for the results; made if it is not there. Flag: --output_dir.",
    "config.params": "How many instances, how they are asked.",
    "config.params.limit_samples": "Instances to ask; all if not given.",
    "config.params.parallelism": "Requests at the same time.",
    "config.params.max_new_tokens": "Tokens that an answer may have; the benchmark's if not given.",
    "config.params.max_retries": "How often a request that failed is sent again.",
    "config.params.request_timeout": "Seconds for one attempt.",
    "config.params.temperature": "The benchmark's if not given.",
    "config.params.top_p": "1 if not given.",
    _EXTRA: "What only some tasks have, data, judges, and what makes a score not reportable.",
    f"{_EXTRA}.data_path": "Your own copy of the data: a file or a folder.",
    f"{_EXTRA}.benchmark": "The YAML file of a custom benchmark, with type custom.",
    f"{_EXTRA}.criteria_per_request": "Criteria of a rubric in one request to a judge; each apart if not given.",
    f"{_EXTRA}.shuffle_choices": "In how many orders the choices of each question are asked; as they are if not given.",
    f"{_EXTRA}.data_dir": "The folder of a data bundle ('eval-factory data pull').",
    f"{_EXTRA}.offline": "true: only the hosts of endpoints are contacted.",
    f"{_EXTRA}.allow_code_execution": "true: benchmarks that execute what the model answers may run.",
    f"{_EXTRA}.num_output_tokens": "The same as config.params.max_new_tokens.",
    f"{_EXTRA}.max_length": "Prompts are cut to so many tokens; they go out whole if not given.",
    f"{_EXTRA}.subject": "A part of the benchmark.",
    f"{_EXTRA}.condition": "A part of the benchmark.",
    f"{_EXTRA}.subset": "A part of the benchmark.",
    f"{_EXTRA}.language": "The language of the questions.",
    f"{_EXTRA}.category": "A part of the benchmark.",
    f"{_EXTRA}.version": "The version of the benchmark's data.",
    f"{_EXTRA}.num_train_trials": "How often examples are drawn anew and everything is asked again.",
    f"{_EXTRA}.gpt_judge_api_key": _OF_A_DEFAULT_JUDGE,
    f"{_EXTRA}.llama_judge_api_key": _OF_A_DEFAULT_JUDGE,
    f"{_EXTRA}.claude_judge_api_key": _OF_A_DEFAULT_JUDGE,
    _JUDGE: "A jury of your own; the task's if not given.",
    f"{_JUDGE}.name": "What the judge is called in the result.",
    f"{_JUDGE}.model_id": "The judge's id at its endpoint.",
    f"{_JUDGE}.url": "The judge's endpoint, or a list of servers of the same judge; the target's if not given.",
    f"{_JUDGE}.api_key": f"{_NAME_OF_A_KEY} holds the judge's key; null: send it none.",
    f"{_JUDGE}.oauth": "A service whose tokens the judge is asked with, instead of a key.",
    f"{_JUDGE}.use_nvcf": "true for the URL of an NVIDIA Cloud Function.",
    f"{_JUDGE}.temperature": "What HELM prescribes for judges if not given.",
    f"{_JUDGE}.top_p": "What HELM prescribes for judges if not given.",
    f"{_JUDGE}.max_tokens": "Tokens that a judgement may have; what HELM prescribes if not given.",
    f"{_JUDGE}.parallelism": "Requests at the same time; the target's if not given.",
    f"{_JUDGE}.requests_per_minute": "No limit if not given.",
    f"{_JUDGE}.tokens_per_minute": "No limit if not given.",
    f"{_EXTRA}.stop_after_failures": "Where so many first requests to an endpoint all fail, the run stops; 0: never.",
    f"{_EXTRA}.on_failure": "An instance without an answer is left out of the score (exclude) or counts as 0 (zero).",
    f"{_EXTRA}.min_coverage": "The share of the instances that must have a score, or nothing is reportable.",
    f"{_EXTRA}.max_judge_failures": "The share of answers that a judge may say nothing usable of.",
    f"{_EXTRA}.max_model_mismatch": "The share of answers that may state another model than was asked for.",
    f"{_EXTRA}.max_unreadable": "The share of answers that may say nothing that can be scored.",
    _PRICE: "What models cost, judges among them; what is known of the endpoint's provider if not given.",
    f"{_PRICE}.model_id": "The model's id, as the target or a judge has it.",
    f"{_PRICE}.input_per_million": "US dollars for a million tokens of prompts.",
    f"{_PRICE}.output_per_million": "US dollars for a million tokens of answers.",
    f"{_PRICE}.cached_input_per_million": "Of prompts from the endpoint's own cache; the same as others if not given.",
    f"{_EXTRA}.max_cost": "US dollars, all runs in the folder and judges among them; there the run stops.",
    f"{_EXTRA}.max_requests": "Requests, retries and judges' among them; there the run stops.",
    f"{_EXTRA}.max_tokens_total": "Tokens of prompts and answers, judges' among them; there the run stops.",
    f"{_EXTRA}.max_wall_s": "Seconds of one invocation, after which nothing more is asked.",
    "target": "The model that is evaluated.",
    _ENDPOINT: "An OpenAI-compatible endpoint.",
    f"{_ENDPOINT}.url": "Base URL, or with /chat/completions; a list: several servers of the same model;"
    " demo://baseline is embedded. Flag: --model_url.",
    f"{_ENDPOINT}.model_id": "The model's id at the endpoint. Flag: --model_id.",
    f"{_ENDPOINT}.type": "What kind of requests the endpoint takes.",
    f"{_ENDPOINT}.api_key": f"{_NAME_OF_A_KEY} holds the key, never the key; null: send none. Flag: --api_key_name.",
    f"{_ENDPOINT}.oauth": "A service's name (openai): tokens for client credentials instead of a key.",
    f"{_ENDPOINT}.requests_per_minute": "No limit if not given.",
    f"{_ENDPOINT}.tokens_per_minute": "No limit if not given.",
    _ADAPTER: "How requests are changed on their way, and what of answers is not scored.",
    f"{_ADAPTER}.use_nvcf": "true for the URL of an NVIDIA Cloud Function.",
    f"{_ADAPTER}.params_to_add": "Fields of every request, for instance reasoning_effort: low.",
    f"{_ADAPTER}.params_to_remove": "Fields that are left out of every request.",
    f"{_ADAPTER}.params_to_rename": "Fields of every request -> what they are called instead.",
    f"{_ADAPTER}.custom_system_prompt": "The system prompt of every request.",
    f"{_ADAPTER}.start_reasoning_token": "What begins the thinking in an answer, which is not scored.",
    f"{_ADAPTER}.end_reasoning_token": "What ends it.",
}
"""Dotted path of a value -> what an editor shows of it."""
DESCRIPTIONS |= docstrings_of(RunExecutorSection)
DESCRIPTIONS |= {f"{SLURM}.{name}": text for name, text in docstrings_of(SlurmSection).items()}


def run_config_schema(framework: Framework) -> Schema:
    """What a run config may hold."""
    whole = RunConfig.model_json_schema()
    defaults = {"config": framework.defaults.config, "target": framework.defaults.target}
    schema = _mapping(whole, "", whole["$defs"], defaults)
    schema["properties"] |= _executor(framework)
    params = schema["properties"]["config"]["properties"]
    params["type"] = {**params["type"], **_types(framework)}
    extra: Schema = params["params"]["properties"]["extra"]["properties"]
    for name, about in _of_tasks(framework).items():
        extra[name]["description"] += f" {about}"
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "eval-factory: run config",
        "description": "A null means the default. ${NAME} and ${NAME:-default} are taken from the environment.",
        **schema,
    }


def _executor(framework: Framework) -> Schema:
    whole = RunExecutorSection.model_json_schema()
    defaults = {name: framework.defaults.suite[name] for name in (EXECUTOR, SLURM)}
    return {name: _field(whole["properties"][name], name, whole["$defs"], defaults[name]) for name in KEYS}


def _types(framework: Framework) -> Schema:
    """Names of tasks, `helm.` before them or not, and run entries."""
    names = [task.name for task in framework.evaluations]
    name = framework.framework.name
    known = {"enum": names, "enumDescriptions": [task.description for task in framework.evaluations]}
    also = "|".join([f"{name}:.+", rf"{name}\.({'|'.join(names)})$"])
    return {"anyOf": [known, {"type": "string", "pattern": f"^({also})"}, _VARIABLE, {"type": "null"}]}


def _of_tasks(framework: Framework) -> dict[str, str]:
    """A parameter of scenarios -> the tasks that have it, with what it may be."""
    found: dict[str, list[str]] = {}
    for task in framework.evaluations:
        for name, rule in task.helm.parameters.items():
            if rule.fixed is None:
                values = f" ({', '.join(rule.allowed)})" if rule.allowed else ""
                found.setdefault(name, []).append(f"{task.name}{values}")
                if rule.other_name:
                    found.setdefault(rule.other_name, []).append(f"{task.name}{values}")
    return {name: f"Tasks: {', '.join(tasks)}." for name, tasks in found.items()}


def _mapping(model: Schema, path: str, models: Mapping[str, Schema], defaults: Any) -> Schema:
    """A model's schema with its fields, their other names and the keys that have no effect."""
    properties: Schema = {}
    for name, field in model["properties"].items():
        where = f"{path}.{name}" if path else name
        default = defaults.get(name) if isinstance(defaults, Mapping) else None
        properties[name] = _field(field, where, models, default)
        if name == "api_key":
            properties["api_key_name"] = {**properties[name], "description": "The same as api_key."}
    unused = {name: {"description": "Accepted, without an effect here."} for name in foreign_keys.known_in(path)}
    return {"type": "object", "properties": {**properties, **unused}, "additionalProperties": False}


def _field(field: Schema, path: str, models: Mapping[str, Schema], default: Any) -> Schema:
    described = {"description": DESCRIPTIONS[path]}
    if "$ref" in field:
        inner = _mapping(models[field["$ref"].rpartition("/")[2]], path, models, default)
        return {**described, **inner, "type": ["object", "null"]}
    options = [_option(option, path, models) for option in field.get("anyOf", [field]) if option.get("type") != "null"]
    plain = {} if default in (None, {}, []) else {"default": default}
    variable = [] if any(map(_holds_no_variable, options)) else [_VARIABLE]
    return {**described, **plain, "anyOf": [*options, *variable, {"type": "null"}]}


def _option(option: Schema, path: str, models: Mapping[str, Schema]) -> Schema:
    name = path.rpartition(".")[2]
    found = {_KEYWORDS.get(key, key): value for key, value in option.items() if key not in _MEANT_FOR_OTHERS}
    if found["type"] == "string" and (pattern := _pattern(name, path)):
        found["pattern"] = pattern
    if name == "url" and found["type"] == "array":
        found |= {"items": {"type": "string", "pattern": _pattern(name, path)}, "minItems": 1}
    if "$ref" in found.get("items", {}):
        model = models[found["items"]["$ref"].rpartition("/")[2]]
        found["items"] = {**_mapping(model, path, models, {}), "required": model["required"]}
    return found


def _holds_no_variable(option: Schema) -> bool:
    """A text may be one anyway; a list or a mapping is none."""
    return option["type"] in ("array", "object") or (option["type"] == "string" and "enum" not in option)


def _pattern(name: str, path: str) -> str | None:
    return _PATTERN_OF_JUDGES_NAME if path == f"{_JUDGE}.name" else _PATTERNS.get(name)


"""`${NAME}` may stand for a value of any type."""
_LEFT_OUT = ("$defs", "title", "default", "description")
_SHARED = ("params", "api_endpoint", "type")
_END = r"\Z"


def suite_schema(framework: Framework) -> Schema:
    """What a suite's file may hold."""
    whole = SuiteSection.model_json_schema()
    run = run_config_schema(framework)["properties"]
    shared = {
        "params": run["config"]["properties"]["params"],
        "api_endpoint": run["target"]["properties"]["api_endpoint"],
        "type": run["config"]["properties"]["type"],
    }
    section = _mapping_of_suite_schema(whole, whole["$defs"], framework.defaults.suite)
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


def _mapping_of_suite_schema(model: Schema, models: Mapping[str, Schema], defaults: Mapping[str, Any]) -> Schema:
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
    options = [_option_of_suite_schema(option, models) for option in given]
    if name == "name":
        options[0]["pattern"] = rf"{NAME.pattern.removesuffix(_END)}$|\$\{{"
    variable = [] if options[0]["type"] in ("array", "object", "string") and "enum" not in options[0] else [_VARIABLE]
    return [*options, *variable, *([] if needed else [{"type": "null"}])]


def _option_of_suite_schema(option: Schema, models: Mapping[str, Schema]) -> Schema:
    if "$ref" in option:
        return _mapping_of_suite_schema(models[option["$ref"].rpartition("/")[2]], models, {})
    found = {_KEYWORDS.get(key, key): value for key, value in option.items() if key not in _LEFT_OUT}
    if found.get("items"):
        found["items"] = _option_of_suite_schema(found["items"], models)
    return found
