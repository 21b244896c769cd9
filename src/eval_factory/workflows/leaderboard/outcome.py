"""What came of one model's helm-run: finished runs, failures, and what stopped it before its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.core import events as event_names
from eval_factory.core.errors import HelmError, PrerequisiteError
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.failures import DATA_ERRORS, PACKAGE_ERRORS, how_it_ended, raise_if_stopped
from eval_factory.workflows.helm_run import HelmRun
from eval_factory.workflows.leaderboard.plan import Job


@dataclass(frozen=True)
class Failure:
    """A run, or an entry that did not become one, and why."""

    run: str
    error: str
    for_want_of_data: bool


@dataclass(frozen=True)
class Ran:
    """What came of one model's helm-run."""

    plan: Plan
    folders: tuple[Path, ...]
    failures: tuple[Failure, ...]
    left_out: Mapping[str, str]
    """Run, or entry -> what it asks of a model."""
    stopped: PrerequisiteError | HelmError | None = None
    """Why it ended before all its runs had been begun."""


def what_came(job: Job, plan: Plan, run: HelmRun, log: logging.Logger) -> Ran:
    """What a helm-run that has ended tells."""
    failures = failures_in(run.events)
    folders = run.finished_runs(job.rundir.helm)
    told = {event["run"]: event["asks"] for event in run.events if event["event"] == event_names.LEFT_OUT}
    known = {entry.description: str(entry.asks) for entry in job.left_out(plan)}
    ran = Ran(plan, folders, failures, known | told)
    try:
        raise_if_stopped(run.events, run.last_words, log)
    except PrerequisiteError as error:
        return stopped_by(ran, error)
    if run.returncode != 0 and not failures:
        ended = how_it_ended("helm-run", run.returncode, run.tail)
        return stopped_by(ran, HelmError(f"{ended}\n  log: {job.rundir.helm_log}"))
    if not folders and not failures and not told:
        return stopped_by(ran, HelmError(f"helm-run ended without a run; its log: {job.rundir.helm_log}"))
    return ran


def stopped_by(ran: Ran, error: PrerequisiteError | HelmError) -> Ran:
    """The same with why it was stopped, which the run under way failed of too."""
    under_way = [failure for failure in ran.failures if str(error).startswith(failure.error)]
    run = under_way[0].run if under_way else f"the runs of {ran.plan.model.model_id} that were left"
    others = (failure for failure in ran.failures if failure not in under_way)
    stop = Failure(run, str(error).partition("\n")[0], isinstance(error, PrerequisiteError))
    return replace(ran, failures=(*others, stop), stopped=error)


def failures_in(events: Sequence[Mapping[str, Any]]) -> tuple[Failure, ...]:
    """What failed, and whether while its data were loaded."""
    found, loading = [], True
    for event in events:
        if event["event"] == event_names.PHASE:
            loading = event["phase"] == event_names.LOADING
        elif event["event"] == event_names.RUN_FAILED:
            missing = loading and event["error"].partition(":")[0] in DATA_ERRORS | PACKAGE_ERRORS
            found.append(Failure(event["run"], event["error"], missing))
    return tuple(found)
