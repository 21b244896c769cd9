"""`extra.stop_when`: helm-run again and again on more of one random order, until a rule holds.

Each look is a helm-run of its own: what earlier ones asked the response cache answers. So it works for every task, jury
and rubric; and a run that was killed goes through the looks again, and asks only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eval_factory.config.evaluation import Evaluation
from eval_factory.config.model import StopWhen
from eval_factory.core import formats
from eval_factory.core.errors import HelmError
from eval_factory.core.formats import rounded
from eval_factory.core.results import StoppedEarly
from eval_factory.helm.command import command_line
from eval_factory.plan.run_plan import Plan
from eval_factory.report.documents import DIGITS_OF_SECONDS
from eval_factory.workflows.other_run import refuse_other_questions

if TYPE_CHECKING:
    from eval_factory.workflows.context import RunContext
    from eval_factory.workflows.helm_run import Ran
    from eval_factory.workflows.resume import DataRead


def look_to_begin_with(plan: Plan) -> int | None:
    """Instances of the folder's last look, or of the first one that there will be; None without a rule."""
    stop = plan.evaluation.stop_when
    if stop is None:
        return None
    from eval_factory.helm.output import drawn_sample  # few runs have a rule

    drawn = drawn_sample(plan.rundir.helm)
    return stop.first if drawn is None else drawn.asked


def grid_line(evaluation: Evaluation) -> str | None:
    """The rule, and how many instances each look asks; None without a rule."""
    stop, there = evaluation.stop_when, evaluation.task.about.instances
    if stop is None:
        return None
    from eval_factory.scoring.sequential import looks_up_to

    limit = evaluation.run.config.params.limit_samples
    most = min((one for one in (limit, there) if one is not None), default=None)
    sizes = ", ".join(map(str, looks_up_to(stop.first, most or 4 * stop.first)))
    asked = f"{sizes}{'' if most else ', ... all'} instances at most, in the order of seed {stop.seed}"
    return f"stop_when {stop.text}: {asked}"


def ask_in_looks(
    context: RunContext, plan: Plan, stop: StopWhen, read: DataRead, ask: Callable[[Sequence[str]], Ran], *, debug: bool
) -> tuple[Ran, Sequence[str]]:
    """The last look, with the time of all, and the arguments of its helm-run.

    Args:
        ask: runs helm-run with these arguments to its end.

    Raises:
        ConfigError: no look can say whether the rule holds.
    """
    from eval_factory.scoring.collect import collect
    from eval_factory.workflows.prepare import write_run_config

    limit, size, wall_s = plan.evaluation.run.config.params.limit_samples, stop.first, 0.0
    while True:
        argv = command_line(plan, debug=debug, at_most=size)
        write_run_config(context, plan, argv)
        ran = ask(argv)
        wall_s = rounded(wall_s + ran.wall_s, DIGITS_OF_SECONDS)
        ran = replace(ran, wall_s=wall_s)
        result = collect(plan, ran.folders, run_id=ran.run_id, wall_s=wall_s, git_hash=None, data_bundle=read.bundle)
        refuse_other_questions(plan, result)
        found = result.validity.stopped_early
        if found is None:
            raise HelmError(f"{plan.rundir.helm}: nothing says which instances were drawn; log: {plan.rundir.helm_log}")
        most = min(limit or found.of, found.of)
        size = min(2 * size, most)
        ends = found.holds or found.asked == most
        context.say(look_line(result.main_metric, found, None if ends else size))
        if ends:
            return ran, argv


def look_line(metric: str, found: StoppedEarly, then: int | None) -> str:
    """Of the last look. `then`: instances of the next one; None where it was the last."""
    look = found.looks[-1]
    what = f"difference of {metric}" if "differs_from" in found.rule else metric
    interval = formats.between(look.ci_low, look.ci_high) or "no interval"
    goes_on = "the run ends" if then is None else f"{then} are asked next"
    holds = "holds" if found.holds else "does not hold"
    asked = f"{found.asked} of {found.of} instances, {what} {formats.score(look.value)} ({interval})"
    return f"look {len(found.looks)}: {asked}; {found.rule_text} {holds}: {goes_on}"
