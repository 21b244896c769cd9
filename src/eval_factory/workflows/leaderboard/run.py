"""One leaderboard for one model or several, as a visible list of steps."""

from __future__ import annotations

import logging
import os
import shlex
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import yaml

from eval_factory.core import events as event_names
from eval_factory.core.errors import ConfigError, HelmError, InterruptedRunError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.logs import open_log
from eval_factory.core.rundir import PRIVATE, Lock, RunDir, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.core.signals import not_to_be_hung_up
from eval_factory.executors.open_files import make_room
from eval_factory.helm import names
from eval_factory.helm.model_files import deployment_of, model_deployments, model_metadata, quiet_logging
from eval_factory.helm.packages import look_for_helm, missing_for, not_installed
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.code_execution import refusal, wrong_processor
from eval_factory.workflows.evaluate import probe_all
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.bundle_data import placed
from eval_factory.workflows.leaderboard.conf_entries import Entry, conf_text, missing_data_paths
from eval_factory.workflows.leaderboard.outcome import Ran, what_came
from eval_factory.workflows.leaderboard.plan import Job, make_job
from eval_factory.workflows.leaderboard.request import LeaderboardRequest
from eval_factory.workflows.leaderboard.summary import RunResult, main_score_of, write_results
from eval_factory.workflows.prepare import claim, ready_store, remove_unfinished

SHOWN_FAILURES = 10
SUMMARIZE_TRIES = 2


