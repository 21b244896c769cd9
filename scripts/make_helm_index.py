#!/usr/bin/env python3
"""Writes an index of src/eval_factory/tasks/: all run specs of the installed HELM.

helm_index.json is the index of crfm-helm. With the Python of medhelm's environment and
PYTHONPATH=src, the script writes medhelm_index.json. Usage: make_helm_index.py [FILE]

Run specs are found by importing HELM's modules of run specs. No run spec is called, because some
run specs download files. Everything else is read from the syntax tree, so that the same HELM gives
the same index whatever else is installed. A test makes the index again, and compares.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata, resources
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.helm_source import executed_code, packages_of, requirements, source_tree

from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches.lighter import replace_missing_torch
from eval_factory.tasks.run_specs import IMAGES, SOUNDS
from eval_factory.workflows.leaderboard.registry import load_catalogue, schema_text

TASKS = Path(__file__).resolve().parents[1] / "src" / "eval_factory" / "tasks"
PACKAGE = "helm.benchmark.run_specs."
SCENARIO_CLASS = re.compile(r"helm\.benchmark\.scenarios\.[\w.]+\.[A-Z]\w*\Z")
ANNOTATOR_CLASS = re.compile(r"helm\.benchmark\.annotation\.[\w.]+\.[A-Z]\w*\Z")
JUDGE_HELPERS = "helm.benchmark.annotation.model_as_judge"
JUDGE_HELPER = "score_with_reasoning"
"""The helper in `JUDGE_HELPERS` whose last of four arguments is the judge's deployment."""
MAX_DESCRIPTION = 160  # the maximum length of a description, in characters
UNKNOWN_METRIC = "unknown"  # HELM's word for a metric or split that it does not state
IMAGE_GENERATION = "heim_run_specs"
PERSPECTIVE_METRIC = "toxic_frac"
MEDIA = {
    "audio_run_specs": SOUNDS,
    "medical_multimodal_run_specs": IMAGES,
    "speech_disorder_audio_run_specs": SOUNDS,
    "vlm_run_specs": IMAGES,
}
"""A dict from a module to the medium that the prompts of all its run specs contain."""
VIDEO_RUN_SPECS = frozenset({"msr_vtt"})
CRITIQUE = re.compile(r"critique", re.IGNORECASE)
"""A part of the names of helpers that add critiques. HELM asks a model of its own, with pictures or
sounds, to critique the answers.
"""
EXAMPLES = "max_train_instances"
LANGUAGE_MODELING = "get_language_modeling_adapter_spec"
MULTIPLE_CHOICE = ("get_multiple_choice_adapter_spec", "get_multiple_choice_joint_adapter_spec")
LETTER_FOR = re.compile(r"\b[A-F]['\"]?\s+(?:for|if|means|=)\s")
"""Finds instructions that state the meaning of a letter, as in "Answer A for yes, B for no"."""

Described = dict[str, Any]  # the facts about a run spec or a scenario, by name


