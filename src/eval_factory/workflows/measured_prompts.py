"""Measures the number and the sizes of a run's prompts without sending a request.

A helm-run in a temporary folder prepares all requests and sends none of them.
"""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.data.hub import HF_OFFLINE
from eval_factory.helm import names
from eval_factory.helm.command import command_line, model_files
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import RunContext, redactor_of
from eval_factory.workflows.helm_run import run_helm
from eval_factory.workflows.prepare import data_settings, find_bundle, place_data

_MAX_REASON = 200  # the maximum length of the reason why sizes could not be measured


@dataclass(frozen=True)
class PromptSizes:
    """The number and sizes of a run's prompts.

    The sizes are measured for this run, or are the table's typical sizes of the task. If there are
    neither, `requests` is None and `reason` says why they could not be measured.
    """

    requests: int | None  # the number of requests to the model
    prompt_bytes: int = 0  # the size of all prompts together, in bytes
    most_tokens: int = 0  # the maximum number of tokens in all answers together
    reason: str = ""
    judge_requests: int = 0  # requests to each judge of a rubric; 0 if the task has no rubric
    # tokens for pictures and sounds, roughly; None if the prompts have no pictures or sounds
    media_tokens: int | None = None
    typical: str = ""
    """The source of the sizes if they are the task's typical sizes; "" if they were measured."""


Measure = Callable[[Plan, Mapping[str, str]], PromptSizes]
"""A function that returns the prompt sizes of a plan, given the environment variables."""


def prompt_sizes(plan: Plan, env: Mapping[str, str]) -> PromptSizes:
    """Return the sizes of a run's prompts, measured without keys and without a network.

    The sizes are unknown if the run would have to download data.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="eval-factory-estimate-") as folder:
            plan_in_folder = replace(plan, rundir=RunDir(Path(folder)))
            return sizes_in(_measuring_events(plan_in_folder, env))
    except EvalFactoryError as error:
        first_line = str(error).partition("\n")[0]
        return PromptSizes(requests=None, reason=first_line[:_MAX_REASON])


def sizes_in(events: Sequence[Mapping[str, Any]]) -> PromptSizes:
    """Return the sizes from the events of a helm-run that measured the requests."""
    for event in events:
        if event["event"] == event_names.MEASURED:
            # The event has the sizes under the names of the fields of `PromptSizes`.
            sizes = {}
            for size in fields(PromptSizes):
                if size.name in event:
                    sizes[size.name] = event[size.name]
            return PromptSizes(**sizes)
    errors = []
    for event in events:
        if event["event"] == event_names.RUN_FAILED:
            errors.append(event["error"])
    kind = errors[0].partition(":")[0] if errors else "HELM made no requests"
    reason = f"the data of the task are missing or incomplete on this machine: {kind}"
    return PromptSizes(requests=None, reason=reason)


def scenarios_of_earlier_runs(plan: Plan) -> Path:
    """Return the path of the data of earlier runs in the output folder.

    `plan.rundir` is not used, because it may be the temporary folder of a measurement.
    """
    return RunDir(plan.evaluation.output_dir.absolute()).helm / names.SCENARIOS_FOLDER


def _measuring_events(plan: Plan, env: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """Run helm-run in the plan's folder without a network, and return its events.

    helm-run measures the requests and sends none. It can read the data in the evaluation's output
    folder.
    """
    log = logging.Logger("estimate")
    screen = io.StringIO()
    log.addHandler(logging.NullHandler())  # discards all messages
    with plan.rundir.locked(screen.write) as lock:
        redactor = redactor_of(plan.evaluation, env)
        context = RunContext(plan.rundir, lock, env=env, redactor=redactor, log=log, screen=screen)
        bundle = find_bundle(plan, env)
        settings = data_settings(plan, bundle, env)
        # helm-run may contact no host
        settings = replace(
            settings,
            allowed=(),
            proxies={},
            library_variables={**settings.library_variables, **HF_OFFLINE},
        )
        # helm-run finds the data of earlier runs, which it cannot download, through links.
        scenarios = scenarios_of_earlier_runs(plan)
        for folder in (scenarios, scenarios.with_name(names.PERTURBATIONS_FOLDER)):
            if folder.is_dir():
                plan.rundir.helm.mkdir(parents=True, exist_ok=True)
                (plan.rundir.helm / folder.name).symlink_to(folder, target_is_directory=True)
        for name, text in model_files(plan).items():
            write_atomic(plan.rundir.model_configs / name, text, mode=PRIVATE)
        place_data(context, plan, bundle)
        argv = []  # the command of a run, with the runner that measures and sends no requests
        for argument in command_line(plan):
            is_runner = argument == names.RUNNER_CLASS
            argv.append(names.MEASURING_RUNNER_CLASS if is_runner else argument)
        return run_helm(context, plan.evaluation, argv, settings).events
