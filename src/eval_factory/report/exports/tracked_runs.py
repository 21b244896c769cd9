"""Turns a result into a run for an experiment tracker: MLflow, or Weights & Biases (W&B).

A run has a name, tags, parameters, metrics and files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.report.exports.stored_facts import (
    access_of,
    may_export_texts,
    model_id,
    reasons_against_reporting,
    result_digest,
)
from eval_factory.report.inner_hosts import inner_hosts, is_public_platform, without_hosts
from eval_factory.report.reader import StoredResult

RESULT_TAG = "eval_factory.result"  # the tag that identifies a result among the tracker's runs
_MAX_PARAM = 500  # characters of a parameter; every version of MLflow accepts this number
MAX_TAG = 5000  # characters of a tag


@dataclass(frozen=True)
class TrackedRun:
    """The data of a result that are sent to an experiment tracker."""

    name: str  # the task and the model
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    artifacts: tuple[Path, ...]  # the files of the result
    inner_hosts: tuple[str, ...]
    """The internal hosts of the result. `tags` and `params` do not contain these hosts. The files
    in `artifacts` may contain them: send the files through `files_without_hosts`.
    """


def tracked_run(stored: StoredResult, *, with_texts: bool) -> TrackedRun:
    """Return the data of a result for an experiment tracker.

    `with_texts` includes the files with prompts and answers even if the benchmark's data are not
    public.
    """
    model = model_id(stored)
    result = stored.result
    hosts = inner_hosts(stored)
    rundir = RunDir(stored.folder)
    files = [rundir.evaluation_config, rundir.report_md]
    if with_texts or may_export_texts(stored):  # These files have prompts and answers.
        files += [rundir.report_html, rundir.results_jsonl]
    return TrackedRun(
        name=f"{result.task} {model}",
        tags=_tags(stored, model, hosts),
        params=_params(stored, model, hosts),
        metrics=_tracked_metrics(stored),
        artifacts=tuple(filter(Path.is_file, files)),
        inner_hosts=hosts,
    )


def _tags(stored: StoredResult, model: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return the tags of a run: identity, versions, status, and whether it may be reported."""
    result = stored.result
    provenance = result.provenance
    reportable = "false"  # A tag is a text.
    if result.reportable:
        reportable = "true"
    tags = {
        RESULT_TAG: result_digest(stored),
        "eval_factory.run_identity": provenance.run_identity,
        "eval_factory.version": provenance.eval_factory,
        "eval_factory.task": result.task,
        "eval_factory.model": model,
        "eval_factory.main_metric": result.main_metric,
        "eval_factory.status": result.status,
        "eval_factory.data_access": access_of(stored),
        "eval_factory.prompts_sha256": provenance.prompts_sha256,
        "eval_factory.reportable": reportable,
    }
    if provenance.imported is None:
        tags["helm.version"] = provenance.helm or "unknown"
        tags["helm.package"] = provenance.helm_package
    else:
        tags["eval_factory.imported_from"] = provenance.imported.source
    if reason := reasons_against_reporting(stored):
        tags["eval_factory.not_reportable"] = without_hosts(reason, hosts)[:MAX_TAG]
    return tags


def _params(stored: StoredResult, model: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return the task, the model and the settings as parameters, without names of internal hosts.

    The endpoint's host is a parameter only if the host belongs to a public platform.
    """
    params = {"task": stored.result.task, "model": model}
    endpoint = stored.result.provenance.endpoints.get(MODEL_ROLE)
    if endpoint is not None and is_public_platform(endpoint.host):
        params["endpoint"] = endpoint.host
    params |= dict(_flattened(stored.config.get("params") or {}, name="params"))
    for name, value in params.items():
        params[name] = without_hosts(value, hosts)[:_MAX_PARAM]
    return params


def _flattened(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (path, value as text) of each value in nested mappings; values of None are left out.

    A path is `name` followed by the keys, joined by dots. A list is one value.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flattened(inner, f"{name}.{_tracked_name(str(key))}")
    elif value is not None:
        yield name, str(value)


def _tracked_metrics(stored: StoredResult) -> dict[str, float]:
    """Return each score with its interval and count, and the numbers of instances by outcome.

    Values that are not finite are left out, because a tracker may refuse them.
    """
    metrics: dict[str, float] = {}
    for label, score in stored.result.scores.items():
        name = _tracked_name(label)
        stats = score.stats
        for ending, value in (
            ("", score.value),
            (".ci_low", stats.ci_low),
            (".ci_high", stats.ci_high),
        ):
            if value is not None and math.isfinite(value):
                metrics[name + ending] = value
        metrics[f"{name}.count"] = float(stats.count)
    for field in ("requested", "scored", "failed"):
        metrics[f"instances.{field}"] = float(getattr(stored.result.validity.instances, field))
    return metrics


def _tracked_name(label: str) -> str:
    """Return the label as a name that MLflow accepts: with letters, digits and `_-. /` only.

    `@` becomes `/`, and any other character becomes `_`. For example, `exact_match@test+typos`
    becomes `exact_match/test_typos`.
    """
    return re.sub(r"[^\w\-. /]", "_", label.replace("@", "/"))
