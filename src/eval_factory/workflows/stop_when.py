"""Implements `extra.stop_when`: asks more and more instances until a stopping rule holds.

The instances are in one random order. Each look is a separate helm-run on the first instances of
this order. The next look has twice the number of instances, or all instances if there are fewer.
The response cache answers the requests of earlier looks, so `stop_when` works for every task, jury
and rubric. A run that was killed repeats its looks, but only sends the requests that are not
answered yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.config.model import StopWhen
from eval_factory.config.own_data import own_data_faults
from eval_factory.config.resolved import Evaluation
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, EvalFactoryError, HelmError, PrerequisiteError
from eval_factory.core.formats import rounded
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.helm import names
from eval_factory.helm.command import command_line
from eval_factory.plan.run_plan import STOP_WHEN_SETTING, Plan

if TYPE_CHECKING:
    from eval_factory.core.results import StoppedEarly, TaskResult
    from eval_factory.workflows.context import RunContext
    from eval_factory.workflows.helm_run import FinishedRun
    from eval_factory.workflows.resume import DataRead

# Modules that are only needed with a rule are imported inside functions, to keep a dry run fast.

OTHER_RUN_KEY = f"{STOP_WHEN_SETTING}.differs_from"
"""The config key with the folder of the other run. Error messages begin with this key."""


def shown_command(plan: Plan, *, debug: bool) -> list[str]:
    """Return the command line of helm-run that a preview and the documents of a run show.

    Without a stopping rule, the run has only this command. With a rule, it has one for each look,
    with the look's number of instances: the command of the last look is returned if the output
    folder already has looks, otherwise that of the first look.

    `debug` is True to let HELM log more.
    """
    stop = plan.evaluation.stop_when
    if stop is None:
        return command_line(plan, debug=debug)
    from eval_factory.helm.output import read_run_record

    drawn = read_run_record(plan.rundir.helm).drawn_sample
    instances_of_look = stop.first if drawn is None else drawn.asked
    return command_line(plan, debug=debug, max_instances=instances_of_look)


def looks_line(evaluation: Evaluation) -> str | None:
    """Return a line with the rule and the size of each look; None if the run has no rule."""
    stop = evaluation.stop_when
    if stop is None:
        return None
    from eval_factory.scoring.sequential import look_sizes_up_to

    limits = (evaluation.params.limit_samples, evaluation.task.about.instances)
    max_instances = min((limit for limit in limits if limit is not None), default=None)
    if max_instances is None:
        # The number of looks is unknown: the first three are shown. The third look has 4 times
        # the instances of the first.
        shown_looks = look_sizes_up_to(stop.first, 4 * stop.first)
    else:
        shown_looks = look_sizes_up_to(stop.first, max_instances)
    sizes = ", ".join(map(str, shown_looks))
    if max_instances is None:
        sizes += ", ... all"
    return f"stop_when {stop.text}: {sizes} instances at most, in the order of seed {stop.seed}"


def ask_in_looks(
    context: RunContext,
    plan: Plan,
    stop: StopWhen,
    data: DataRead,
    ask: Callable[[Sequence[str]], FinishedRun],
    *,
    debug: bool,
) -> tuple[FinishedRun, list[str]]:
    """Run one look after the other until the rule holds or all instances are asked.

    Args:
        context: The context of the run.
        plan: The plan of the run.
        stop: The stopping rule.
        data: The facts that identify the data of the run.
        ask: A function that gets the arguments of helm-run, and returns when helm-run has ended.
        debug: True to let HELM log more.

    Returns:
        The last look, with the wall time of all looks, and the arguments of its helm-run.

    Raises:
        ConfigError: The run and the run that `differs_from` names have different questions.
        HelmError: helm-run did not record which instances were drawn.
    """
    from eval_factory.report.documents import DIGITS_OF_SECONDS
    from eval_factory.scoring.collect import collect
    from eval_factory.workflows.prepare import write_run_config

    size = stop.first
    wall_s = 0.0
    while True:
        argv = command_line(plan, debug=debug, max_instances=size)
        write_run_config(context, plan, argv)
        finished = ask(argv)
        wall_s = rounded(wall_s + finished.wall_s, DIGITS_OF_SECONDS)
        finished = replace(finished, wall_s=wall_s)
        result = collect(
            plan,
            finished.folders,
            run_id=finished.run_id,
            wall_s=wall_s,
            git_hash=None,
            data_bundle=data.bundle,
        )
        if stop.differs_from is not None:
            _refuse_other_questions(plan, result)
        progress = result.validity.stopped_early  # has the looks so far and the state of the rule
        if progress is None:
            raise HelmError(
                f"{plan.rundir.helm}: no file records which instances were drawn; log: "
                f"{plan.rundir.helm_log}"
            )
        next_size = _next_size(size, progress, plan.evaluation.params.limit_samples)
        context.say(_look_line(result.main_metric, progress, next_size))
        if next_size is None:
            return finished, argv
        size = next_size


def _next_size(size: int, progress: StoppedEarly, limit: int | None) -> int | None:
    """Return the number of instances of the next look; None if there is no next look.

    Args:
        size: The number of instances of the last look.
        progress: The looks so far, and the state of the rule.
        limit: The user's limit of the number of instances; None: there is no limit.
    """
    max_instances = progress.of  # the number of the benchmark's instances
    if limit is not None:
        max_instances = min(limit, max_instances)
    if progress.holds or progress.asked == max_instances:
        return None
    return min(2 * size, max_instances)


def _look_line(metric: str, progress: StoppedEarly, next_size: int | None) -> str:
    """Return a line about the last look.

    `next_size`: the number of instances of the next look; None if there is no next look.
    """
    look = progress.looks[-1]
    measure = f"difference of {metric}" if "differs_from" in progress.rule else metric
    interval = formats.between(look.ci_low, look.ci_high) or "no interval"
    next_step = "the run ends" if next_size is None else f"{next_size} are asked next"
    holds = "holds" if progress.holds else "does not hold"
    outcome = (
        f"{progress.asked} of {progress.of} instances, "
        f"{measure} {formats.score(look.value)} ({interval})"
    )
    return f"look {len(progress.looks)}: {outcome}; {progress.rule_text} {holds}: {next_step}"


def other_run_text(plan: Plan) -> str | None:
    """Return a JSON text about the run that `differs_from` names; None if the rule names no run.

    The JSON has the main metric and, for each instance, the metric's value and the prompt's hash.

    Raises:
        ConfigError: The other run is not finished, not reportable, or of another task or upstream;
            or its folder is the output folder of this run.
    """
    stop = plan.evaluation.stop_when
    if stop is None or stop.differs_from is None:
        return None
    folder = stop.differs_from
    from eval_factory.analysis.comparison_reasons import values_of
    from eval_factory.report.reader import load_result

    try:
        result = load_result(folder).result
        if Path(folder).resolve() == plan.evaluation.output_dir.resolve():
            raise ConfigError(f"{OTHER_RUN_KEY}: {folder} is the output folder of this run")
        other_evaluation = f"{result.task} on {result.provenance.upstream}"
        this_evaluation = f"{plan.task_name} on {plan.upstream.name}"
        if other_evaluation != this_evaluation:
            raise ConfigError(
                f"{OTHER_RUN_KEY}: {folder} is a run of {other_evaluation}, "
                f"and this run is of {this_evaluation}"
            )
        # The result of a demo is never reportable; a demo may be compared with a demo.
        is_accepted = result.reportable or result.is_demo
        if not is_accepted or result.something_to_ask:
            raise ConfigError(
                f"{OTHER_RUN_KEY}: the run in {folder} is not complete, or not reportable; "
                "run it again first"
            )
        values = values_of(result.instances, result.scores[result.main_metric])
    except PrerequisiteError as error:
        raise ConfigError(f"{OTHER_RUN_KEY}: no finished run: {error}") from None
    prompt_hashes = {key: digest.hex() for key, digest in values.prompts.items()}
    return json.dumps(
        {"metric": result.main_metric, "values": dict(values.means), "prompts": prompt_hashes},
        sort_keys=True,
    )


def faults_of_user_files(plan: Plan) -> list[EvalFactoryError]:
    """Return the faults in files that the user provides for this run.

    The files are the user's own data, the judge's passport, and the other run of `differs_from`.
    """
    extra = plan.evaluation.extra
    errors: list[EvalFactoryError] = []
    faults = own_data_faults(plan.evaluation)
    if faults:
        errors.append(PrerequisiteError("\n  ".join(faults)))
    checks: list[Callable[[Plan], object]] = []
    if extra.judge_passport is not None:
        # imported late, to keep a dry run fast: few runs have a passport
        from eval_factory.scoring.judge_passports import check_passport

        checks.append(check_passport)
    checks.append(other_run_text)  # raises an error if the other run cannot be used
    for check in checks:
        try:
            check(plan)
        except EvalFactoryError as error:
            errors.append(error)
    return errors


def record_other_run(plan: Plan, data: DataRead) -> DataRead:
    """Write the facts about the other run to the folder, and return `data` with their hash.

    If the other run has changed, the hash differs, and an earlier run in this folder does not count
    as finished. If the rule names no other run, nothing is written and `data` is returned.
    """
    text = other_run_text(plan)
    if text is None:
        return data
    file = plan.rundir.model_configs / names.OTHER_RUN_FILE
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        # The checksums of the folder are deleted before a run changes a file.
        plan.rundir.forget_checksums()
        write_atomic(file, text, mode=PRIVATE)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return replace(data, own_files={**data.own_files, names.OTHER_RUN_FILE: digest})


def _refuse_other_questions(plan: Plan, result: TaskResult) -> None:
    """Check that this run and the other run have the same main metric and the same questions.

    Raises:
        ConfigError: The main metrics differ, no instance is in both runs, or the prompts of an
            instance differ.
    """
    from eval_factory.analysis.comparison_reasons import values_of

    other_run = parse_json(
        (plan.rundir.model_configs / names.OTHER_RUN_FILE).read_text(encoding="utf-8")
    )
    if result.main_metric != other_run["metric"]:
        raise ConfigError(
            f"{OTHER_RUN_KEY}: the main score of the other run is {other_run['metric']}, "
            f"and that of this run is {result.main_metric}"
        )
    if result.main_metric not in result.scores:
        return  # no instance has a value yet, so there are no questions to compare
    prompt_hashes = values_of(result.instances, result.scores[result.main_metric]).prompts
    shared = prompt_hashes.keys() & other_run["prompts"].keys()
    differing = sum(prompt_hashes[key].hex() != other_run["prompts"][key] for key in shared)
    if differing or not shared:
        comparison = (
            f"of {len(prompt_hashes)} instances {len(shared)} are in both runs, {differing} "
            "of them with different prompts"
        )
        raise ConfigError(f"{OTHER_RUN_KEY}: {comparison}; all answers so far are stored")
