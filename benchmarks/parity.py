#!/usr/bin/env python3
"""Compares the scores of run_eval with those of bare helm-run on the same answers.

    PYTHONPATH=tests/support:tests:. python benchmarks/parity.py [TASK ...] [--keep FOLDER]

It asks every task whose data can be invented in the published form, by run_eval and by bare
helm-run with HELM's own OpenAI client. The same scripted endpoint is the model and the judges of
both. Some of its answers are right, some wrong and some empty. The script writes the rows of the
asked tasks into benchmarks/parity.yml; the other rows stay. (The rows of real data are those of
docs/validity.md.) The exit code is 1 if a score differs from that of bare HELM in any digit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from scripts.validity.bare_helm import BareHelm, environment
from scripts.validity.our_runs import RunFailed, place, run_ours
from scripts.validity.questions import JUDGES, KindEndpoint, drawn
from scripts.validity.validity_page import parity

from eval_factory.data.bundle import HF_HOME
from eval_factory.data.hub import DATASETS, HF_OFFLINE
from eval_factory.tasks.framework import Task, load_framework
from invented_benchmarks import (
    MAKERS,
    Invented,
    gold_for,
    healthqa_br,
    med_dialog,
    med_mcqa,
    med_qa,
    mmlu_clinical_afr,
    mmlu_pro_health,
    vqa_rad,
)

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "parity.yml"
HEAD = """\
# Which tasks were held against bare helm-run on the same answers: the number of scores, of all
# metrics, that are equal to the last digit. data: real (scripts/validity_table.py), or invented in
# the published form (benchmarks/parity.py).
"""
KIND = "varied"  # the kind of answers, which is a part of the model's id (`<task>/<kind>`)
HIGHEST_MARK = 5
MORE_MAKERS = {
    "med_dialog": med_dialog("healthcaremagic"),
    "med_qa": med_qa,
    "med_mcqa": med_mcqa,
    "vqa_rad": vqa_rad,
    "mmlu_pro_health": mmlu_pro_health,
    "healthqa_br": healthqa_br,
    "mmlu_clinical_afr": mmlu_clinical_afr,
}


OUR_SCENARIOS = {"script_concordance"}
"""The tasks whose scenarios are eval-factory's, so that bare helm-run cannot ask them."""
MORE_EXTRA = {"med_dialog": {"subset": "healthcaremagic"}}


class VariedEndpoint(KindEndpoint):
    """An endpoint with a model for each task, and with three judges that give different marks."""

    def __init__(self, invented: Mapping[str, Invented]) -> None:
        super().__init__(lambda task, _kind, prompt: varied(invented[task], prompt))

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        completion = super().reply(body)
        if body["model"] in JUDGES:
            message = completion["choices"][0]["message"]
            seed = f"{body['model']}:{body['messages'][-1]['content']}"
            message["content"] = marks(seed, message["content"])
        return completion


