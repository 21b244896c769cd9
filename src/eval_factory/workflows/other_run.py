"""`extra.stop_when.differs_from`: the finished run with whose instances those of a run are paired."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import TaskResult
from eval_factory.helm import names
from eval_factory.plan.run_plan import STOP_WHEN, Plan

if TYPE_CHECKING:
    from eval_factory.workflows.resume import DataRead

WHERE = f"{STOP_WHEN}.differs_from"


def other_run_text(plan: Plan) -> str | None:
    """JSON of the other run's instances: the main metric's values and hashes of prompts, by id; None without one.

    Raises:
        ConfigError: it is no finished run, or of another evaluation.
    """
    folder = plan.evaluation.run.config.params.extra.stop_when.differs_from
    if folder is None:
        return None
    from eval_factory.analysis.comparison_reasons import values_of  # few runs have one
    from eval_factory.report.reader import load_result

    try:
        result = load_result(folder).result
        if Path(folder).resolve() == plan.evaluation.output_dir.resolve():
            raise ConfigError(f"{WHERE}: {folder} is the output folder of this run")
        if (result.task, result.provenance.upstream) != (plan.task_name, plan.upstream.name):
            theirs, ours = f"{result.task} ({result.provenance.upstream})", f"{plan.task_name} ({plan.upstream.name})"
            raise ConfigError(f"{WHERE}: {folder} is a run of {theirs}, and this one of {ours}")
        if not result.reportable or result.something_to_ask:
            raise ConfigError(f"{WHERE}: the run in {folder} is not complete, or not reportable; run it again first")
        found = values_of(result.instances, result.scores[result.main_metric])
    except PrerequisiteError as error:
        raise ConfigError(f"{WHERE}: no finished run: {error}") from None
    prompts = {key: prompt.hex() for key, prompt in found.prompts.items()}
    return json.dumps({"metric": result.main_metric, "values": dict(found.values), "prompts": prompts}, sort_keys=True)


def with_other_run(plan: Plan, read: DataRead) -> DataRead:
    """A run that was stopped by its difference to another one is another where that one has changed since."""
    if plan.evaluation.run.config.params.extra.stop_when.differs_from is None:
        return read
    text = (plan.rundir.model_configs / names.OTHER_RUN).read_bytes()
    return replace(read, own={**read.own, names.OTHER_RUN: hashlib.sha256(text).hexdigest()})


def refuse_other_questions(plan: Plan, result: TaskResult) -> None:
    """Raises ConfigError: no instance is in both runs, or they differ in words or main score."""
    stop = plan.evaluation.stop_when
    if stop is None or stop.differs_from is None or result.main_metric not in result.scores:
        return
    from eval_factory.analysis.comparison_reasons import values_of

    other = json.loads((plan.rundir.model_configs / names.OTHER_RUN).read_text(encoding="utf-8"))
    here = values_of(result.instances, result.scores[result.main_metric]).prompts
    shared = here.keys() & other["prompts"].keys()
    differing = sum(here[key].hex() != other["prompts"][key] for key in shared)
    if result.main_metric != other["metric"]:
        problem = f"its main score is {other['metric']}, and that of this run {result.main_metric}"
    elif differing or not shared:
        problem = f"of {len(here)} instances {len(shared)} are in both runs, {differing} of them asked in other words"
    else:
        return
    raise ConfigError(f"{WHERE}: {problem}; what was answered is kept")
