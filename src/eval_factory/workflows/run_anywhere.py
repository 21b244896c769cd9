"""One run, where its configuration says that it is to be done: here, or as a job of Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.evaluate import evaluate
from eval_factory.workflows.options import Evaluated, Options, Submitted


def run_anywhere(
    request: Request, options: Options, *, wait: bool, env: Mapping[str, str], screen: TextIO
) -> Evaluated | Submitted:
    """
    Args:
        wait: for the end of a job, which is then collected; else it is submitted, or collected where it has ended.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    if not evaluation.executor.is_slurm:
        from eval_factory.executors.slurm_runs import refuse_run_in_slurm

        refuse_run_in_slurm(evaluation.output_dir, env)
        return evaluate(request, options, env=env, screen=screen, evaluation=evaluation)
    from eval_factory.workflows.suite.slurm_run import run_as_job  # most runs need nothing of suites

    return run_as_job(evaluation, options, wait=wait, env=env, screen=screen)