def varied(invented: Invented, prompt: str) -> str:
    """Return the right answer to half of the prompts, and one of three wrong answers to the others.

    The wrong answers are: nothing, other words, and half of the right answer. The prompt's hash
    chooses the answer.
    """
    right = gold_for(invented, prompt)
    wrong = ("", "I am not sure.", right[: len(right) // 2])
    choice = drawn(prompt, 2 * len(wrong))
    if choice < len(wrong):
        return wrong[choice]
    return right


def marks(seed: str, judgement: str) -> str:
    """Return a judge's output with the same criteria, and marks that depend on `seed`."""
    ratings = json.loads(judgement)
    for criterion, rating in ratings.items():
        rating["score"] = 1 + drawn(f"{criterion}:{seed}", HIGHEST_MARK)
    return json.dumps(ratings)


def invented_data(names: Sequence[str], folder: Path) -> dict[str, Invented]:
    """Write invented data for each task, and return them by the name of the task."""
    makers = {**MAKERS, **MORE_MAKERS}
    by_task = {}
    for name in names:
        extra = MORE_EXTRA.get(name, {})
        invented = makers[name](folder / "own" / name, folder / "bare" / "scenarios")
        by_task[name] = replace(invented, extra={**invented.extra, **extra})
    return by_task


def rows_of(tasks: Mapping[str, Task], folder: Path) -> dict[str, dict[str, Any]]:
    """Ask all tasks by both programs, and return the row of each task."""
    invented = invented_data(list(tasks), folder)
    env = environment()
    with VariedEndpoint(invented) as endpoint:
        bare = BareHelm(
            folder / "bare",
            endpoint.base_url,
            tasks,
            dict.fromkeys(tasks, (KIND,)),
            limit=None,
            arguments={name: _arguments(tasks[name], data) for name, data in invented.items()},
        )
        try:
            bare.run({**env, **_variables_of_bundle(invented)})
        except subprocess.CalledProcessError:
            print(f"bare helm-run failed: {folder / 'bare' / 'helm-run.log'}", file=sys.stderr)
        rows = {}
        for name, task in tasks.items():
            rows[name] = _row(task, invented[name], bare, endpoint.base_url, folder)
            print(name, rows[name], flush=True)
    return rows


def _variables_of_bundle(invented: Mapping[str, Invented]) -> dict[str, str]:
    """Return the variables with which bare helm-run reads the data sets of a data bundle.

    eval-factory reads them by the setting `data_dir`. All tasks have the same bundle.
    """
    for data in invented.values():
        if "data_dir" in data.extra:
            home = Path(data.extra["data_dir"]) / HF_HOME
            return {**HF_OFFLINE, "HF_HOME": str(home), "HF_DATASETS_CACHE": str(home / DATASETS)}
    return {}


def _arguments(task: Task, invented: Invented) -> dict[str, str]:
    """Return the arguments of HELM's run spec, from the settings of run_eval."""
    arguments = {}
    for name, rule in task.helm.parameters.items():
        if name in invented.extra:
            arguments[rule.helm_name or name] = invented.extra[name]
    return arguments


def _row(task: Task, invented: Invented, bare: BareHelm, url: str, folder: Path) -> dict[str, Any]:
    """Ask a task by run_eval, and return its row; bare helm-run has asked the task before."""
    target = folder / "ours" / task.name
    place(bare.scenarios, task, target / "helm" / "scenarios")
    try:
        stats = bare.stats(task.name, KIND)
    except (OSError, ValueError) as error:
        return {"reason": f"bare helm-run did not run it: {error}"}
    try:
        result = run_ours(
            target,
            task,
            KIND,
            url=url,
            limit=None,
            threads=4,
            env=environment(),
            extra=invented.extra,
        )
    except RunFailed as error:
        return {"reason": f"run_eval did not run it: {error}"}
    compared = parity(result.scores, stats, result.main_metric)
    for difference in compared.differences:
        print(f"{task.name}: {difference}", file=sys.stderr)
    return {
        "data": "invented",
        "scores": compared.compared,
        "equal": not compared.differences,
        "on": f"{datetime.now(timezone.utc):%Y-%m-%d}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--keep", type=Path, help="a new folder for all runs; else a temporary one")
    arguments = parser.parse_args()
    possible = (MAKERS.keys() | MORE_MAKERS.keys()) - OUR_SCENARIOS
    if impossible := sorted(set(arguments.tasks) - possible):
        names = ", ".join(sorted(possible))
        parser.error(f"no invented data for {', '.join(impossible)}; possible: {names}")
    tasks = {}
    for task in load_framework().evaluations:
        if task.name in (arguments.tasks or possible):
            tasks[task.name] = task
    with tempfile.TemporaryDirectory() as temporary:
        rows = rows_of(tasks, (arguments.keep or Path(temporary)).absolute())
    table = {**(yaml.safe_load(TABLE.read_text("utf-8")) or {}), **rows}
    order = [task.name for task in load_framework().evaluations]
    ordered_table = {name: table[name] for name in order if name in table}
    text = yaml.safe_dump(ordered_table, sort_keys=False, width=120)
    TABLE.write_text(HEAD + text, encoding="utf-8")
    return int(not all(row.get("equal") for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
