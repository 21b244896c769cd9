"""How many requests a run makes and how long they are: helm-run makes them in a temporary folder, and sends none."""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.data.hub import HF_OFFLINE
from eval_factory.helm import names
from eval_factory.helm.command import command_line
from eval_factory.helm.model_files import model_files
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import RunContext, redactor_of
from eval_factory.workflows.helm_run import run_helm
from eval_factory.workflows.prepare import find_bundle, place_data, settings_of

BYTES_A_TOKEN = 4
"""A rule of thumb for English; without a tokenizer, which would have to be downloaded."""


@dataclass(frozen=True)
class PromptSizes:
    """None, with the reason: the data are not here."""

    requests: int | None
    prompt_bytes: int = 0
    most_tokens: int = 0
    """That all answers together may have."""
    reason: str = ""
    judge_requests: int = 0
    """To each judge of a rubric, which is asked by criterion; 0 where there is none."""


def prompt_sizes(plan: Plan, env: Mapping[str, str]) -> PromptSizes:
    """Without keys, without network: what would have to be downloaded is not known."""
    try:
        with _temporary(plan, env) as (context, shadow):
            events = _made(context, shadow)
    except EvalFactoryError as error:
        return PromptSizes(None, reason=_short(str(error)))
    return sizes_in(events)


def sizes_in(events: Sequence[Mapping[str, Any]]) -> PromptSizes:
    """What the events of a measuring helm-run say."""
    for event in events:
        if event["event"] == event_names.MEASURED:
            of_judges = event.get("judge_requests", 0)
            return PromptSizes(event["requests"], event["prompt_bytes"], event["most_tokens"], judge_requests=of_judges)
    failed = [event["error"] for event in events if event["event"] == event_names.RUN_FAILED]
    kind = failed[0].partition(":")[0] if failed else "HELM made no requests"
    return PromptSizes(None, reason=f"its data are not here, or not all of them: {kind}")


def own_scenarios(plan: Plan) -> Path:
    """Where the output folder has the data of earlier runs."""
    return RunDir(plan.evaluation.output_dir.absolute()).helm / names.SCENARIOS_FOLDER


@contextmanager
def _temporary(plan: Plan, env: Mapping[str, str]) -> Iterator[tuple[RunContext, Plan]]:
    """The same plan in a folder of its own, which sees the data that the output folder has."""
    with tempfile.TemporaryDirectory(prefix="eval-factory-estimate-") as name:
        rundir = RunDir(Path(name))
        screen = io.StringIO()
        with rundir.locked(lambda text: print(text, file=screen)) as lock:
            redactor = redactor_of(plan.evaluation, env)
            log = logging.Logger("estimate")  # says nothing to anybody
            log.addHandler(logging.NullHandler())
            yield RunContext(rundir, lock, env, redactor, log, screen), replace(plan, rundir=rundir)


def _made(context: RunContext, plan: Plan) -> Sequence[Mapping[str, Any]]:
    """The events of a helm-run that may contact nobody."""
    bundle = find_bundle(plan, context.env)
    offline = settings_of(plan, bundle, context.env)
    settings = replace(offline, allowed=(), proxies={}, libraries={**offline.libraries, **HF_OFFLINE})
    own = own_scenarios(plan)
    if own.is_dir():
        plan.rundir.helm.mkdir(parents=True)
        (plan.rundir.helm / names.SCENARIOS_FOLDER).symlink_to(own, target_is_directory=True)
    for name, text in model_files(plan).items():
        write_atomic(plan.rundir.model_configs / name, text, mode=PRIVATE)
    place_data(context, plan, bundle)
    argv = [names.MEASURING_RUNNER_CLASS if word == names.RUNNER_CLASS else word for word in command_line(plan)]
    return run_helm(context, plan.evaluation, argv, settings).events


def _short(text: str) -> str:
    return text.partition("\n")[0][:200]
