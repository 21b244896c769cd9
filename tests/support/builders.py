"""Evaluations and plans for tests, through the real configuration."""

from __future__ import annotations

import io
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.resolved import Evaluation
from eval_factory.core.results import Spent, SpentByRole, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import Adapter
from eval_factory.helm.output import HelmRun, StoredRunSpec
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.context import RunContext

MINIMAL: dict[str, Any] = {
    "config.type": "pubmed_qa",
    "config.output_dir": "/results/x",
    "target.api_endpoint.url": "https://host.example/v1",
    "target.api_endpoint.model_id": "org/model",
}


def evaluation(
    flags: dict[str, Any] | None = None, *, file: Path | None = None, **env: str
) -> Evaluation:
    given = {**MINIMAL, **(flags or {})}
    return build_evaluation(RunRequest(run_config=file, flags=given), load_framework(), env)


def plan(flags: dict[str, Any] | None = None) -> Plan:
    return make_plan(evaluation(flags))


def context(rundir: RunDir, screen: TextIO | None = None, lock: Any = None) -> RunContext:
    """Return the context of a run in a folder; without a lock nothing can be started in it."""
    log = logging.getLogger("test")
    return RunContext(
        rundir, lock, {"PATH": os.environ["PATH"]}, Redactor(), log, screen or io.StringIO()
    )


def endpoint_settings(**changes: Any) -> EndpointSettings:
    usual: dict[str, Any] = {
        "role": "model",
        "url": "http://h/v1",
        "model_id": "m",
        "endpoint_type": "chat",
        "key_names": (),
        "request_timeout": 10.0,
        "max_retries": 2,
        "parallelism": 4,
        "adapter": Adapter({}, [], {}, None, "<think>", "</think>"),
    }
    return EndpointSettings(**{**usual, **changes})


def draft(run: HelmRun | None = None, **known: Any) -> Draft:
    """A result in the making of which nothing but this is known."""
    none = SpentByRole(
        Spent(
            requests=0,
            cached=0,
            retries=0,
            prompt_tokens=None,
            completion_tokens=None,
            latency_p50_s=None,
            latency_p95_s=None,
        ),
        {},
    )
    of_run = run or HelmRun(Path(), StoredRunSpec(name="r"), [])
    return replace(Draft(plan(), of_run, "test", Tally(), [], Usage(none, none, 0, 0.0)), **known)
