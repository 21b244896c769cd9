"""The facts of a run that the texts for papers state: the variables of the templates in papers.yml.

A fact that the result does not have is None or empty; the sentence about it is then left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, Provenance, Score, TaskResult
from eval_factory.core.signs import SIGNS
from eval_factory.report import result_sentences
from eval_factory.report.paper_templates import paper_texts, settings_text
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.tasks.framework import Task, load_framework

OWN_FILE_PARAMS = ("data_path", "benchmark")  # the keys of `params.extra` for the user's own files
DATA_PART_PARAMS = ("version", "subset", "language", "category", "subject", "condition")
"""The keys of `params.extra` that choose a part or an edition of a benchmark's data."""


def facts_of_run(
    result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables of the templates, without the `facts` that papers.yml defines.

    The four functions that are called here return further variables; their docstrings explain them.
    """
    validity = result.validity
    params: Mapping[str, Any] = config.get("params") or {}
    # Templates test `extra.benchmark is none`. Without the key, the test would be false.
    extra = {
        "benchmark": None,
        "on_failure": None,
        "answer_style": None,
        **(params.get("extra") or {}),
    }
    endpoint = target.get("api_endpoint") or {}
    odd_answers = []  # such as `3 were cut off`
    for sign in SIGNS.values():
        if sign.in_methods and sign.count is not None:
            count = getattr(validity.instances, sign.count)
            if count:
                odd_answers.append(f"{count:,} {sign.in_methods}")
    return {
        **_task_facts(result, extra),
        **_model_facts(result, endpoint),
        **_judge_facts(result),
        **_software_facts(result.provenance),
        "result": result,
        "params": params,
        "extra": extra,
        "endpoint": endpoint,
        # the name of an interval method -> its description and its sources
        "intervals": paper_texts()["intervals"],
        "splits": [f"split {one_line(name)}: {count:,}" for name, count in validity.splits.items()],
        "nature": list(_score_traits(result.scores.get(result.main_metric))),
        "deviations": _deviations(result),
        # the names of the scores without a known defect of HELM's metric
        "corrected": [one_line(name) for name in result.scores if name.endswith(CORRECTED_SUFFIX)],
        "groups_tested": _are_groups_tested(result),
        "odd_answers": odd_answers,
    }


def _deviations(result: TaskResult) -> list[str] | None:
    """Return a text for each setting that differs from the leaderboard's.

    Returns None if the leaderboard has no settings for this task.
    """
    comparability = result.comparability
    if comparability is None or comparability.medhelm_settings is None:
        return None
    deviations = []
    for deviation in comparability.deviations:
        deviations.append(one_line(deviation.in_words(there="leaderboard:")))
    return deviations


def _are_groups_tested(result: TaskResult) -> bool:
    """Return True if a score of a group has a p-value."""
    for by_value in result.groups.values():
        for scores in by_value.values():
            if any(score.stats.p_value is not None for score in scores.values()):
                return True
    return False


def _software_facts(record: Provenance) -> dict[str, Any]:
    """Return the programs and packages of a run with their versions, and its machine.

    Each of the three facts is a list of texts, such as `Python 3.12.3` or `x86_64`.
    """
    versions = {
        "eval-factory": record.eval_factory,
        record.helm_package: record.helm,
        "Python": record.python,
    }
    programs = []
    for name, version in versions.items():
        if version is not None:
            programs.append(f"{name} {one_line(version)}")
    packages = []
    for name, version in record.packages.items():
        if name != record.helm_package:
            packages.append(f"{one_line(name)} {one_line(version)}")
    machine = []
    for name in ("distribution", "machine"):
        if record.platform.get(name):
            machine.append(one_line(record.platform[name]))
    return {"programs": programs, "packages": packages, "machine": machine}


def _task_facts(result: TaskResult, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the task and its data.

    `parts` are the settings that chose a part of the data, such as `subset abstracts`. `total` is
    the number of instances in the complete benchmark; it is None if the run used the user's own
    files or a part of the data. `task` and `total` are None if eval-factory does not have the task.
    """
    task: Task | None = load_framework().task(result.task)
    has_own_files = any(extra.get(name) is not None for name in OWN_FILE_PARAMS)
    parts = []
    for name in DATA_PART_PARAMS:
        if extra.get(name) is not None:
            parts.append(f"{name} {one_line(str(extra[name]))}")
    is_zero_shot = False
    total = None
    if task is not None:
        is_zero_shot = task.helm.is_zero_shot
        if not (has_own_files or parts):
            total = task.about.instances
    return {
        "task": task,
        "has_own_files": has_own_files,
        "parts": parts,
        "is_zero_shot": is_zero_shot,
        "total": total,
    }


_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]", "::1")
_DEMO_TARGET = "demo baseline"  # `target` of a run that asked the demo endpoint


