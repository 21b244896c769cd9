"""Facts that every export has to know: of which task and model a result is, and what of it may be
passed on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import NotReportableError
from eval_factory.report.papers import OWN_FILE_PARAMS
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.framework import Task, load_framework

PUBLIC = "public"


def task_of(stored: StoredResult) -> Task | None:
    """Return the task; None for a run entry of HELM's and a custom benchmark."""
    return load_framework().task(stored.result.task)


def access_of(stored: StoredResult) -> str:
    """Return who may read the data: `about.access` of the task, but private if it read the
    user's own files; unknown of what framework.yml does not have.
    """
    task = task_of(stored)
    if task is None:
        return "unknown"
    has_own_files = not stored.extra.keys().isdisjoint(OWN_FILE_PARAMS)
    if has_own_files and task.about.access == PUBLIC:
        return "private"
    return task.about.access


def texts_may_leave(stored: StoredResult) -> bool:
    """Return whether prompts, references and answers may stand in an export: only if everybody can
    read the data anyway.
    """
    return access_of(stored) == PUBLIC


def is_of_a_model(stored: StoredResult) -> bool:
    """Return False for the embedded demo endpoint, whatever model id the run config gave it."""
    endpoint = stored.result.provenance.endpoints.get(MODEL_ROLE)
    return endpoint is None or endpoint.model == stored.result.provenance.target


def refuse_demo(stored: StoredResult) -> None:
    """Raise NotReportableError: the embedded endpoint was evaluated, and nothing was measured."""
    if not is_of_a_model(stored) or stored.result.is_demo:
        raise NotReportableError(
            f"{stored.folder}: demo: the embedded endpoint was evaluated, which is not a model\n"
            "  run it with the url and model_id of a model, and export that result"
        )


def model_id(stored: StoredResult) -> str:
    """Return the evaluated model, as it was asked for."""
    target = stored.result.provenance.target
    if not is_of_a_model(stored):
        return f"eval-factory/{target.replace(' ', '-')}"
    return target


def result_digest(stored: StoredResult) -> str:
    """Return a hash that tells results apart: the same for the same run with the same scores and
    counts, wherever its folder lies.
    """
    result = stored.result
    scores = {}
    for name, score in result.scores.items():
        scores[name] = [score.value, score.stats.count]
    parts: dict[str, Any] = {
        "task": result.task,
        "run_identity": result.provenance.run_identity,
        "prompts_sha256": result.provenance.prompts_sha256,
        "status": result.status,
        "scores": scores,
        "scored": result.validity.instances.scored,
        "failed": result.validity.instances.failed,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sampling_of(stored: StoredResult) -> dict[str, Any]:
    """Return the finite numbers that were sent with each request to the model; none where requests
    had different ones.
    """
    endpoint = stored.result.provenance.endpoints.get(MODEL_ROLE)
    sent: Mapping[str, Any] = {}
    if endpoint is not None and len(endpoint.sampling) == 1:
        sent = endpoint.sampling[0]
    numbers = {}
    for name, value in sent.items():
        if isinstance(value, int | float) and math.isfinite(value):
            numbers[name] = value
    return numbers


def stored_reasons(stored: StoredResult) -> str:
    """Return why a result may not be reported; empty for one that may be."""
    result = stored.result
    if result.reportable:
        return ""
    instances = result.validity.instances
    counts = f"{instances.scored} of {instances.requested} instances have a score"
    return "; ".join([*result.validity.short_reasons, counts])


def hub_dataset(task: Task) -> str | None:
    """Return the data set's id on the Hugging Face Hub, if the task's data are from there."""
    match = re.fullmatch(r"Hugging Face ([\w.-]+/[\w.-]+)", task.about.source)
    if not match:
        return None
    return match[1]
