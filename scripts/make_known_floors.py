"""Writes src/eval_factory/tasks/known_floors.json: the floors of whole public data sets, computed anew.

    python scripts/make_known_floors.py --scenarios FOLDER [TASK ...]

The data are looked for where HELM keeps them: FOLDER holds a folder for each scenario, as helm-run leaves them under
<output-path>/scenarios; data sets of the Hugging Face Hub are read from HF_HOME, best with HF_HUB_OFFLINE=1. Each task
is run with the demo endpoint, because the model does not matter. What floors depend on is in the key: after another
version of HELM, of the trivial answers or of the errata the table is not used, and has to be made again. A set keeps
its floors where its data are not here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.validity.bare_helm import environment  # noqa: E402
from scripts.validity.data_there import why_not  # noqa: E402
from scripts.validity.our_runs import ACCEPTED, place  # noqa: E402

from eval_factory.core.rundir import RunDir  # noqa: E402
from eval_factory.helm.trivial_answers import read_trivial_scores  # noqa: E402
from eval_factory.report.reader import load_result  # noqa: E402
from eval_factory.scoring.floors import INCOMPLETE_FLOORS, MISSING_FLOORS  # noqa: E402
from eval_factory.tasks.errata import FLOORS, floors_table, load_errata  # noqa: E402
from eval_factory.tasks.framework import Task, load_framework  # noqa: E402

TASKS = ("head_qa", "medbullets", "medcalc_bench", "medec", "medhallu", "pubmed_qa", "race_based_med")
MOST_RUNS = 20
"""Of one task: a run computes floors in a tenth of its time, and the next one in the same folder goes on with them."""


def known_set(folder: Path) -> tuple[str, dict[str, Any]]:
    """(its hash, its task and floors).

    Raises:
        ValueError: the folder does not hold all floors of a whole data set.
    """
    stored = load_result(folder)
    trivial = read_trivial_scores(RunDir(folder).helm)
    if stored.config["params"]["limit_samples"] is not None:
        raise ValueError(f"{folder}: its run was of a sample")
    if trivial is None or trivial.known or trivial.left_out or trivial.error or not trivial.strategies:
        raise ValueError(f"{folder}: its floors were not computed, or not all of them")
    if any(note.startswith((MISSING_FLOORS, INCOMPLETE_FLOORS)) for note in stored.result.validity.notes):
        raise ValueError(f"{folder}: its corrected or lenient floors were not computed, or not all of them")
    floors = {label: asdict(floor) for label, floor in stored.result.validity.floors.items()}
    return trivial.data_sha256, {"task": stored.result.task, "floors": floors}


def run(task: Task, folder: Path, scenarios: Path | None, env: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Until all floors are computed. Raises ValueError as `known_set` does."""
    place(scenarios, task, folder / "helm" / "scenarios")
    argv = ["run_eval", "--eval_type", task.name, "--output_dir", str(folder), "--model_url", "demo://baseline"]
    for left in reversed(range(MOST_RUNS)):
        made = subprocess.run(
            [sys.executable, "-m", "eval_factory", *argv, "--model_id", "demo"],
            env=dict(env), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode not in ACCEPTED:
            raise ValueError(f"{task.name}: exit {made.returncode}\n{made.stderr[-2000:]}")
        try:
            return known_set(folder)
        except ValueError:
            if not left:
                raise
    raise AssertionError("at least one run")


def write(sets: Mapping[str, Any]) -> None:
    in_order = dict(sorted(sets.items(), key=lambda one: one[1]["task"]))
    FLOORS.write_text(text_of({"errata_version": load_errata().version, "sets": in_order}), encoding="utf-8")


def text_of(table: Mapping[str, Any]) -> str:
    """A line for each metric."""
    text = json.dumps(table, ensure_ascii=False, indent=1)
    return re.sub(r"\n(?: {5,}| {4}(?=\}))", "", text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="the floors of public data sets")
    parser.add_argument("--scenarios", type=Path)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    given, env = parser.parse_args(), environment()
    there = [task for task in load_framework().evaluations if task.name in given.tasks]
    there = [task for task in there if why_not(task, given.scenarios, env) is None]
    names = {task.name for task in there}
    sets = {sha256: one for sha256, one in floors_table()["sets"].items() if one["task"] not in names}
    write(sets)  # of a set that is in the table nothing is computed
    with tempfile.TemporaryDirectory() as folder:
        for task in there:
            sets |= [run(task, Path(folder) / task.name, given.scenarios, env)]
            write(sets)
    for sha256, one in sets.items():
        print(f"{one['task']}: {sha256[:12]}: {len(one['floors'])} metrics")
    return 0


if __name__ == "__main__":
    sys.exit(main())
