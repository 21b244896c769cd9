"""An output folder as a run leaves it, made without HELM: small files of HELM's form, a cache, and every report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders import context, evaluation
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.helm import names
from eval_factory.plan.run_plan import make_plan
from eval_factory.workflows.evaluate import collect_and_report
from eval_factory.workflows.helm_run import FinishedRun
from eval_factory.workflows.prepare import prepare_output_folder
from eval_factory.workflows.resume import DataRead
from unit.scoring.test_collect import FOUR, state, write_run

RUN = "helm/runs/s/r"


def finished_folder(
    root: Path,
    flags: dict[str, Any] | None = None,
    states: list[dict[str, Any]] | None = None,
    values: list[float | None] | None = None,
    **env: str,
) -> RunDir:
    """Make a finished run of four instances, two of them right, each with an answer of the model."""
    plan = make_plan(
        evaluation({"config.output_dir": str(root), **(flags or {})}, file=None, **env)
    )
    rundir = plan.rundir
    rundir.create()
    ctx = context(rundir)
    argv = ["helm-run", "--suite", "s"]
    prepare_output_folder(ctx, plan, argv, HelmRunSettings(), {}, fresh=False, debug=False)
    write_run(
        rundir.root / RUN,
        states=states or [state(i, "yes") for i in range(4)],
        values={"exact_match": values or [*FOUR]},
    )
    (rundir.helm / names.RUN_RECORD_FILE).write_text('{"patches": []}', "utf-8")
    cache = ResponseCache(rundir.cache_db, "run")
    for number in range(4):
        body = {"model": "org/model", "choices": [{"message": {"content": "yes"}}]}
        answer = Answer(f"k{number}", "model", "org/model", {"n": number}, body, 1.5 + number, 0.25)
        cache.save(answer, Attempt(answer.key, "model", 1, "answered", 200, None, 1.0, 0.25, 10, 2))
    cache.close()
    rundir.logs.mkdir(exist_ok=True)
    events = [{"time": at, "run_id": "run", "event": "phase"} for at in (1e9, 1e9 + 30)]
    rundir.events.write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
    with patch("eval_factory.workflows.resume.git_hash", return_value="abc123"):
        collect_and_report(
            ctx, plan, argv, FinishedRun((rundir.root / RUN,), "run", 2.5), DataRead()
        )
    return rundir