def run_leaderboard(request: LeaderboardRequest, *, env: Mapping[str, str], screen: TextIO, output: TextIO) -> None:
    """Do it all.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    job = make_job(request, env)
    evaluation = job.plans[0].evaluation
    redactor = Redactor.from_environment(env, [*evaluation.key_names(), "HF_TOKEN"])
    warnings = [f"warning: {text}" for text in evaluation.warnings]
    screen.writelines(f"{line}\n" for line in warnings)
    for line in job.row.needed():
        screen.write(f"{job.row.name} needs: {line}\n")
    say_what_is_run(job, screen)
    if request.dry_run:
        for argv in (*map(job.run_command, job.plans), job.summarize_command(), job.server_command()):
            output.write(redactor.text(shlex.join(argv)) + "\n")
        screen.write("nothing was written; the files that these commands name are there after the first run\n")
        return
    look_for_helm()
    keys = credentials_report(job.plans[0], env)
    env = {**env, **keys.found}
    for key in keys.found.values():
        redactor.learn(key)
    bundle = job.plans[0].evaluation.run.config.params.extra.data_dir
    if bundle is not None:
        from eval_factory.data.bundle import refuse_inside

        refuse_inside(Path(bundle).expanduser(), job.rundir.root, "an output folder")
    claim(job.rundir)
    with job.rundir.locked(lambda text: _tell(screen, text)) as lock:
        log = open_log(job.rundir, redactor, debug=request.debug, beginning=[*warnings, *keys.lines])
        for warning in keys.warnings:
            screen.write(f"warning: {warning}\n")
        prepare(job, log)
        make_room(job.plans[0].model.parallelism * (1 + len(job.plans[0].prescribed)))
        settings = {} if request.no_preflight else probe(job, env, redactor, log, screen)
        settings |= placed(job.plans[0], job.to_run(job.plans[0]), env, log, screen)
        ran = run_each(job, lock, env, settings, redactor, log, screen)
        with not_to_be_hung_up():
            report(job, ran, lock, env, redactor, log, output)


def _tell(screen: TextIO, text: str) -> None:
    screen.write(f"{text}\n")


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


def prepare(job: Job, log: logging.Logger) -> None:
    """Write what helm-run reads."""
    rundir = job.rundir
    remove_unfinished(rundir, log)
    ready_store(rundir, log)
    files = {
        names.MODEL_DEPLOYMENTS: model_deployments(job.endpoints, cache_db=str(rundir.cache_db)),
        names.MODEL_METADATA: with_earlier_models(model_metadata(job.endpoints), rundir),
    }
    if not job.request.debug:
        files[names.LOGGING] = quiet_logging()
    for name, text in files.items():
        write_atomic(rundir.model_configs / name, text, mode=PRIVATE)
    for plan in job.plans:
        text = conf_text(entry for entry in job.entries(plan) if entry.asks is None)
        write_atomic(rundir.run_entries_of(plan.model.slug), text)


def with_earlier_models(text: str, rundir: RunDir) -> str:
    """model_metadata.yaml with the models whose runs are in the tables already: helm-summarize names them."""
    try:
        before = yaml.safe_load((rundir.model_configs / names.MODEL_METADATA).read_text(encoding="utf-8"))["models"]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return text
    now = {model["name"] for model in yaml.safe_load(text)["models"]}
    earlier = [model for model in before if model["name"] not in now]
    return text + (yaml.safe_dump(earlier, sort_keys=False, allow_unicode=True, width=120) if earlier else "")


def probe(job: Job, env: Mapping[str, str], redactor: Redactor, log: logging.Logger, screen: TextIO) -> dict[str, str]:
    """One cheap question to each endpoint. Returns the variables that tell helm-run who answered.

    Raises:
        PrerequisiteError: one of them cannot be asked at all; with what to give to this command.
    """
    try:
        return probe_all(job.endpoints, env, redactor, log, screen)
    except PrerequisiteError as error:
        if str(error).startswith("judge "):
            how = "judges are asked at the model's URL, or where config.params.extra.judges of --run_config FILE says"
        else:
            how = "here they are --model_url, --model, --model_type and --api_key_name, or those of --run_config FILE"
        raise PrerequisiteError(f"{error}\n  {how}") from None


def keep_what_is_whole(job: Job, plan: Plan, log: logging.Logger, screen: TextIO) -> None:
    """Of this model's earlier runs keep what is whole and the same; other models' stay as they are."""
    model = deployment_of(plan.model)
    identity = finished_runs.identity_of(
        job.rundir.run_entries_of(plan.model.slug).read_text(encoding="utf-8"),
        (plan.model, *plan.prescribed),
        max_eval_instances=job.max_eval_instances,
        num_train_trials=job.row.num_train_trials,
        data_paths=[path for entry in job.to_run(plan) if (path := entry.argument("data_path"))],
    )
    settings = finished_runs.Settings(identity, job.max_eval_instances)
    moved, aside = finished_runs.set_aside_other_settings(job.rundir, job.suite, model, settings)
    if moved:
        screen.write(f"{moved} runs of {plan.model.model_id} with other settings or entries were moved to {aside}\n")
    kept = finished_runs.forget_what_has_to_run_again(job.rundir, job.suite, model)
    if kept:
        screen.write(f"{kept} runs are complete already\n")
    log.info("leaderboard %s, run %s: %s", job.row.name, identity, shlex.join(job.run_command(plan)))


def run_each(
    job: Job,
    lock: Lock,
    env: Mapping[str, str],
    settings: Mapping[str, str],
    redactor: Redactor,
    log: logging.Logger,
    screen: TextIO,
) -> list[Ran]:
    """Every model's turn. One that is stopped in the middle of it leaves the others theirs.

    Raises:
        PrerequisiteError, HelmError: no model's turn came to its end.
        InterruptedRunError
    """
    ran = []
    for number, plan in enumerate(job.plans, start=1):
        if len(job.plans) > 1:
            screen.write(f"model {number} of {len(job.plans)}: {plan.model.model_id}\n")
        keep_what_is_whole(job, plan, log, screen)
        one = run_helm(job, plan, lock, env, settings, redactor, log, screen)
        ran.append(one)
        if one.stopped is not None and number < len(job.plans):
            _tell(screen, f"{plan.model.model_id} was stopped, the next model's turn comes: {one.stopped}")
    stopped = [(one.plan.model.model_id, one.stopped) for one in ran if one.stopped is not None]
    if len(stopped) == len(job.plans) == 1:
        raise stopped[0][1]
    if len(stopped) == len(job.plans):
        kind = PrerequisiteError if all(isinstance(error, PrerequisiteError) for _, error in stopped) else HelmError
        raise kind("\n".join(f"{model}: {error}" for model, error in stopped))
    return ran


def run_helm(
    job: Job,
    plan: Plan,
    lock: Lock,
    env: Mapping[str, str],
    settings: Mapping[str, str],
    redactor: Redactor,
    log: logging.Logger,
    screen: TextIO,
) -> Ran:
    """Run helm-run to its end; runs that fail leave the others alone.

    Raises:
        InterruptedRunError
    """
    from eval_factory.executors.environment import child_environment
    from eval_factory.executors.local import run_locally
    from eval_factory.helm_plugin.network_guard import PROXY_VARIABLES

    if job.plans[0].evaluation.run.config.params.extra.allow_code_execution:
        from eval_factory.core.kernel_sandbox import keep_memory_private

        keep_memory_private()  # what is executed is confined; where it cannot be, this process has keys too
    run_id = uuid.uuid4().hex
    ours = {**settings, event_names.RUN_ID_VARIABLE: run_id, event_names.PARENT_VARIABLE: str(os.getpid())}
    if plan.evaluation.run.config.params.extra.offline:
        env = {name: value for name, value in env.items() if name not in PROXY_VARIABLES}
    names_of_ours = [*plan.evaluation.key_names(), *plan.evaluation.setting_names()]
    try:
        run = run_locally(
            job.run_command(plan),
            env=child_environment(env, names_of_ours, ours),
            rundir=job.rundir,
            lock=lock,
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
    return what_came(job, plan, run, run_id, log)


def results_of(job: Job, ran: Ran) -> list[RunResult]:
    """What came of each run of a model.

    A run with too many requests that failed is moved out of HELM's tables: they count these as wrong, or, where a jury
    or a safety judge had nothing to judge, as right.
    """
    model = ran.plan.model.model_id
    results = []
    for folder in ran.folders:
        gaps = finished_runs.gaps_of(folder)
        counts = (gaps.requested, gaps.failed, gaps.unjudged)
        found = RunResult(gaps.run, model, "in the tables", gaps.reason() if gaps else None, *counts)
        if gaps.coverage < job.min_coverage:
            finished_runs.withhold(job.rundir, job.suite, folder)
            results.append(replace(found, state="kept out"))
        else:
            metric, score = main_score_of(folder)
            results.append(replace(found, main_metric=metric, score=score))
    results += [RunResult(failure.run, model, "failed", failure.error) for failure in ran.failures]
    results += [RunResult(run, model, "left out", f"asks for {asks}") for run, asks in ran.left_out.items()]
    return results


def report(
    job: Job,
    ran: Sequence[Ran],
    lock: Lock,
    env: Mapping[str, str],
    redactor: Redactor,
    log: logging.Logger,
    output: TextIO,
) -> None:
    """Let HELM make its tables; say what there is, what is missing and how to look at it.

    Raises:
        PrerequisiteError, HelmError: some runs failed.
        NotReportableError: all ran, but some are kept out of the tables.
    """
    results = [result for one in ran for result in results_of(job, one)]
    models = [plan.model.model_id for plan in job.plans]
    write_results(job.rundir, job.suite, models, results, redactor)
    finished_runs.forget_tables(job.rundir, job.suite)
    in_tables = finished_runs.run_folders(job.rundir, job.suite)
    if in_tables:
        summarize(job, lock, env, redactor, log)
    failures = [failure for one in ran for failure in one.failures]
    output.write(own_lines(redactor.text("\n".join(summary(job, results, len(in_tables))))) + "\n")
    for failure in failures:
        log.error("%s: %s", failure.run, failure.error)
    counts = Counter(result.state for result in results)
    again = "run the same command again: what is finished stays, what was answered is not asked again"
    if failures:
        stopped = [one.plan.model.model_id for one in ran if one.stopped is not None]
        kind = PrerequisiteError if all(failure.for_want_of_data for failure in failures) else HelmError
        what = "for want of data or a package" if kind is PrerequisiteError and not stopped else "see above"
        halted = "".join(f"  {model} was stopped before all its runs were begun\n" for model in stopped)
        raise kind(f"{len(failures)} of {len(results) - counts['left out']} runs failed, {what}\n{halted}  {again}")
    if counts["kept out"]:
        raise NotReportableError(
            f"NOT REPORTABLE: {counts['kept out']} runs have a coverage below min_coverage,"
            f" {job.min_coverage:g}\n  {again}"
        )


def summary(job: Job, results: Sequence[RunResult], in_tables: int) -> list[str]:
    """The lines for the screen."""
    counts = Counter(result.state for result in results)
    left_out = f", {counts['left out']} left out" if counts["left out"] else ""
    kept_out = f"{counts['kept out']} kept out, {counts['failed']} failed{left_out}"
    lines = [f"{job.row.name}: {counts['in the tables']} runs in the tables, {kept_out}"]
    for result in results:
        if result.state == "kept out" or (result.state == "in the tables" and result.reason):
            out = ": kept out of the tables" if result.state == "kept out" else ""
            lines.append(f"  {result.run}: {result.reason}{out}")
    failed = [result for result in results if result.state == "failed"]
    lines += [f"  failed: {result.run}: {result.reason}" for result in failed[:SHOWN_FAILURES]]
    if len(failed) > SHOWN_FAILURES:
        lines.append(f"  ... and {len(failed) - SHOWN_FAILURES} more")
    if in_tables > counts["in the tables"]:
        lines.append(f"  with those of other models: {in_tables} runs in the tables")
    different = finished_runs.different_limits(job.rundir, job.suite)
    if different:
        lines.append(f"  warning: the tables compare runs of {' and '.join(map(str, different))} instances at most")
    lines.append(f"  every run, its state and main score: {job.rundir.leaderboard}")
    if in_tables:
        lines.append(f"  results: {finished_runs.runs_folder(job.rundir, job.suite)}")
        lines.append(f"  to look at them: {shlex.join(job.server_command())}")
    return lines


def summarize(job: Job, lock: Lock, env: Mapping[str, str], redactor: Redactor, log: logging.Logger) -> None:
    """helm-summarize; once more where it fails, because now and then it dies of what has nothing to do with the runs.

    (`AST constructor recursion depth mismatch` of Python's compiler, inside Mako.)

    Raises:
        HelmError: it failed twice.
    """
    from eval_factory.executors.environment import child_environment
    from eval_factory.executors.process import run_logged

    argv, child_env = job.summarize_command(), child_environment(env, (), {})
    for _ in range(SUMMARIZE_TRIES):
        log.info("%s", shlex.join(argv))
        finished = run_logged(
            argv, env=child_env, log=job.rundir.summarize_log, redactor=redactor, on_tick=lambda: None, lock=lock
        )
        if finished.returncode == 0:
            return
        log.warning("helm-summarize ended with %d", finished.returncode)
    shown = "\n".join(f"  | {line}" for line in finished.tail)
    raise HelmError(f"helm-summarize ended with {finished.returncode}:\n{shown}\n  log: {job.rundir.summarize_log}")