def make_index() -> str:
    """Return the text of the index, with a line for each run spec, sorted by name."""
    replace_missing_torch()
    from helm.benchmark import run_spec
    from helm.benchmark.run_expander import RUN_EXPANDERS

    run_spec.discover_run_spec_functions()
    schemas = main_names_of_schemas()
    functions = {
        name: function
        for name, function in sorted(run_spec._REGISTERED_RUN_SPEC_FUNCTIONS.items())
        if function.__module__.startswith(PACKAGE)
    }
    described = {name: describe(name, function, schemas) for name, function in functions.items()}
    lines = [f"{_json(name)}: {_json(facts)}" for name, facts in described.items()]
    packages = set(chain.from_iterable(facts.get("packages", []) for facts in described.values()))
    return (
        "{\n"
        f'"helm": {_json(metadata.version(installed_upstream().package))},\n'
        f'"expanders": {_json(sorted(RUN_EXPANDERS))},\n'
        f'"packages": {_json(requirements(packages))},\n'
        '"run_specs": {\n' + ",\n".join(lines) + "\n}}\n"
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def describe(name: str, function: Callable[..., Any], schemas: dict[str, list[str]]) -> Described:
    """Return the facts about a run spec; facts that are not known are left out.

    Args:
        name: the name of the run spec.
        function: the function of the run spec.
        schemas: the main metrics of each run group, from HELM's schemas.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - run specs are functions
    module = function.__module__.removeprefix(PACKAGE)
    scenarios = [read_class(path) for path in scenario_classes(tree, function)]
    metrics = _unique(chain.from_iterable(scenario["metrics"] for scenario in scenarios))
    splits = _unique(chain.from_iterable(scenario["splits"] for scenario in scenarios))
    folders = _unique(scenario["name"] for scenario in scenarios if scenario["name"])
    annotators = _unique(text for text in _texts(tree) if ANNOTATOR_CLASS.match(text))
    asks = _asks(name, module, tree, metrics)
    facts = {
        "module": module,
        "description": _description(name, scenarios, ast.get_docstring(tree)),
        "parameters": parameters(tree.args),
        "any_parameter": True if tree.args.kwarg else None,
        "main_metrics": metrics or schemas.get(name) or _by_group(tree, schemas),
        "main_split": splits[0] if len(splits) == 1 else None,
        "scenario": folders[0] if len(folders) == 1 else None,
        "scenario_class": scenarios[0]["class"] if len(scenarios) == 1 else None,
        "annotators": [path.rpartition(".")[2] for path in annotators],
        "judge_deployments": _unique(chain.from_iterable(map(judge_deployments, annotators))),
        "packages": packages_of(name, function),
        "executes": executed_code(function.__module__, inspect.unwrap(function).__name__),
        "asks": asks,
        "media": MEDIA.get(module) if asks != "image generation" else None,
        "zero_shot": is_zero_shot(tree),
        "choices": choices_of(tree),
    }
    return {key: value for key, value in facts.items() if value not in (None, [], {})}


def _asks(name: str, module: str, tree: ast.AST, metrics: list[str]) -> str | None:
    """Return the kind of model or service that a run spec asks; None: a model that writes text."""
    if module == IMAGE_GENERATION or any("image_generation" in used for used in _names(tree)):
        return "image generation"
    if name in VIDEO_RUN_SPECS:
        return "videos"
    if module in MEDIA and any(map(CRITIQUE.search, _names(tree))):
        return "critiques of answers"
    # The scenario has no other main metric.
    if module in MEDIA and metrics == [PERSPECTIVE_METRIC]:
        return "toxicity scores of the Perspective API"
    return _log_probabilities(tree)


def _log_probabilities(tree: ast.AST) -> str | None:
    adapters = {name for name in _names(tree) if name.endswith("_adapter_spec")}
    return "log probabilities" if adapters == {LANGUAGE_MODELING} else None


def _adapter_calls(tree: ast.AST) -> list[ast.Call]:
    """Return the calls that make the adapters which a run spec may have."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call for call in calls if ast.unparse(call.func).endswith(("_adapter_spec", "AdapterSpec"))
    ]


def is_zero_shot(tree: ast.AST) -> bool | None:
    """Return True if every adapter that the run spec may have shows no examples, else None.

    All trials of such a run spec would ask the same questions.
    """
    return True if {_examples(call) for call in _adapter_calls(tree)} == {0} else None


def choices_of(tree: ast.AST) -> str | None:
    """Return what the letters of the options stand for.

    Returns:
        `by meaning` if the instructions state the meaning of each letter; `by place` if a letter
        stands for the place of an option; None if an adapter that the run spec may have shows no
        options with letters.
    """
    adapters = _adapter_calls(tree)
    if not adapters or any(ast.unparse(call.func) not in MULTIPLE_CHOICE for call in adapters):
        return None
    return "by meaning" if any(map(LETTER_FOR.search, _texts(tree))) else "by place"


def _examples(call: ast.Call) -> int | None:
    """Return the number of examples that an adapter shows; None if the number is computed."""
    from helm.benchmark.adaptation import adapter_spec, common_adapter_specs

    argument = None
    for keyword in call.keywords:
        if keyword.arg == EXAMPLES:
            argument = keyword.value
    has_any_keywords = any(keyword.arg is None for keyword in call.keywords)  # `**kwargs`
    if argument is not None or has_any_keywords:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int):
            return argument.value
        return None
    name = ast.unparse(call.func)
    helper = getattr(common_adapter_specs, name, None) or getattr(adapter_spec, name, None)
    if helper is None:
        return None
    parameter = inspect.signature(helper).parameters.get(EXAMPLES)
    if parameter is not None:
        return parameter.default if isinstance(parameter.default, int) else None
    # The helper has no such parameter: read the adapters that the helper itself makes.
    numbers = set(map(_examples, _adapter_calls(ast.parse(inspect.getsource(helper)))))
    return numbers.pop() if len(numbers) == 1 else None


