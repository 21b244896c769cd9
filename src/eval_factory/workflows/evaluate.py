"""Runs one evaluation: the function `evaluate` calls all steps in their order."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from eval_factory import __version__
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.resolved import Evaluation
from eval_factory.core import sandbox
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.results import TaskResult
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.this_process import ignore_sighup
from eval_factory.executors.process import raise_fd_limit
from eval_factory.helm.environments import environment_of_plan, require_packages
from eval_factory.plan.prices import budget_of, prices_for_helm_run, refuse_uncountable_limits
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.checksums import digests_of, write_checksums
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import needs_sandbox
from eval_factory.workflows import resume
from eval_factory.workflows.asking_phase import AskingPhase
from eval_factory.workflows.batches import refuse_to_forget_batches
from eval_factory.workflows.context import (
    RunContext,
    lock_folder,
    show_uncomputed_metrics,
    show_warnings,
    write_result,
)
from eval_factory.workflows.evaluated import Evaluated
from eval_factory.workflows.helm_run import FinishedRun
from eval_factory.workflows.options import Options
from eval_factory.workflows.prepare import (
    data_settings,
    facts_about_data,
    find_bundle,
    place_data,
    prepare_output_folder,
)
from eval_factory.workflows.stop_when import (
    faults_of_user_files,
    record_other_run,
    shown_command,
)


def evaluate(
    request: RunRequest,
    options: Options,
    *,
    env: Mapping[str, str],
    screen: TextIO,
    evaluation: Evaluation | None = None,
) -> Evaluated:
    """Run an evaluation in this process, and return its result.

    Args:
        request: The evaluation that the user requests.
        options: The options that say how the run is done.
        env: The environment, with the keys.
        screen: The stream for progress and warnings.
        evaluation: The evaluation that was already built from the request; None: it is built here.

    Raises:
        EvalFactoryError: The run failed; the error has the exit code of the command.
    """
    evaluation = evaluation or build_evaluation(request, load_framework(), env)
    plan = make_plan(evaluation)
    # With `extra.stop_when`, this is only one of several commands, which `AskingPhase` makes.
    argv = shown_command(plan, debug=options.debug)
    show_warnings(evaluation, screen)
    look_for_prerequisites(plan)
    show_uncomputed_metrics([plan], env, screen)
    # If the model is not asked, `asking_plan.endpoints` lacks the model's endpoint.
    asking_plan = replace(plan, asks_model=options.asks_model)
    refuse_uncountable_limits(asking_plan)
    bundle = find_bundle(plan, env)
    with lock_folder(asking_plan, env, screen, debug=options.debug) as context:
        if options.on_launch is not None:
            options.on_launch(launch_record(context, plan, argv))
        if options.fresh:
            refuse_to_forget_batches(plan.rundir)
        # With `stop_when.differs_from`, the facts about the other run belong to this run's data.
        data = record_other_run(plan, facts_about_data(context, plan, bundle))
        finished = None if options.fresh else earlier_finished_run(plan, data)
        if finished is not None:
            unchanged = unchanged_evaluation(context, plan, finished)
            if unchanged is not None:
                return unchanged
        plan.rundir.forget_checksums()
        settings = data_settings(asking_plan, bundle, context.env)
        settings = replace(
            settings, limits=options.limits, budget=budget_of(plan), asks_model=options.asks_model
        )
        prepare_output_folder(
            context, plan, argv, settings, data.own_files, fresh=options.fresh, debug=options.debug
        )
        if finished is None:
            if options.only_collect:
                raise _changed_since_its_job(plan.rundir.root)
            raise_fd_limit(requests_at_once=plan.model.parallelism * len(plan.endpoints))
            settings = replace(settings, prices=prices_for_helm_run(asking_plan))
            place_data(context, plan, bundle)
            finished, argv = AskingPhase(context, plan, settings, options).ask(argv, data)
        with ignore_sighup():  # a closed terminal does not end the collection
            return collect_and_report(context, plan, argv, finished, data)


def _changed_since_its_job(folder: Path) -> PrerequisiteError:
    """Return the error for a run whose data or versions have changed since its Slurm job ended."""
    return PrerequisiteError(
        f"{folder}: the data of this run, or a version, have changed since its job ended\n"
        "  to run the evaluation again, add --fresh to the same command"
    )


def launch_record(context: RunContext, plan: Plan, argv: Sequence[str]) -> dict[str, Any]:
    """Return the redacted record of a run that begins, with its command and the user's settings."""
    record: dict[str, Any] = {
        "event": "launch",
        "eval_factory": __version__,
        "task": plan.task_name,
        "model": plan.model.model_id,
        "url": plan.model.url,
        "judges": {judge.role: judge.model_id for judge in (*plan.judges, *plan.prescribed)},
        "limit_samples": plan.evaluation.params.limit_samples,
        "output_dir": str(plan.rundir.root),
        "run_identity": plan.identity,
        "command": shlex.join(argv),
        **plan.evaluation.as_given(),
    }
    redacted: dict[str, Any] = context.redactor.redact_tree(record)
    return redacted


