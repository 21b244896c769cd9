"""Which tasks have their data on this machine, and why the others are not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eval_factory.data.hub import dataset_cache_folder
from eval_factory.data.sources import TaskSources, load_sources
from eval_factory.tasks.framework import Task

INSIDE = ("sample_medical_qa",)
"""Data in the package itself."""
OWN_BENCHMARK = "custom"


def why_not(task: Task, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """Why a task cannot be run with the data that are here; None where it can."""
    if task.name in INSIDE:
        return None
    if task.name == OWN_BENCHMARK:
        return "it is whatever its user writes"
    if any(rule.required for rule in task.helm.parameters.values()):
        return f"its data are {task.about.access}: they are given with `data_path`"
    sources = load_sources().tasks.get(task.name) or TaskSources(scenario=task.name)
    missing = _missing(sources.with_values(_fixed(task)), scenarios, env)
    return f"its data are not here: {missing}" if missing else None


def _fixed(task: Task) -> dict[str, str | None]:
    return dict(task.helm.fixed or {})


def _missing(sources: TaskSources, scenarios: Path | None, env: Mapping[str, str]) -> str | None:
    """What of its data is not there, in words."""
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
