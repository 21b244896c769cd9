"""One leaderboard for one model or several, as a visible list of steps."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import yaml

from eval_factory.core import sandbox
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import EvalFactoryError, HelmError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.signals import not_to_be_hung_up
from eval_factory.data.bundle import refuse_inside
from eval_factory.data.fingerprint import files_under, fingerprints
from eval_factory.executors.open_files import make_room
from eval_factory.helm import names
from eval_factory.helm.model_files import deployment_of, model_deployments, model_metadata, quiet_logging
from eval_factory.helm.packages import look_for_helm, refuse_unsupported_helm
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.code_execution import needs_sandbox
from eval_factory.workflows.context import RunContext, hold
from eval_factory.workflows.evaluate import probe_all
from eval_factory.workflows.helm_run import run_helm
from eval_factory.workflows.helm_summarize import summarize
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.bundle_data import place_entries_data
from eval_factory.workflows.leaderboard.checks import checked_job
from eval_factory.workflows.leaderboard.conf_entries import conf_text
from eval_factory.workflows.leaderboard.outcome import Ran, what_came
from eval_factory.workflows.leaderboard.plan import Job
from eval_factory.workflows.leaderboard.request import LeaderboardRequest
from eval_factory.workflows.leaderboard.summary import RunResult, main_score_of, write_results
from eval_factory.workflows.output_folder import ready_cache, remove_unfinished

SHOWN_FAILURES = 10


@dataclass(frozen=True)
class LeaderboardReport:
    """What a leaderboard's run came to."""

    summary: str
    """For the screen; redacted."""
    results: tuple[RunResult, ...]
    shortcoming: EvalFactoryError | None
    """Why the tables are not whole, with the exit code; None where they are."""


def run_leaderboard(request: LeaderboardRequest, *, env: Mapping[str, str], screen: TextIO) -> LeaderboardReport:
    """Do it all; what goes on is shown on `screen`.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    job = checked_job(request, env, screen)
    plan = job.plans[0]
    look_for_prerequisites(job)
    bundle = plan.evaluation.run.config.params.extra.data_dir
    if bundle is not None:
        refuse_inside(Path(bundle).expanduser(), job.rundir.root, "an output folder")
    with hold(plan, env, screen, debug=request.debug) as context:
        prepare(context, job)
        make_room(plan.model.parallelism * (1 + len(plan.prescribed)))
        answered = None if request.no_preflight else probe(context, job)
        settings = place_entries_data(context, plan, job.to_run(plan))
        ran = run_each(context, job, replace(settings, probed=answered))
        with not_to_be_hung_up():
            return report(context, job, ran)


def look_for_prerequisites(job: Job) -> None:
    """
    Raises:
        PrerequisiteError: HELM is not installed, or in a version that an entry cannot be run with; or the sandbox is
            missing in which entries execute answers.
    """
    look_for_helm()
    run = job.to_run(job.plans[0])
    for run_spec in {entry.run_spec for entry in run}:
        refuse_unsupported_helm(job.row.name, run_spec)
    if any(needs_sandbox(entry.run_spec, dict(entry.arguments)) for entry in run):
        sandbox.require(f"{job.origin}: entries execute what the model answers, in a sandbox only")


def prepare(context: RunContext, job: Job) -> None:
    """Write what helm-run reads."""
    rundir = job.rundir
    remove_unfinished(rundir, context.log)
    ready_cache(rundir, context.log)
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
        before = parse_own((rundir.model_configs / names.MODEL_METADATA).read_text(encoding="utf-8"))["models"]
    except (OSError, YamlError, KeyError, TypeError):
        return text
    now = {model["name"] for model in parse_own(text)["models"]}
    earlier = [model for model in before if model["name"] not in now]
    return text + (yaml.safe_dump(earlier, sort_keys=False, allow_unicode=True, width=120) if earlier else "")


def probe(context: RunContext, job: Job) -> frozenset[str]:
    """One cheap question to each endpoint. Returns the roles whose endpoints answered.

    Raises:
        PrerequisiteError: one of them cannot be asked at all; with what to give to this command.
    """
    try:
        return probe_all(context, job.endpoints)
    except PrerequisiteError as error:
        if str(error).startswith("judge "):
            how = "judges are asked at the model's URL, or where config.params.extra.judges of --run_config FILE says"
        else:
            how = "here they are --model_url, --model, --model_type and --api_key_name, or those of --run_config FILE"
        raise PrerequisiteError(f"{error}\n  {how}") from None


def keep_what_is_whole(context: RunContext, job: Job, plan: Plan) -> None:
    """Of this model's earlier runs keep what is whole and the same; other models' stay as they are."""
    model = deployment_of(plan.model)
    identity = finished_runs.identity_of(
        job.rundir.run_entries_of(plan.model.slug).read_text(encoding="utf-8"),
        (plan.model, *plan.prescribed),
        max_eval_instances=job.max_eval_instances,
        num_train_trials=job.row.num_train_trials,
        data=fingerprints_of(context, job, plan),
    )
    settings = finished_runs.Settings(identity, job.max_eval_instances)
    moved, archive = finished_runs.archive_other_settings(job.rundir, job.suite, model, settings)
    if moved:
        context.show(f"{moved} runs of {plan.model.model_id} with other settings or entries were moved to {archive}")
    kept = finished_runs.forget_what_has_to_run_again(job.rundir, job.suite, model)
    if kept:
        context.show(f"{kept} runs are complete already")
    context.log.info("leaderboard %s, run %s: %s", job.row.name, identity, shlex.join(job.run_command(plan)))


def fingerprints_of(context: RunContext, job: Job, plan: Plan) -> dict[str, str]:
    """File of the user's own that an entry reads -> SHA-256."""
    paths = sorted({path for entry in job.to_run(plan) if (path := entry.argument("data_path"))})
    files = {str(file): file for path in paths for file in files_under(Path(path))}
    return fingerprints(job.rundir, files, context.say)


