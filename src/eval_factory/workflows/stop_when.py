"""`extra.stop_when` runs helm-run again and again on more of one random order, until a rule holds.

Each look is a helm-run of its own: what earlier ones asked the response cache answers. So it works
for every task, jury and rubric; and a run that was killed goes through the looks again, and asks
only what is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.config.model import StopWhen
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import data_faults
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, EvalFactoryError, HelmError, PrerequisiteError
from eval_factory.core.formats import rounded
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.helm import names
from eval_factory.helm.command import command_line
from eval_factory.plan.run_plan import STOP_WHEN, Plan

if TYPE_CHECKING:
    from eval_factory.core.results import StoppedEarly, TaskResult
    from eval_factory.workflows.context import RunContext
    from eval_factory.workflows.helm_run import FinishedRun
    from eval_factory.workflows.resume import DataRead

# modules that only runs with a rule need are imported inside functions: a dry run is quick
WHERE = f"{STOP_WHEN}.differs_from"


def first_look_size(plan: Plan) -> int | None:
    """Instances of the folder's last look, or of the first one that there will be; None without
    a rule.
    """
    if (stop := plan.evaluation.stop_when) is None:
        return None
    from eval_factory.helm.output import read_run_record

    drawn = read_run_record(plan.rundir.helm).drawn_sample
    if drawn is None:
        return stop.first
    return drawn.asked


def looks_line(evaluation: Evaluation) -> str | None:
    """Return the rule, and how many instances each look asks; None without a rule."""
    if (stop := evaluation.stop_when) is None:
        return None
    from eval_factory.scoring.sequential import looks_up_to

    limits = (evaluation.params.limit_samples, evaluation.task.about.instances)
    max_instances = min((limit for limit in limits if limit is not None), default=None)
    sizes = ", ".join(map(str, looks_up_to(stop.first, max_instances or 4 * stop.first)))
    if max_instances is None:
        sizes += ", ... all"
    return f"stop_when {stop.text}: {sizes} instances at most, in the order of seed {stop.seed}"


def ask_in_looks(
    context: RunContext,
    plan: Plan,
    stop: StopWhen,
    read: DataRead,
    ask: Callable[[Sequence[str]], FinishedRun],
    *,
    debug: bool,
) -> tuple[FinishedRun, Sequence[str]]:
    """Return the last look, with the time of all, and the arguments of its helm-run. `ask`: runs
    helm-run with these arguments to its end.

    Raises:
        ConfigError: no look can say whether the rule holds.
    """
    from eval_factory.report.documents import DIGITS_OF_SECONDS
    from eval_factory.scoring.collect import collect
    from eval_factory.workflows.prepare import write_run_config

    limit = plan.evaluation.params.limit_samples
    size = stop.first
    wall_s = 0.0
    while True:
        argv = command_line(plan, debug=debug, at_most=size)
        write_run_config(context, plan, argv)
        ran = ask(argv)
        wall_s = rounded(wall_s + ran.wall_s, DIGITS_OF_SECONDS)
        ran = replace(ran, wall_s=wall_s)
        result = collect(
            plan,
            ran.folders,
            run_id=ran.run_id,
            wall_s=wall_s,
            git_hash=None,
            data_bundle=read.bundle,
        )
        if stop.differs_from is not None:
            _refuse_other_questions(plan, result)
        if (stopped := result.validity.stopped_early) is None:
            raise HelmError(
                f"{plan.rundir.helm}: nothing says which instances were drawn; log: "
                f"{plan.rundir.helm_log}"
            )
        max_instances = min(limit or stopped.of, stopped.of)
        size = min(2 * size, max_instances)
        is_last = stopped.holds or stopped.asked == max_instances
        context.say(_look_line(result.main_metric, stopped, None if is_last else size))
        if is_last:
            return ran, argv


def _look_line(metric: str, stopped: StoppedEarly, then: int | None) -> str:
    """Return the line of a look. `then`: instances of the next one; None if it was the last."""
    look = stopped.looks[-1]
    measure = f"difference of {metric}" if "differs_from" in stopped.rule else metric
    interval = formats.between(look.ci_low, look.ci_high) or "no interval"
    goes_on = "the run ends" if then is None else f"{then} are asked next"
    holds = "holds" if stopped.holds else "does not hold"
    figures = (
        f"{stopped.asked} of {stopped.of} instances, "
        f"{measure} {formats.score(look.value)} ({interval})"
    )
    return f"look {len(stopped.looks)}: {figures}; {stopped.rule_text} {holds}: {goes_on}"


def other_run_text(plan: Plan) -> str | None:
    """JSON of the run that `differs_from` names: main metric, its values and hashes of prompts by
    id; None without one. Raises ConfigError: it is no finished run, or of another evaluation.
    """
    if (stop := plan.evaluation.stop_when) is None or (folder := stop.differs_from) is None:
        return None
    from eval_factory.analysis.comparison_reasons import values_of
    from eval_factory.report.reader import load_result

    try:
        result = load_result(folder).result
        if Path(folder).resolve() == plan.evaluation.output_dir.resolve():
            raise ConfigError(f"{WHERE}: {folder} is the output folder of this run")
        theirs = f"{result.task} on {result.provenance.upstream}"
        ours = f"{plan.task_name} on {plan.upstream.name}"
        if theirs != ours:
            raise ConfigError(f"{WHERE}: {folder} is a run of {theirs}, and this run is of {ours}")
        is_measured = result.reportable or result.is_demo
        if not is_measured or result.something_to_ask:
            raise ConfigError(
                f"{WHERE}: the run in {folder} is not complete, or not reportable; "
                "run it again first"
            )
        values = values_of(result.instances, result.scores[result.main_metric])
    except PrerequisiteError as error:
        raise ConfigError(f"{WHERE}: no finished run: {error}") from None
    prompts = {key: prompt.hex() for key, prompt in values.prompts.items()}
    return json.dumps(
        {"metric": result.main_metric, "values": dict(values.values), "prompts": prompts},
        sort_keys=True,
    )


def faults_of_own_files(plan: Plan) -> list[EvalFactoryError]:
    """Return the faults of a run's own files: the user's own data are not as the task needs them;
    the judge's passport, or the other run, is not of this evaluation.
    """
    extra = plan.evaluation.extra
    wrong = data_faults(plan.evaluation)
    errors: list[EvalFactoryError] = [PrerequisiteError("\n  ".join(wrong))] if wrong else []
    checks: list[Callable[[Plan], object]] = [other_run_text]
    if extra.judge_passport is not None:
        from eval_factory.scoring.judge_passports import (
            check_passport,
        )  # few runs have one, and a dry run is quick

        checks.insert(0, check_passport)
    for check in checks:
        try:
            check(plan)
        except EvalFactoryError as error:
            errors.append(error)
    return errors


def with_other_run(plan: Plan, read: DataRead) -> DataRead:
    """Keeps the other run's instances in the folder: if they have changed, what they ended is
    not finished.
    """
    if (text := other_run_text(plan)) is None:
        return read
    file = plan.rundir.model_configs / names.OTHER_RUN
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        plan.rundir.forget_checksums()
        write_atomic(file, text, mode=PRIVATE)
    return replace(
        read,
        own_files={**read.own_files, names.OTHER_RUN: hashlib.sha256(text.encode()).hexdigest()},
    )


def _refuse_other_questions(plan: Plan, result: TaskResult) -> None:
    """Check that both runs have the same questions and main score. Raises ConfigError: no instance
    is in both runs, or they differ in words or main score.
    """
    from eval_factory.analysis.comparison_reasons import values_of

    other_run = parse_json(
        (plan.rundir.model_configs / names.OTHER_RUN).read_text(encoding="utf-8")
    )
    if result.main_metric != other_run["metric"]:
        raise ConfigError(
            f"{WHERE}: the main score of the other run is {other_run['metric']}, "
            f"and that of this run is {result.main_metric}"
        )
    if result.main_metric not in result.scores:
        return
    here = values_of(result.instances, result.scores[result.main_metric]).prompts
    shared = here.keys() & other_run["prompts"].keys()
    differing = sum(here[key].hex() != other_run["prompts"][key] for key in shared)
    if differing or not shared:
        shared_prompts = (
            f"of {len(here)} instances {len(shared)} are in both runs, {differing} "
            "of them asked in other words"
        )
        raise ConfigError(f"{WHERE}: {shared_prompts}; what was answered is kept")