def parameters(arguments: ast.arguments) -> dict[str, dict[str, Any]]:
    """Return the `type` and the `default` of each parameter, by the parameter's name.

    A parameter without `default` is required.
    """
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [
        *zip(positional, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    by_name: dict[str, dict[str, Any]] = {}
    for argument, default in pairs:
        entry: dict[str, Any] = {}
        if argument.annotation is not None:
            entry["type"] = ast.unparse(argument.annotation)
        if default is not None:
            entry["default"] = _constant(default)
        by_name[argument.arg] = entry
    return by_name


def _constant(node: ast.expr) -> Any:
    """Return the value of a default: of a literal, or of HELM's constants (`ADAPT_...`)."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        from helm.benchmark.adaptation import adapter_spec

        return getattr(adapter_spec, ast.unparse(node), ast.unparse(node))


def scenario_classes(tree: ast.FunctionDef, function: Callable[..., Any]) -> list[str]:
    """Return the paths of the scenario classes that a run spec names.

    If the run spec names none, return those that helpers in its module name.
    """
    classes = _unique(text for text in _texts(tree) if SCENARIO_CLASS.match(text))
    if classes:
        return classes
    helpers = [inspect.unwrap(function).__globals__.get(name) for name in sorted(_names(tree))]
    for helper in helpers:
        if inspect.isfunction(helper) and helper.__name__.endswith(("_scenario_spec", "_spec")):
            body = ast.parse(textwrap.dedent(inspect.getsource(helper)))
            classes += [text for text in _texts(body) if SCENARIO_CLASS.match(text)]
    return _unique(classes)


@cache
def read_class(path: str) -> Described:
    """Return the facts that a scenario's class states about itself, or inherits.

    The facts are: the name of the scenario's folder, the description, the main metrics and splits.
    """
    module, _, name = path.rpartition(".")
    stated: Described = {
        "class": path,
        "name": None,
        "description": None,
        "metrics": [],
        "splits": [],
        "metadata_descriptions": [],
    }
    tree = source_tree(module)
    if tree is None:
        return stated
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    node = classes.get(name)
    if node is None:
        return stated
    for key, value in _constants(node):
        if key in ("name", "description"):
            stated[key] = stated[key] or value
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ScenarioMetadata":
            _add_metadata(stated, {keyword.arg: keyword.value for keyword in call.keywords})
    # Several descriptions in the metadata describe parts of the scenario. Then the description of
    # the class is preferred.
    descriptions = stated["metadata_descriptions"]
    if len(descriptions) == 1 or not stated["description"]:
        stated["description"] = next(iter(descriptions), stated["description"])
    stated["description"] = stated["description"] or ast.get_docstring(node)
    for base in node.bases:
        inherited = _base(base, module, classes, tree)
        if inherited is not None:
            stated = {key: stated.get(key) or inherited.get(key) for key in stated}
    return {**stated, "class": path}


def _constants(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the attributes to which the class's body assigns a constant."""
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(
            statement.value, ast.Constant
        ):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (
                (target.id, statement.value.value)
                for target in targets
                if isinstance(target, ast.Name)
            )


def _add_metadata(stated: Described, arguments: dict[str | None, ast.expr]) -> None:
    """Add the arguments of a `ScenarioMetadata` to the facts of a scenario's class."""
    for argument, key in (("main_metric", "metrics"), ("main_split", "splits")):
        value = arguments.get(argument)
        if isinstance(value, ast.Constant) and value.value not in (UNKNOWN_METRIC, *stated[key]):
            stated[key] = [*stated[key], value.value]
    description = arguments.get("description")
    if isinstance(description, ast.Constant) and description.value:
        descriptions = stated["metadata_descriptions"]
        stated["metadata_descriptions"] = [*descriptions, description.value]


def _base(
    base: ast.expr, module: str, classes: dict[str, ast.ClassDef], tree: ast.Module
) -> Described | None:
    """Return the facts of a base class; None if the module neither defines nor imports it."""
    name = ast.unparse(base)
    if name in classes:
        return read_class(f"{module}.{name}")
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and any(
            alias.name == name for alias in statement.names
        ):
            return read_class(f"{statement.module}.{name}")
    return None


def judge_deployments(path: str) -> list[str]:
    """Return the deployments that an annotator asks.

    They are named in the annotator's module, or in those of HELM's helpers for judges that the
    module uses.
    """
    tree = source_tree(path.rpartition(".")[0])
    if tree is None or "AutoClient" not in _names(tree):
        return []
    helpers = source_tree(JUDGE_HELPERS)
    bodies: list[ast.AST] = [tree]
    bodies += [
        node
        for node in (helpers.body if helpers else [])
        if getattr(node, "name", None) in _names(tree)
    ]
    nodes = chain.from_iterable(map(ast.walk, bodies))
    return _unique(chain.from_iterable(map(_deployments_in, nodes)))


def _deployments_in(node: ast.AST) -> list[str]:
    """Return the deployments that a node of a syntax tree names.

    The forms are `model_deployment="..."`, `score_with_reasoning(client, prompt, "model",
    "deployment")`, and a class's `_ANNOTATOR_MODEL = "..."`.
    """
    values: list[ast.expr] = []
    if isinstance(node, ast.keyword) and node.arg in (
        "model_deployment",
        "annotator_model_deployment",
    ):
        values = [node.value]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == JUDGE_HELPER:
        values = node.args[3:4]
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(
        ("_MODEL", "_MODEL_DEPLOYMENT")
    ):
        values = [node.value]
    return [
        value.value
        for value in values
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    ]


def main_names_of_schemas() -> dict[str, list[str]]:
    """Return the main metric of each run group for which all schemas state the same metric.

    The schemas are HELM's files `schema_*.yaml`. A list with the main metric belongs to each group.
    """
    names_by_group: dict[str, list[str]] = {}
    folder = resources.files("helm.benchmark") / "static"
    files = [
        file
        for file in folder.iterdir()
        if file.name.startswith("schema_") and file.name.endswith(".yaml")
    ]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in sorted(files, key=lambda file: file.name):
        text = file.read_text("utf-8")
        for row in load_catalogue().leaderboards:
            text = schema_text(row, Path(str(file))) if row.schema_file == file.name else text
        for group in yaml.load(text, Loader=loader).get("run_groups", []):  # noqa: S506 - a safe loader
            name = (group.get("environment") or {}).get("main_name")
            if name and name != UNKNOWN_METRIC:
                names_by_group.setdefault(group["name"], []).append(name)
    main_names = {}
    for group_name, names in names_by_group.items():
        if len(set(names)) == 1:
            main_names[group_name] = _unique(names)
    return main_names


def _by_group(tree: ast.FunctionDef, schemas: dict[str, list[str]]) -> list[str]:
    """Return the main metrics of the first group in `RunSpec(groups=[...])` that a schema knows."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "RunSpec":
            for keyword in call.keywords:
                if keyword.arg == "groups":
                    for text in _texts(keyword.value):
                        if text in schemas:
                            return schemas[text]
    return []


def _description(name: str, scenarios: list[Described], docstring: str | None) -> str:
    """Return the first sentence about the scenario or the run spec, else the run spec's name."""
    texts = [scenario["description"] for scenario in scenarios[:1]]
    for text in (*texts, docstring):
        plain = _first_sentence(text or "")
        if plain and not plain.startswith("EXPERIMENTAL"):
            return plain
    return name.replace("_", " ")


def _first_sentence(text: str) -> str:
    """Return a text's first sentence, without links and line breaks."""
    paragraph = text.strip().split("\n\n")[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    sentence = re.split(r"(?<=[a-z0-9)\"'])\. (?=[A-Z])", plain)[0].rstrip(". ")
    return textwrap.shorten(sentence, MAX_DESCRIPTION, placeholder=" ...")


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


if __name__ == "__main__":
    path = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else TASKS / f"{installed_upstream().name}_index.json"
    )
    path.write_text(make_index(), encoding="utf-8")
    print(f"{path}: {len(json.loads(path.read_text('utf-8'))['run_specs'])} run specs")