def look_for_prerequisites(plan: Plan) -> None:
    """Check that this machine has the files, the packages and the sandbox that a run needs.

    Raises:
        ConfigError: A file that the user provides does not fit the evaluation.
        PrerequisiteError: A file that the user provides is wrong, or a package or the sandbox is
            missing.
    """
    if faults := faults_of_user_files(plan):
        raise faults[0]  # a run reports only the first fault; --dry_run lists all
    helm = plan.evaluation.task.helm
    only_generate = plan.evaluation.extra.only_generate
    require_packages(plan.task_name, helm.run_spec, plan.upstream, only_generate=only_generate)
    if needs_sandbox(helm.run_spec, helm.arguments):
        sandbox.require_working(
            f"{plan.task_name} executes the model's answers, and only in a sandbox"
        )


def earlier_finished_run(plan: Plan, data: resume.DataRead) -> FinishedRun | None:
    """Return the folder's last run if this run would only repeat it; otherwise None.

    `resume.state_of_finished_run` states the conditions.
    """
    state = resume.state_of_finished_run(plan, data)
    if state is None:
        return None
    return FinishedRun(
        tuple(plan.rundir.root / name for name in state.runs), state.run_id, state.wall_s
    )


def unchanged_evaluation(
    context: RunContext, plan: Plan, finished: FinishedRun
) -> Evaluated | None:
    """Return the stored result of a finished run, and show the user that nothing has changed.

    If a new collection might write other files, show this instead, and return None. The caller must
    then collect the result again.
    """
    result = resume.unchanged_result(
        plan, finished.folders, context.redactor, git_hash=resume.checkout_commit()
    )
    if result is None:
        context.log.info("this run is complete already: only collected again")
        context.show_unlogged(
            "this run is complete already: collecting its results again (--fresh starts over)"
        )
        return None
    context.log.info(
        "complete, and unchanged since it was collected (delete SHA256SUMS to collect it again)"
    )
    context.show_unlogged(
        "this run is complete already, and nothing has changed since: "
        "its result stands (--fresh starts over)"
    )
    # A stored result has rounded numbers only.
    return _evaluated(context, plan, result, written=result)


def collect_and_report(
    context: RunContext,
    plan: Plan,
    argv: Sequence[str],
    finished: FinishedRun,
    data: resume.DataRead,
) -> Evaluated:
    """Collect the result of a finished run, and write all files of the result."""
    from eval_factory.scoring.collect import collect
    from eval_factory.scoring.provenance import installed_packages, with_run_files

    started = time.monotonic()
    commit = resume.checkout_commit()
    result = collect(
        plan,
        finished.folders,
        run_id=finished.run_id,
        wall_s=finished.wall_s,
        git_hash=commit,
        data_bundle=data.bundle,
    )
    write_atomic(plan.rundir.packages, installed_packages(environment_of_plan(plan)))
    result = with_run_files(result, plan.rundir, finished.folders)
    written = write_result(
        plan,
        result,
        command=shlex.join(argv),
        user_config=plan.evaluation.as_given(),
        redactor=context.redactor,
    )
    complete = not result.something_to_ask
    known = result.provenance.run_files
    digests = digests_of(plan.rundir, finished.folders, known_digests=known)
    state = resume.state_of_ended_run(
        plan,
        finished.folders,
        run_id=finished.run_id,
        wall_s=finished.wall_s,
        complete=complete,
        data=data,
    )
    digests = resume.write_result_state(plan.rundir, state, digests, vars(written.provenance))
    write_checksums(plan.rundir, written, digests)
    context.log.info(
        "collected in %.1f s; reportable: %s", time.monotonic() - started, result.reportable
    )
    return _evaluated(context, plan, result, written=written)


def _evaluated(
    context: RunContext, plan: Plan, result: TaskResult, *, written: TaskResult
) -> Evaluated:
    """Return the outcome of the evaluation, with a summary of the result for the screen.

    `written` is the result with the rounded numbers of its files. The summary is made from
    `written`, so that the screen and the files show the same numbers.
    """
    from eval_factory.report.summary import result_summary
    from eval_factory.scoring.reportable import why_not_reportable

    text = printable_lines(context.redactor.redact_text(result_summary(written, plan.rundir)))
    minimum = plan.evaluation.extra.min_coverage
    return Evaluated(result, plan.rundir, text, why_not_reportable(result, minimum))
