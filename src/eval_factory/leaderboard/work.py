"""One leaderboard for one model, as a visible list of steps."""

from __future__ import annotations

import logging
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.framework import load_framework
from eval_factory.engine import events as event_names
from eval_factory.errors import ConfigError, HelmError, InterruptedRunError, NotReportableError, PrerequisiteError
from eval_factory.failures import DATA_ERRORS, PACKAGE_ERRORS
from eval_factory.helm import names
from eval_factory.helm.by_hand import helms_own_judges, model_by_hand
from eval_factory.helm.model_files import deployment_of, model_deployments, model_metadata, quiet_logging
from eval_factory.keys import keys_of
from eval_factory.leaderboard import catalogue, commands, runs
from eval_factory.leaderboard.catalogue import Leaderboard
from eval_factory.leaderboard.conf import conf_of
from eval_factory.leaderboard.entries import Entry, conf_text, missing_data_paths, read_entries, rewritten
from eval_factory.leaderboard.request import LeaderboardRequest
from eval_factory.logs import open_log
from eval_factory.pipeline import probe_all, raise_if_stopped, ready_store
from eval_factory.plan import EndpointPlan
from eval_factory.rundir import PRIVATE, RunDir, write_atomic
from eval_factory.secrets import Redactor

SHOWN_FAILURES = 10


@dataclass(frozen=True)
class Job:
    """What will be run; making it touches nothing on disk and needs no conf."""

    request: LeaderboardRequest
    row: Leaderboard
    schema: str
    rundir: RunDir
    model: EndpointPlan
    judges: tuple[EndpointPlan, ...]
    max_eval_instances: int
    min_coverage: float

    @property
    def suite(self) -> str:
        return self.row.name

    def run_command(self) -> list[str]:
        return commands.run_command(
            self.rundir,
            suite=self.suite,
            model=deployment_of(self.model),
            max_eval_instances=self.max_eval_instances,
            num_train_trials=self.row.num_train_trials,
            priority=self.row.priority,
            parallelism=self.model.parallelism,
            debug=self.request.debug,
        )

    def summarize_command(self) -> list[str]:
        return commands.summarize_command(
            self.rundir, suite=self.suite, schema=self.schema, debug=self.request.debug
        )

    def server_command(self) -> list[str]:
        return commands.server_command(self.rundir, suite=self.suite)


def make_job(request: LeaderboardRequest) -> Job:
    """Raises ConfigError (no such leaderboard) or PrerequisiteError (HELM has no such schema)."""
    row = catalogue.find(request.name)
    schema = catalogue.schema_path(row)
    if schema is None:
        raise PrerequisiteError(
            f"{row.name}: HELM {catalogue.helm_version()} has no {row.schema_file}\n"
            "  install the version of HELM that the leaderboard was made with"
        )
    framework = load_framework()
    model = model_by_hand(
        framework,
        url=request.model_url,
        model_id=request.model,
        key_name=request.api_key_name,
        type=request.model_type,
        parallelism=request.parallelism,
    )
    extra = framework.defaults.config["params"]["extra"]
    folder = request.output_dir or catalogue.load_catalogue().output_dir.format(name=row.name)
    return Job(
        request=request,
        row=row,
        schema=str(schema),
        rundir=RunDir(Path(folder).absolute()),
        model=model,
        judges=tuple(helms_own_judges(framework, model, row.judges, parallelism=request.parallelism)),
        max_eval_instances=request.max_eval_instances or row.max_eval_instances,
        min_coverage=extra["min_coverage"] if request.min_coverage is None else request.min_coverage,
    )


