"""What every export has to know of a stored result: of which task and model it is, and what of it may be passed on."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from eval_factory.core.results import MODEL_ROLE
from eval_factory.report.papers import OWN_FILES
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.framework import Task, load_framework

PUBLIC = "public"


def task_of(stored: StoredResult) -> Task | None:
    """The entry of framework.yml; None for a run entry of HELM's and a custom benchmark."""
    return load_framework().task(stored.result.task)


def access_of(stored: StoredResult) -> str:
    """Who may read the data: `about.access` of the task; unknown of what framework.yml does not have.

    A public task is private where it read the user's own files.
    """
    task = task_of(stored)
    if task is None:
        return "unknown"
    has_own_files = not stored.extra.keys().isdisjoint(OWN_FILES)
    return "private" if has_own_files and task.about.access == PUBLIC else task.about.access


def texts_may_leave(stored: StoredResult) -> bool:
    """Whether prompts, references and answers may stand in an export: where everybody can read the data anyway."""
    return access_of(stored) == PUBLIC


def is_of_a_model(stored: StoredResult) -> bool:
    """False for the embedded demo endpoint, whatever model id the run config gave it."""
    asked = stored.result.provenance.endpoints.get(MODEL_ROLE)
    return asked is None or asked.model == stored.result.provenance.target


def model_id(stored: StoredResult) -> str:
    """The evaluated model, as it was asked for."""
    target = stored.result.provenance.target
    return target if is_of_a_model(stored) else f"eval-factory/{target.replace(' ', '-')}"


def result_digest(stored: StoredResult) -> str:
    """Tells results apart: the same for the same run with the same scores and counts, wherever its folder lies."""
    result = stored.result
    known: dict[str, Any] = {
        "task": result.task,
        "run_identity": result.provenance.run_identity,
        "prompts_sha256": result.provenance.prompts_sha256,
        "status": result.status,
        "scores": {name: [score.value, score.stats.count] for name, score in sorted(result.scores.items())},
        "scored": result.validity.instances.scored,
        "failed": result.validity.instances.failed,
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def stored_reasons(stored: StoredResult) -> str:
    """Empty for a result that may be reported."""
    result = stored.result
    if result.reportable:
        return ""
    instances = result.validity.instances
    counts = f"{instances.scored} of {instances.requested} instances have a score"
    return "; ".join([*result.validity.short_reasons, counts])


def hub_dataset(task: Task) -> str | None:
    """The data set's id on the Hugging Face Hub, where the task's data are from there."""
    found = re.fullmatch(r"Hugging Face ([\w.-]+/[\w.-]+)", task.about.source)
    return found[1] if found else None
