"""The cells of a suite as jobs of Slurm: what each task has to know, which arrays there are, their batch scripts."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.config.serve_model import LAUNCH
from eval_factory.config.suite import Suite
from eval_factory.core.errors import ConfigError
from eval_factory.core.secrets import Redactor, names_a_secret
from eval_factory.executors.slurm_script import BatchJob, batch_script, step_words
from eval_factory.executors.slurm_waves import Wanted
from eval_factory.plan.run_plan import leaves_of
from eval_factory.workflows.suite.finished_cells import OF_NO_RESULT
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.slurm_store import PlanLine, SlurmStore

MODULE = "eval_factory.workflows.suite.slurm_worker"
MODULE_OF_SERVED = "eval_factory.workflows.suite.slurm_served"
SERVERS = "servers"
"""Beside what is asked of Slurm: for how many servers of a model."""
_OF_ENDPOINTS = ("requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True)
class Job:
    """An array that is to be submitted."""

    cells: Sequence[PlannedCell]
    keys: Sequence[str]
    resources: Mapping[str, Any]
    at_once: int


def key_of(planned: PlannedCell) -> str:
    """Of a cell with all that its result depends on; a relative path, too."""
    settings = {
        path: value
        for path, value in leaves_of(planned.plan.evaluation.as_dict())
        if path not in OF_NO_RESULT and value is not None
    }
    said = json.dumps([planned.plan.identity, settings], sort_keys=True, default=str)
    digest = hashlib.sha256(said.encode()).hexdigest()[:12]
    return f"{planned.cell.target}/{planned.cell.evaluation}/{digest}"


def refuse_what_slurm_cannot(suite: Suite, env: Mapping[str, str]) -> None:
    """
    Raises:
        ConfigError: something that tasks on several machines cannot keep together, or a secret for a batch script.
    """
    limits = [name for name, value in vars(suite.budget).items() if value is not None]
    problems = [
        f"suite.{name}: cannot be held by jobs on several machines together; suite.params.extra.{name} holds for"
        " each cell: give every cell its part there, or choose executor local"
        for name in limits
    ]
    problems += [
        f"{target}: a job has no srun inside of suite.slurm.container, which starts each of its serve.replicas; put the"
        " container into serve.command instead"
        for target, serve in suite.serve.items()
        if serve["replicas"] > 1 and suite.slurm[target]["container"]
    ]
    redactor = Redactor.from_environment(env, filter(names_a_secret, env))
    if redactor.tree(suite.slurm, known_only=True) != suite.slurm:
        problems.append(
            "suite.slurm: holds the value of a variable that is a secret (it is not shown), and is written into files;"
            " keys reach the jobs without it"
        )
    if problems:
        raise ConfigError(problems)


def at_once(suite: Suite, cells: Iterable[PlannedCell]) -> dict[str, int]:
    """Endpoint -> how many of its cells run at once: what is asked for, but no more than each can have a request of."""
    found: dict[str, int] = {}
    for planned in cells:
        asked_for = 1 if planned.cell.target in suite.serve else suite.slurm[planned.cell.target]["tasks_at_once"]
        most = min(asked_for, *_limits(planned).values())
        found[planned.group] = min(most, found.get(planned.group, most))
    return found


def plan_line(planned: PlannedCell, suite: Suite, share: int, *, no_preflight: bool, debug: bool) -> PlanLine:
    """
    Args:
        share: how many tasks have the endpoint's limits together.
    """
    document = copy.deepcopy(dict(planned.cell.document))
    limits = _limits(planned)
    document["config"]["params"]["parallelism"] = _part(limits["parallelism"], share)
    for name in _OF_ENDPOINTS:
        if name in limits:
            document["target"]["api_endpoint"][name] = _part(limits[name], share)
    cell = planned.cell
    return PlanLine(
        key_of(planned), cell.target, cell.evaluation, document, suite.max_attempts, no_preflight, debug,
        served_of(suite, cell.target),
    )  # fmt: skip


def served_of(suite: Suite, target: str) -> dict[str, Any] | None:
    """What a task needs to serve a target's model; None where somebody else does."""
    if target not in suite.serve:
        return None
    at_once = min(suite.max_processes, suite.slurm[target]["cpus"])
    serve, resources = suite.serve[target], suite.slurm[target]
    if serve["replicas"] > 1:
        serve = {**serve, LAUNCH: step_words(resources)}
    return {"serve": serve, "max_processes": at_once, "max_outage_s": suite.max_outage_s}


def wanted(planned: PlannedCell, suite: Suite, tasks_at_once: int) -> Wanted:
    """The cell, as something to be submitted."""
    serve, asked = suite.serve.get(planned.cell.target), suite.slurm[planned.cell.target]
    resources = json.dumps(asked if serve is None else {**asked, SERVERS: serve["replicas"]}, sort_keys=True)
    return Wanted(key_of(planned), planned.group, resources, tasks_at_once, serve is not None)


def script_of(array: Sequence[Wanted], name: str, number: int, store: SlurmStore) -> str:
    """The batch script of one wave."""
    resources = json.loads(array[0].resources)
    resources["python"] = resources["python"] or sys.executable
    job = BatchJob(
        servers=resources.pop(SERVERS, 1),
        name=name,
        tasks=1 if array[0].together else len(array),
        at_once=array[0].at_once,
        log=_absolute(store.logs(number)),
        resources=resources,
        argv=(
            "-m",
            MODULE_OF_SERVED if array[0].together else MODULE,
            str(_absolute(store.plan_file)),
            str(_absolute(store.wave_file(number))),
        ),
    )
    return batch_script(job)


def _limits(planned: PlannedCell) -> dict[str, int]:
    model = planned.plan.model
    stated = {"parallelism": model.parallelism, **{name: getattr(model, name) for name in _OF_ENDPOINTS}}
    return {name: value for name, value in stated.items() if value is not None}


def _part(limit: int, share: int) -> int:
    return max(1, limit // share)


def _absolute(path: Path) -> Path:
    return path.absolute()