def run_each(context: RunContext, job: Job, settings: HelmRunSettings) -> list[Ran]:
    """Every model's turn. One that is stopped in the middle of it leaves the others theirs.

    Raises:
        PrerequisiteError, HelmError: no model's turn came to its end.
        InterruptedRunError
    """
    ran = []
    for number, plan in enumerate(job.plans, start=1):
        if len(job.plans) > 1:
            context.show(f"model {number} of {len(job.plans)}: {plan.model.model_id}")
        keep_what_is_whole(context, job, plan)
        run = run_helm(context, plan.evaluation, job.run_command(plan), settings)
        one = what_came(job, plan, run, context.log)
        ran.append(one)
        if one.stopped is not None and number < len(job.plans):
            context.show(f"{plan.model.model_id} was stopped, the next model's turn comes: {one.stopped}")
    stopped = [(one.plan.model.model_id, one.stopped) for one in ran if one.stopped is not None]
    if len(stopped) == len(job.plans) == 1:
        raise stopped[0][1]
    if len(stopped) == len(job.plans):
        kind = PrerequisiteError if all(isinstance(error, PrerequisiteError) for _, error in stopped) else HelmError
        raise kind("\n".join(f"{model}: {error}" for model, error in stopped))
    return ran


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


def report(context: RunContext, job: Job, ran: Sequence[Ran]) -> LeaderboardReport:
    """Let HELM make its tables; say what there is, what is missing and how to look at it.

    Raises:
        HelmError: HELM could not make them.
    """
    results = [result for one in ran for result in results_of(job, one)]
    models = [plan.model.model_id for plan in job.plans]
    write_results(job.rundir, job.suite, models, results, context.redactor)
    finished_runs.forget_tables(job.rundir, job.suite)
    in_tables = finished_runs.run_folders(job.rundir, job.suite)
    if in_tables:
        summarize(context, job.summarize_command())
    for failure in (failure for one in ran for failure in one.failures):
        context.log.error("%s: %s", failure.run, failure.error)
    text = own_lines(context.redactor.text("\n".join(summary(job, results, len(in_tables)))))
    return LeaderboardReport(text, tuple(results), shortcoming(job, ran, results))


def shortcoming(job: Job, ran: Sequence[Ran], results: Sequence[RunResult]) -> EvalFactoryError | None:
    """PrerequisiteError or HelmError: some runs failed. NotReportableError: some are kept out of the tables."""
    failures = [failure for one in ran for failure in one.failures]
    counts = Counter(result.state for result in results)
    again = "run the same command again: what is finished stays, what was answered is not asked again"
    if failures:
        stopped = [one.plan.model.model_id for one in ran if one.stopped is not None]
        kind = PrerequisiteError if all(failure.for_want_of_data for failure in failures) else HelmError
        what = "for want of data or a package" if kind is PrerequisiteError and not stopped else "see above"
        halted = "".join(f"  {model} was stopped before all its runs were begun\n" for model in stopped)
        return kind(f"{len(failures)} of {len(results) - counts['left out']} runs failed, {what}\n{halted}  {again}")
    if counts["kept out"]:
        return NotReportableError(
            f"NOT REPORTABLE: {counts['kept out']} runs have a coverage below min_coverage,"
            f" {job.min_coverage:g}\n  {again}"
        )
    return None


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
