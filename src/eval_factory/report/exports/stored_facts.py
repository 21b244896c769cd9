"""Returns facts about a stored result for the exports.

For example, these are the task, the model, the settings, and whether an export may contain texts of
the data.
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
from eval_factory.report.paper_facts import OWN_FILE_PARAMS
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.framework import Task, load_framework

PUBLIC = "public"  # the access of data that everybody can read


def task_of(stored: StoredResult) -> Task | None:
    """Return the task of a result; None for a HELM run entry or a custom benchmark."""
    return load_framework().task(stored.result.task)


def access_of(stored: StoredResult) -> str:
    """Return who may read the data of a result: the task's `about.access`.

    The access is `private` if the run read the user's own files instead of public data. The
    access is `unknown` if `task_of` does not know the task.
    """
    task = task_of(stored)
    if task is None:
        return "unknown"
    has_own_files = not stored.extra.keys().isdisjoint(OWN_FILE_PARAMS)
    if has_own_files and task.about.access == PUBLIC:
        return "private"
    return task.about.access


def may_export_texts(stored: StoredResult) -> bool:
    """Return True if an export may have prompts, references and answers.

    An export may have these texts only if the data are public.
    """
    return access_of(stored) == PUBLIC


def is_of_real_model(stored: StoredResult) -> bool:
    """Return False if the result says that the embedded demo endpoint answered, else True."""
    endpoint = stored.result.provenance.endpoints.get(MODEL_ROLE)
    if endpoint is None:
        return True
    # The target of a real run is the endpoint's model. The target of a demo is "demo baseline".
    return endpoint.model == stored.result.provenance.target


def refuse_demo(stored: StoredResult) -> None:
    """Raise NotReportableError if the embedded demo endpoint was evaluated."""
    # If the result records no endpoint, only `is_demo` shows that the result is a demo.
    if not is_of_real_model(stored) or stored.result.is_demo:
        raise NotReportableError(
            f"{stored.folder}: demo: the embedded endpoint was evaluated, which is not a model\n"
            "  run the task with the url and model_id of a model, and export that result"
        )


def model_id(stored: StoredResult) -> str:
    """Return the id of the evaluated model, as the id was sent in requests.

    If the result says that the demo endpoint answered, return an id that no model has:
    `eval-factory/demo-baseline`.
    """
    target = stored.result.provenance.target
    if not is_of_real_model(stored):
        return f"eval-factory/{target.replace(' ', '-')}"
    return target


def scorer_of(stored: StoredResult, metric: str) -> str:
    """Return a metric with the program that computed it, such as `helm.exact_match`.

    For an imported result, the program is the one that made the result, such as `inspect_ai`;
    eval-factory itself computed the scores that were added to the result.
    """
    imported = stored.result.provenance.imported
    if imported is None:
        return f"helm.{metric}"
    if metric in imported.added:
        return f"eval-factory.{metric}"
    return f"{imported.program}.{metric}"


def result_digest(stored: StoredResult) -> str:
    """Return a hash that identifies a result.

    The hash depends on the run, its scores and its counts, but not on the path of the folder.
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
    """Return the settings that were sent with each request to the model, by name.

    Only numbers and booleans are returned; numbers that are not finite are left out. The dict is
    empty if the requests did not all have the same settings.
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


def reasons_against_reporting(stored: StoredResult) -> str:
    """Return why a result must not be reported; an empty string if the result may be reported."""
    result = stored.result
    if result.reportable:
        return ""
    instances = result.validity.instances
    counts = f"{instances.scored} of {instances.requested} instances have a score"
    return "; ".join([*result.validity.short_reasons, counts])


def hub_dataset(task: Task) -> str | None:
    """Return the id of the task's data set on the Hugging Face Hub; None for other sources."""
    # `qiaojin/PubMedQA` of `Hugging Face qiaojin/PubMedQA`
    match = re.fullmatch(r"Hugging Face ([\w.-]+/[\w.-]+)", task.about.source)
    if match is None:
        return None
    return match[1]