def run_leaderboard(request: LeaderboardRequest, *, env: Mapping[str, str], screen: TextIO, output: TextIO) -> None:
    """Do it all.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    job = make_job(request)
    key_names = [name for endpoint in (job.model, *job.judges) for name in endpoint.key_names]
    redactor = Redactor.from_environment(env, [*key_names, "HF_TOKEN"])
    say_what_is_needed(job, screen)
    if request.dry_run:
        for argv in (job.run_command(), job.summarize_command(), job.server_command()):
            output.write(redactor.text(shlex.join(argv)) + "\n")
        return
    if job.row.lacks and not request.anyway:
        raise PrerequisiteError(
            f"{job.row.name} asks for {job.row.lacks}\n  give --anyway if the endpoint can do more than text"
        )
    entries = entries_of(job, screen)
    judged = any(entry.run_spec in names.JUDGED_RUN_SPECS for entry in entries if entry.runs_at(job.row.priority))
    endpoints = (job.model, *job.judges) if judged else (job.model,)
    asked_for = [request.api_key_name] if request.api_key_name else []
    keys = keys_of(endpoints, env, asked_for=asked_for)
    env = {**env, **keys.found}
    for key in keys.found.values():
        redactor.learn(key)
    job.rundir.create()
    with job.rundir.locked():
        log = open_log(job.rundir, redactor, debug=request.debug, beginning=keys.lines)
        prepare(job, entries, endpoints, log, screen)
        if not request.no_preflight:
            probe_all(endpoints, env, redactor, log, screen)
        ran = run_helm(job, env, key_names, redactor, log, screen)
        report(job, ran, env, redactor, log, output)


def say_what_is_needed(job: Job, screen: TextIO) -> None:
    for line in job.row.needed():
        screen.write(f"{'warning: ' if job.row.lacks else ''}{job.row.name} needs: {line}\n")


def entries_of(job: Job, screen: TextIO) -> list[Entry]:
    """The leaderboard's entries for this model.

    Raises:
        ConfigError: the conf cannot be read, or none of its entries would be run.
        PrerequisiteError: it cannot be had.
    """
    text, origin = conf_of(job.row, file=job.request.conf, data_dir=job.request.data_dir)
    found = read_entries(text, origin)
    entries = rewritten(found, deployment_of(job.model), reasoning=job.request.reasoning)
    run = [entry for entry in entries if entry.runs_at(job.row.priority)]
    screen.write(
        f"{origin}: {len(found)} entries, {len(entries)} different ones for one model,"
        f" {len(run)} of priority {job.row.priority} or before\n"
    )
    if not run:
        raise ConfigError(f"{origin}: no entry has priority {job.row.priority} or before: nothing to run")
    for path in missing_data_paths(run):
        count = sum(entry.argument("data_path") == path for entry in run)
        screen.write(f"warning: data_path {path} does not exist; {count} entries need it\n")
    return entries


def prepare(
    job: Job, entries: Sequence[Entry], endpoints: tuple[EndpointPlan, ...], log: logging.Logger, screen: TextIO
) -> None:
    """Write what helm-run reads; keep of earlier runs what is whole and the same."""
    rundir, conf = job.rundir, conf_text(entries)
    ready_store(rundir, log)
    files = {
        names.MODEL_DEPLOYMENTS: model_deployments(endpoints, cache_db=str(rundir.cache_db)),
        names.MODEL_METADATA: model_metadata(endpoints),
    }
    if not job.request.debug:
        files[names.LOGGING] = quiet_logging()
    for name, text in files.items():
        write_atomic(rundir.model_configs / name, text, mode=PRIVATE)
    write_atomic(rundir.run_entries, conf)
    identity = runs.identity_of(
        conf, endpoints, max_eval_instances=job.max_eval_instances, num_train_trials=job.row.num_train_trials
    )
    kept = runs.forget_what_has_to_run_again(rundir, job.suite, identity)
    if kept:
        screen.write(f"{kept} runs are complete already\n")
    log.info("leaderboard %s, run %s: %s", job.row.name, identity, shlex.join(job.run_command()))


@dataclass(frozen=True)
class Failure:
    """A run, or an entry that did not become one, and why."""

    run: str
    error: str
    for_want_of_data: bool


@dataclass(frozen=True)
class Ran:
    """What came of helm-run."""

    folders: tuple[Path, ...]
    failures: tuple[Failure, ...]


def run_helm(
    job: Job, env: Mapping[str, str], key_names: Sequence[str], redactor: Redactor, log: logging.Logger, screen: TextIO
) -> Ran:
    """Run helm-run to its end; runs that fail leave the others alone.

    Raises:
        PrerequisiteError, HelmError, InterruptedRunError
    """
    from eval_factory.run.environment import child_environment
    from eval_factory.run.local import run_locally

    run_id = uuid.uuid4().hex
    ours = {event_names.RUN_ID_VARIABLE: run_id, event_names.PARENT_VARIABLE: str(os.getpid())}
    try:
        run = run_locally(
            job.run_command(),
            env=child_environment(env, key_names, ours),
            rundir=job.rundir,
            run_id=run_id,
            redactor=redactor,
            screen=screen,
        )
    except KeyboardInterrupt:
        log.info("interrupted")
        raise InterruptedRunError(
            f"interrupted; what was answered is kept in {job.rundir.cache_db}\n  run the same command again to go on"
        ) from None
    log.info("helm-run ended with %d after %.1f s", run.finished.returncode, run.wall_s)
    raise_if_stopped(run.events, run.finished.tail, log)
    failures = failures_in(run.events)
    folders = [job.rundir.helm / event["path"] for event in run.events if event["event"] == event_names.RUN_DONE]
    if run.finished.returncode != 0 and not failures:
        shown = "\n".join(f"  | {line}" for line in run.finished.tail)
        raise HelmError(f"helm-run ended with {run.finished.returncode}:\n{shown}\n  log: {job.rundir.helm_log}")
    if not folders and not failures:
        raise HelmError(f"helm-run ended without a run; its log: {job.rundir.helm_log}")
    return Ran(tuple(folders), failures)


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


def report(
    job: Job, ran: Ran, env: Mapping[str, str], redactor: Redactor, log: logging.Logger, output: TextIO
) -> None:
    """Let HELM make its tables; say what there is, what is missing and how to look at it.

    A run with too many requests that failed is kept out of the tables: HELM counts them as wrong, or, where a jury
    or a safety judge had nothing to judge, as right.

    Raises:
        PrerequisiteError, HelmError: some runs failed.
        NotReportableError: all ran, but some are kept out of the tables.
    """
    gaps, withheld = [], 0
    for folder in ran.folders:
        found = runs.gaps_of(folder)
        out = found.coverage < job.min_coverage
        if out:
            withheld += 1
            runs.withhold(job.rundir, job.suite, folder)
        if found or out:
            gaps.append(f"  {found.text()}{': kept out of the tables' if out else ''}")
    finished = len(ran.folders) - withheld
    runs.forget_tables(job.rundir, job.suite)
    if finished:
        summarize(job, env, redactor, log)
    lines = [f"{job.row.name}: {finished} runs in the tables, {withheld} kept out, {len(ran.failures)} failed", *gaps]
    lines += [f"  failed: {failure.run}: {failure.error}" for failure in ran.failures[:SHOWN_FAILURES]]
    if len(ran.failures) > SHOWN_FAILURES:
        lines.append(f"  ... and {len(ran.failures) - SHOWN_FAILURES} more, in {job.rundir.helm_log}")
    if finished:
        lines.append(f"  results: {runs.runs_folder(job.rundir, job.suite)}")
        lines.append(f"  to look at them: {shlex.join(job.server_command())}")
    output.write(redactor.text("\n".join(lines)) + "\n")
    for failure in ran.failures:
        log.error("%s: %s", failure.run, failure.error)
    again = "run the same command again: what is finished stays, what was answered is not asked again"
    if ran.failures:
        kind = PrerequisiteError if all(failure.for_want_of_data for failure in ran.failures) else HelmError
        what = "for want of data or a package" if kind is PrerequisiteError else "see above"
        raise kind(f"{len(ran.failures)} of {len(ran.failures) + len(ran.folders)} runs failed, {what}\n  {again}")
    if withheld:
        raise NotReportableError(
            f"NOT REPORTABLE: {withheld} runs have a coverage below min_coverage, {job.min_coverage:g}\n  {again}"
        )


def summarize(job: Job, env: Mapping[str, str], redactor: Redactor, log: logging.Logger) -> None:
    """helm-summarize.

    Raises:
        HelmError: it failed.
    """
    from eval_factory.run.environment import child_environment
    from eval_factory.run.process import run_logged

    argv = job.summarize_command()
    log.info("%s", shlex.join(argv))
    finished = run_logged(
        argv, env=child_environment(env, (), {}), log=job.rundir.summarize_log, redactor=redactor, on_tick=lambda: None
    )
    if finished.returncode != 0:
        shown = "\n".join(f"  | {line}" for line in finished.tail)
        raise HelmError(f"helm-summarize ended with {finished.returncode}:\n{shown}\n  log: {job.rundir.summarize_log}")
