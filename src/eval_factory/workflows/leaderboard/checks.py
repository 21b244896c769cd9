"""What can be said of a leaderboard's run before anything is started; a dry run ends here."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TextIO

from eval_factory.core.errors import ConfigError
from eval_factory.helm.packages import missing_for, not_installed
from eval_factory.plan.run_plan import where_keys_go
from eval_factory.tasks.code_execution import refusal, wrong_processor
from eval_factory.workflows.context import redactor_of, show_warnings
from eval_factory.workflows.leaderboard.conf_entries import Entry, missing_data_paths
from eval_factory.workflows.leaderboard.plan import Job, make_job
from eval_factory.workflows.leaderboard.request import LeaderboardRequest


def dry_run(request: LeaderboardRequest, *, env: Mapping[str, str], screen: TextIO) -> list[str]:
    """HELM's commands, redacted, after all checks; nothing is started or written.

    Raises:
        ConfigError, PrerequisiteError: what a run would raise before it starts anything.
    """
    job = checked_job(request, env, screen)
    redactor = redactor_of(job.plans[0].evaluation, env)
    screen.writelines(redactor.text(f"key of {line}\n") for line in dict.fromkeys(where_keys_go(job.endpoints)))
    commands = (*map(job.run_command, job.plans), job.summarize_command(), job.server_command())
    return [redactor.text(shlex.join(argv)) for argv in commands]


def checked_job(request: LeaderboardRequest, env: Mapping[str, str], screen: TextIO) -> Job:
    """The job, with what is to be said of it on the screen."""
    job = make_job(request, env)
    show_warnings(job.plans[0].evaluation, screen)
    for line in job.row.needed():
        screen.write(f"{job.row.name} needs: {line}\n")
    say_what_is_run(job, screen)
    return job


def say_what_is_run(job: Job, screen: TextIO) -> None:
    """Which entries there are, which are left out, which want data that are not there.

    Raises:
        ConfigError: none of the entries would be run, or some need a permission that was not given.
    """
    if job.found is None:
        screen.write(f"the conf would be downloaded: {job.origin}\n")
        return
    plan, priority = job.plans[0], job.row.priority
    of_priority, left_out, run = job.of_priority(plan), job.left_out(plan), job.to_run(plan)
    screen.write(
        f"{job.origin}: {len(job.found)} entries, {len(job.entries(plan))} different ones for one model,"
        f" {len(of_priority)} of priority {priority} or before\n"
    )
    if not of_priority:
        raise ConfigError(f"{job.origin}: no entry has priority {priority} or before: nothing to run")
    asked = ", ".join(f"{asks} ({count})" for asks, count in Counter(entry.asks for entry in left_out).items())
    if not run:
        raise ConfigError(f"{job.origin}: nothing of it can be run with an endpoint for text: it asks for {asked}")
    refuse_execution(job, run)
    if left_out:
        screen.write(f"{len(left_out)} entries are left out, an endpoint for text has none of: {asked}\n")
    for path in missing_data_paths(run):
        count = sum(entry.argument("data_path") == path for entry in run)
        screen.write(f"warning: data_path {path} does not exist; {count} entries need it\n")
    lacking = sorted({module for entry in run for module in missing_for(entry.run_spec)})
    if lacking:
        count = sum(bool(missing_for(entry.run_spec)) for entry in run)
        screen.write(f"warning: {count} entries cannot run: {not_installed(job.row.name, lacking)}\n")


def refuse_execution(job: Job, run: Sequence[Entry]) -> None:
    """
    Raises:
        ConfigError: entries would execute what a model answers, and the user has not allowed it.
    """
    given = [(entry.run_spec, dict(entry.arguments)) for entry in run]
    wrong = {wrong_processor(arguments) for _, arguments in given} - {None}
    if wrong:
        raise ConfigError([f"{job.origin}: {problem}" for problem in wrong])
    if job.plans[0].evaluation.run.config.params.extra.allow_code_execution:
        return
    refused = [refusal(run_spec, arguments) for run_spec, arguments in given]
    problems = list(dict.fromkeys(problem for problem in refused if problem is not None))
    if problems:
        raise ConfigError([f"{job.origin}: {problem}" for problem in problems])
