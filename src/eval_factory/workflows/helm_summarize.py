"""The one way to run helm-summarize, which makes the files that HELM's web pages are made of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from eval_factory.core.errors import HelmError
from eval_factory.executors.process import ProcessSpec, child_environment, run_logged
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.failures import how_it_ended

SUMMARIZE_TRIES = 2


def summarize(context: RunContext, argv: Sequence[str], *, keeps_log: bool = True) -> None:
    """helm-summarize; once more where it fails, because now and then it dies of what has nothing to do with the runs.

    (`AST constructor recursion depth mismatch` of Python's compiler, inside Mako.)

    Args:
        keeps_log: whether the log is there afterwards, and can be named.

    Raises:
        HelmError: it failed twice; with its last lines.
    """
    env, log = child_environment(context.env, (), {}), context.rundir.summarize_log
    spec = ProcessSpec(argv, env, context.rundir, context.lock, "", context.redactor)
    for _ in range(SUMMARIZE_TRIES):
        context.log.info("%s", shlex.join(argv))
        finished = run_logged(spec, log=log, on_tick=lambda: None)
        if finished.returncode == 0:
            return
        context.log.warning("helm-summarize ended with %d", finished.returncode)
    named = f"\n  log: {log}" if keeps_log else ""
    raise HelmError(f"{how_it_ended('helm-summarize', finished.returncode, finished.tail)}{named}")
