"""Facts about HELM that we know without importing it: metrics' directions, juries' run specs, prompts."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from importlib import resources
from pathlib import Path

from helm.benchmark import annotation, run_spec
from helm.benchmark.annotation.model_as_judge import LLMAsJuryAnnotator

from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.helm import names
from eval_factory.helm.criteria import prompt_of_jury
from eval_factory.helm.metric_facts import _FACTS
from eval_factory.tasks.conversations import CONVERSATION_RUN_SPEC
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import load_index

OF_NO_DIRECTION = {"ehr_sql_total_predicted_answerable", "ehr_sql_total_ground_truth_answerable"}
"""Counts of questions; schema_medhelm.yaml holds more of them to be better."""


def test_the_directions_of_metrics() -> None:
    folder = resources.files("helm.benchmark") / "static"
    files = [
        file
        for file in folder.iterdir()
        if file.name.startswith("schema_") and file.name.endswith(".yaml")
    ]
    stated: dict[str, set[bool]] = {}
    for file in files:
        for metric in parse_own_text(file.read_text("utf-8")).get("metrics", []):
            if metric.get("lower_is_better") is not None:
                stated.setdefault(metric["name"], set()).add(not metric["lower_is_better"])
    assert len(stated) > 100
    compared = _FACTS.keys() & stated.keys() - OF_NO_DIRECTION
    assert {
        "exact_match",
        "rouge_l",
        "wer_score",
        "mimic_rrs_accuracy",
        "ehr_sql_execution_accuracy",
    } <= compared
    assert {name: {_FACTS[name].higher_is_better} for name in compared} == {
        name: stated[name] for name in compared
    }


def test_the_run_specs_with_a_jury() -> None:
    run_spec.discover_run_spec_functions()
    specs = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
    helms = {
        name: function
        for name, function in specs.items()
        if function.__module__.startswith("helm.")
    }
    taking = {
        name
        for name, function in helms.items()
        if "jury_config_path" in inspect.signature(function).parameters
    }
    assert (
        taking | {"medhelm_configurable_benchmark", CONVERSATION_RUN_SPEC} == names.JURY_RUN_SPECS
    )


def test_each_jurys_prompt_is_its_annotators() -> None:
    tasks = [task.helm for task in load_framework().evaluations if task.helm.judges]
    specs = load_index().run_specs
    wanted: set[str] = set()
    for helm in tasks:
        if helm.run_spec in specs:
            wanted.update(specs[helm.run_spec].annotators)
    for module in pkgutil.iter_modules(annotation.__path__):
        if module.name.endswith("_annotator") and _holds(module.name, wanted):
            importlib.import_module(f"{annotation.__name__}.{module.name}")
    juries = {one.__name__: one for one in LLMAsJuryAnnotator.__subclasses__()}
    assert len(wanted) > 10
    for name in sorted(wanted):
        assert prompt_of_jury([name]) == juries[name](None, {})._prompt_template


def _holds(module: str, wanted: set[str]) -> bool:
    """Modules of other annotators import packages that need not be there."""
    (folder,) = annotation.__path__
    source = Path(folder, f"{module}.py").read_text("utf-8")
    return any(f"class {name}(" in source for name in wanted)
