"""Runs `eval-factory run_eval` on the same answers, reads its result, and finds which tasks have
their data here.
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
from scripts.validity.bare_helm import room_for_gold
from scripts.validity.questions import JUDGES

from eval_factory.data.hub import dataset_cache_folder
from eval_factory.data.sources import TaskSources, load_sources
from eval_factory.tasks.framework import Task

KEY = "SCRIPTED_KEY"
NOT_A_KEY = "no-key-is-needed-here"
RESULT = "evaluation_config.yaml"
ACCEPTED = (0, 1)
"""Exit codes with a result: most of these answers are not reportable, which is 1."""


@dataclass(frozen=True)
class Result:
    """The result that our program gives of one task and kind of answer."""

    document: Mapping[str, Any]

    @property
    def main_metric(self) -> str:
        return str(self.document["main_metric"])

    @property
    def scores(self) -> dict[str, Mapping[str, Any]]:
        (task,) = self.document["results"]["tasks"].values()
        found: dict[str, Mapping[str, Any]] = task["metrics"]["score"]["scores"]
        # a score says only what its name does not
        split = self.document["validity"].get("main_split")
        usual = {name: {"metric": name, "split": split, "perturbation": None} for name in found}
        return {name: {**usual[name], **score} for name, score in found.items()}

    def value(self, metric: str, suffix: str = "") -> float | None:
        """Return the value of a metric, or of `<metric><suffix>`."""
        score = self.scores.get(f"{metric}{suffix}")
        return None if score is None else float(score["value"])

    def floors(self, label: str) -> Mapping[str, float]:
        """Return the floor that the program computed for each trivial answer, without a request;
        empty if it says nothing.
        """
        found = (self.document["validity"].get("floors") or {}).get(label) or {}
        answers: Mapping[str, float] = found.get("answers") or {}
        return answers


class RunFailed(Exception):
    """A run left no result."""


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
    """
    Args:
        folder: where the output folder goes, with the task's data in it if it needs any.
        extra: more of `params.extra`.

    Raises:
        RunFailed: with what the program said.
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
                "max_new_tokens": room_for_gold(task),
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
    """Copy a scenario's files to where HELM looks for them; a model's SQL could change a link's
    target.
    """
    source = None if scenarios is None else scenarios / task.helm.scenario
    if source is not None and source.is_dir():
        shutil.copytree(source, target / task.helm.scenario, dirs_exist_ok=True)


INSIDE = ("sample_medical_qa",)
"""Data in the package itself."""


def why_not(task: Task, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """Why a task cannot be run with the data that are here; None if it can."""
    if task.name in INSIDE:
        return None
    if task.name == "custom":
        return "the user writes this benchmark"
    if any(rule.required for rule in task.helm.parameters.values()):
        return f"their data are {task.about.access}, and `data_path` has to name them"
    sources = load_sources().tasks.get(task.name) or TaskSources(scenario=task.name)
    missing = _missing(sources.with_values(dict(task.helm.fixed_parameters or {})), scenarios, env)
    return f"we did not have their data: {missing}" if missing else None


def _missing(sources: TaskSources, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """Return what of its data is not there, in words."""
    folder = scenarios / sources.scenario if scenarios is not None else Path("/nonexistent")
    if sources.own_data or not (sources.files or sources.listing or sources.hub):
        return "nobody knows where they come from"
    for file in sources.files:
        kept = [folder / file.path, *([folder / file.instead] if file.instead else [])]
        if not any(path.exists() for path in kept):
            return f"no {sources.scenario}/{file.path}"
    if sources.listing and not any(folder.glob("*.txt")):
        return f"no texts in {sources.scenario}/"
    home = Path(env.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    for dataset in sources.hub:
        if not any((home / "datasets" / dataset_cache_folder(dataset.id)).glob("*")):
            return f"no data set {dataset.id} of the Hugging Face Hub"
    return None
