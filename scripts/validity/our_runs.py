"""Runs `eval-factory run_eval` for the table of docs/validity.md, and reads its results.

It also finds the tasks whose data are not on this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from scripts.validity.bare_helm import max_tokens_of_answer
from scripts.validity.questions import JUDGES

from eval_factory.data.hub import dataset_cache_folder
from eval_factory.data.sources import TaskSources, load_sources
from eval_factory.tasks.framework import Task

KEY = "SCRIPTED_KEY"  # the name of the variable that holds the key
NOT_A_KEY = "no-key-is-needed-here"  # the value of this variable
RESULT = "evaluation_config.yaml"
ACCEPTED = (0, 1)
"""The exit codes of a run with a result. 1: a score is not reportable, which is usual here."""


@dataclass(frozen=True)
class Result:
    """The result of run_eval for one task and one kind of answers."""

    document: Mapping[str, Any]  # the content of evaluation_config.yaml

    @property
    def main_metric(self) -> str:
        return str(self.document["main_metric"])

    @property
    def scores(self) -> dict[str, Mapping[str, Any]]:
        """The scores by label; each has `metric`, `split` and `perturbation`, also if they are the
        usual ones.
        """
        (task,) = self.document["results"]["tasks"].values()
        stored: dict[str, Mapping[str, Any]] = task["metrics"]["score"]["scores"]
        split = self.document["validity"].get("main_split")
        scores: dict[str, Mapping[str, Any]] = {}
        for label, score in stored.items():
            # A stored score lacks a field whose value is the usual one.
            usual = {"metric": label, "split": split, "perturbation": None}
            scores[label] = {**usual, **score}
        return scores

    def value(self, metric: str, suffix: str = "") -> float | None:
        """Return the value of a metric, or of `<metric><suffix>`."""
        score = self.scores.get(f"{metric}{suffix}")
        return None if score is None else float(score["value"])

    def floors(self, label: str) -> Mapping[str, float]:
        """Return the score of each trivial answer, such as an empty text; empty if none is stated.

        eval-factory computes these scores (the floors) without a request.

        Args:
            label: the label of the score whose floors are returned.
        """
        floors = (self.document["validity"].get("floors") or {}).get(label) or {}
        answers: Mapping[str, float] = floors.get("answers") or {}
        return answers


class RunFailed(Exception):
    """An error that is raised because a run left no result."""


def run_ours(  # noqa: PLR0913 - what a run of eval-factory is made of
    folder: Path,
    task: Task,
    kind: str,
    *,
    url: str,
    limit: int | None,
    threads: int,
    env: Mapping[str, str],
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Run run_eval, and return its result.

    Args:
        folder: the output folder, which already contains the task's data.
        task: the task.
        kind: the kind of answers, which the endpoint reads from the model's id.
        url: the URL of the endpoint.
        limit: the maximum number of instances; None: all.
        threads: the number of requests at the same time.
        env: the environment variables.
        extra: further settings of `params.extra`.

    Raises:
        RunFailed: the run left no result; the message has the end of the program's output.
    """
    settings: dict[str, Any] = {
        "max_unreadable": 1.0,
        "upstream": task.helm.upstream.name,
        **extra,
    }
    if task.helm.judges:
        settings["judges"] = [{"name": name, "model_id": name, "api_key": KEY} for name in JUDGES]
    endpoint = {"url": url, "model_id": f"{task.name}/{kind}", "type": "chat", "api_key": KEY}
    config = {
        "config": {
            "type": task.name,
            "output_dir": str(folder),
            "params": {
                "limit_samples": limit,
                "parallelism": threads,
                "max_new_tokens": max_tokens_of_answer(task),
                "extra": settings,
            },
        },
        "target": {"api_endpoint": endpoint},
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name(f"{folder.name}.yml")
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "eval_factory",
            "run_eval",
            "--run_config",
            str(file),
            "--no_preflight",
        ],
        env={**env, KEY: NOT_A_KEY},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode not in ACCEPTED or not (folder / RESULT).is_file():
        raise RunFailed(
            f"{task.name}, {kind}: exit {finished.returncode}\n{finished.stderr[-2000:]}"
        )
    return result_in(folder)


def result_in(folder: Path) -> Result:
    """Return the result of an output folder."""
    return Result(yaml.safe_load((folder / RESULT).read_text("utf-8")))


def place(scenarios: Path | None, task: Task, target: Path) -> None:
    """Copy the files of a task's scenario into HELM's folder of scenarios.

    They are not linked, because SQL in an answer could change the original files.

    Args:
        scenarios: the folder with the data of scenarios; None if there is none.
        task: the task.
        target: HELM's folder of scenarios in an output folder.
    """
    source = None if scenarios is None else scenarios / task.helm.scenario
    if source is not None and source.is_dir():
        shutil.copytree(source, target / task.helm.scenario, dirs_exist_ok=True)


TASKS_WITH_PACKAGED_DATA = ("sample_medical_qa",)


def why_not(task: Task, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """Return why a task cannot be run with the data on this machine; None if it can be run."""
    if task.name in TASKS_WITH_PACKAGED_DATA:
        return None
    if task.name == "custom":
        return "the user writes this benchmark"
    if any(rule.required for rule in task.helm.parameters.values()):
        return f"their data are {task.about.access}, and `data_path` has to name them"
    sources = load_sources().tasks.get(task.name) or TaskSources(scenario=task.name)
    missing = _missing(sources.with_values(dict(task.helm.fixed_parameters or {})), scenarios, env)
    return f"we did not have their data: {missing}" if missing else None


def _missing(sources: TaskSources, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """Return which data of a task are not on this machine; None if all are."""
    folder = scenarios / sources.scenario if scenarios is not None else Path("/nonexistent")
    if sources.own_data or not (sources.files or sources.listing or sources.hub):
        return "nobody knows where they come from"
    for file in sources.files:
        # HELM may read another file (`instead`) in place of the downloaded file.
        possible_files = [folder / file.path]
        if file.instead:
            possible_files.append(folder / file.instead)
        if not any(path.exists() for path in possible_files):
            return f"no {sources.scenario}/{file.path}"
    if sources.listing and not any(folder.glob("*.txt")):
        return f"no texts in {sources.scenario}/"
    home = Path(env.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    for dataset in sources.hub:
        if not any((home / "datasets" / dataset_cache_folder(dataset.id)).glob("*")):
            return f"no data set {dataset.id} of the Hugging Face Hub"
    return None
