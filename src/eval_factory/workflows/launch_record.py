"""What a run is about to do, as one record for other programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from eval_factory import __version__
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import RunContext


def launch_record(context: RunContext, plan: Plan, argv: Sequence[str]) -> dict[str, Any]:
    """Once the folder is held and the keys are found; redacted."""
    record: dict[str, Any] = {
        "event": "launch",
        "eval_factory": __version__,
        "task": plan.task_name,
        "model": plan.model.model_id,
        "url": plan.model.url,
        "judges": {judge.role: judge.model_id for judge in (*plan.judges, *plan.prescribed)},
        "limit_samples": plan.evaluation.run.config.params.limit_samples,
        "output_dir": str(plan.rundir.root),
        "run_identity": plan.identity,
        "command": shlex.join(argv),
        **plan.evaluation.as_given(),
    }
    redacted: dict[str, Any] = context.redactor.tree(record)
    return redacted