def _model_facts(result: TaskResult, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the evaluated model and its endpoint.

    `model` is the record of the endpoint; None if it is not known. `host` is empty if the endpoint
    is on this machine. `stated_models` are texts such as `gpt-4o-2024-08-06 (40 answers)`.
    """
    record = result.provenance
    model = record.endpoints.get(MODEL_ROLE)
    is_demo = record.target == _DEMO_TARGET
    host = ""
    stated_models = []
    if model is not None:
        # A user may have named a real model like the demo target.
        is_demo = is_demo and model.model != _DEMO_TARGET
        host = one_line(model.host)
        for name, count in model.stated_models.items():
            stated_models.append(f"{one_line(name)} ({counted(count, 'answer')})")
    without_port = host.rpartition(":")[0]
    if host in _THIS_MACHINE or without_port in _THIS_MACHINE:
        host = ""
    endpoint_type = ""
    if endpoint.get("type") is not None:
        endpoint_type = one_line(str(endpoint["type"]))
    return {
        "model": model,
        "endpoint_type": endpoint_type,
        "host": host,
        "is_demo": is_demo,
        "stated_models": stated_models,
    }


def _score_traits(score: Score | None) -> Iterator[str]:
    """Yield the unit, scale and direction of a score, as far as they are known."""
    if score is None:
        return
    if score.unit is not None:
        yield one_line(score.unit)
    if score.scale is not None:
        yield f"from {score.scale[0]:g} to {score.scale[1]:g}"
    if score.higher_is_better is True:
        yield "higher is better"
    elif score.higher_is_better is False:
        yield "lower is better"


def _judge_facts(result: TaskResult) -> dict[str, Any]:
    """Return the facts about the judges, their prompts and their agreement.

    `judges` maps a judge's role to the record of its endpoint. `judges_named` is one text about all
    judges. `judge_prompts` are the hashes of their prompts, and `kappas` are texts such as
    `gpt/llama 0.612`.
    """
    judges = {}
    prompt_hashes: set[str] = set()
    for role, endpoint in result.provenance.endpoints.items():
        if role != MODEL_ROLE:
            judges[role] = endpoint
            prompt_hashes.update(map(one_line, endpoint.prompt_sha256 or ()))
    kappas = []
    if result.validity.jury is not None:
        for pair, kappa in result.validity.jury.weighted_kappa.items():
            if kappa is not None:
                kappas.append(f"{one_line(pair)} {formats.coefficient(kappa)}")
    judge_texts = [_judge_text(result, role, judges.get(role)) for role in result.validity.judges]
    return {
        "judges": judges,
        "judges_named": "; ".join(judge_texts),
        "judge_prompts": sorted(prompt_hashes),
        "kappas": kappas,
    }


def _judge_text(result: TaskResult, role: str, endpoint: AskedEndpoint | None) -> str:
    """Return a judge's name with its model, its settings and the number of its judgements.

    If requests had different settings, the text has the most frequent settings only.
    """
    name = one_line(role)
    if endpoint is not None:
        about = one_line(endpoint.model)
        if endpoint.sampling:
            about = f"{about}; {settings_text(endpoint.sampling[0])}"
        if about:
            name += f" ({about})"
    counts = result.validity.judges[role]
    asked = counted(counts.asked, "answer")
    if result.validity.rubric is not None:
        asked = result_sentences.criteria_count(counts.asked)
    return f"{name}, {counts.scored:,} of {asked}"
