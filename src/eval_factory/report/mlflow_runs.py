"""A stored result -> a run of an MLflow tracking server. MLflow is an extra, imported when something is exported."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.report import stored_facts
from eval_factory.report.reader import StoredResult

RESULT_TAG = "eval_factory.result"
"""By which a result that is there already is found."""
_MAX_VALUE = 500
"""Characters of a parameter: every version of MLflow takes so many."""
MAX_TAG = 5000
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Where not set: a server that is away is reported within seconds, nobody but the server learns of the export,
and MLflow prints nothing of its own."""


@dataclass(frozen=True)
class MlflowRun:
    """All that goes to the server."""

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    artifacts: tuple[Path, ...]


def run_of(stored: StoredResult, *, with_texts: bool) -> MlflowRun:
    """What is exported of a result. `with_texts`: also answers of benchmarks whose data are not public."""
    model, result, provenance = stored_facts.model_id(stored), stored.result, stored.result.provenance
    asked = provenance.endpoints.get(MODEL_ROLE)
    params = {"task": result.task, "model": model, **({} if asked is None else {"endpoint": asked.host})}
    params |= _flat(stored.config.get("params") or {}, "params")
    tags = {
        RESULT_TAG: stored_facts.result_digest(stored),
        "eval_factory.run_identity": provenance.run_identity,
        "eval_factory.version": provenance.eval_factory,
        "helm.version": provenance.helm or "unknown",
        "helm.package": provenance.helm_package,
        "eval_factory.task": result.task,
        "eval_factory.model": model,
        "eval_factory.main_metric": result.main_metric,
        "eval_factory.status": result.status,
        "eval_factory.data_access": stored_facts.access_of(stored),
        "eval_factory.prompts_sha256": provenance.prompts_sha256,
        "eval_factory.reportable": "true" if result.reportable else "false",
    }
    if reason := stored_facts.stored_reasons(stored):
        tags["eval_factory.not_reportable"] = reason[:MAX_TAG]
    rundir = RunDir(stored.folder)
    wanted = [rundir.evaluation_config, rundir.report_md]
    if with_texts or stored_facts.texts_may_leave(stored):  # prompts and answers are in these
        wanted += [rundir.report_html, rundir.results_jsonl]
    return MlflowRun(
        name=f"{result.task} {model}",
        tags=tags,
        params={name: value[:_MAX_VALUE] for name, value in params.items()},
        metrics=_metrics(stored),
        artifacts=tuple(path for path in wanted if path.is_file()),
    )


def connect(tracking_uri: str) -> Any:
    """A client of the server. Raises PrerequisiteError: MLflow is not installed, or does not know such an address."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise PrerequisiteError(
            f"MLflow is not installed ({error})\n  pip install 'eval-factory-helm[mlflow]'"
        ) from None
    try:
        return MlflowClient(tracking_uri=tracking_uri)
    except (MlflowException, ImportError) as error:  # the latter: `mlflow-skinny` has no databases
        raise PrerequisiteError(
            f"--tracking_uri {tracking_uri}: {error}\n  give the URL of a tracking server"
        ) from error


def log_run(run: MlflowRun, client: Any, experiment: str) -> tuple[str, bool]:
    """Send a run, unless the experiment has one of the same result that was sent to its end.

    Returns:
        The run's id, and whether it was there already, so that nothing was sent.

    Raises:
        PrerequisiteError: the server cannot be reached, or refuses it.
    """
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_experiment_by_name(experiment)
        experiment_id = client.create_experiment(experiment) if found is None else found.experiment_id
        wanted = f"tags.`{RESULT_TAG}` = '{run.tags[RESULT_TAG]}' and attributes.status = 'FINISHED'"
        there = client.search_runs([experiment_id], filter_string=wanted, max_results=1)
        if there:
            return there[0].info.run_id, True
        run_id = client.create_run(experiment_id, tags=dict(run.tags), run_name=run.name).info.run_id
        status = "FAILED"  # of a run that was interrupted: no result; FINISHED when it is complete
        try:
            for name, value in run.params.items():
                client.log_param(run_id, name, value)
            for name, number in run.metrics.items():
                client.log_metric(run_id, name, number)
            for path in run.artifacts:
                client.log_artifact(run_id, str(path))
            status = "FINISHED"
        finally:
            client.set_terminated(run_id, status=status)
    except (MlflowException, OSError) as error:  # uploads fail with errors of requests
        raise PrerequisiteError(
            f"MLflow did not take {run.name}: {error}\n  check --tracking_uri; the same command sends what is missing"
        ) from error
    return run_id, False


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Mappings within mappings, by their path; null means that nothing was set."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{_name(str(key))}")
    elif value is not None:
        yield name, str(value)


def _metrics(stored: StoredResult) -> dict[str, float]:
    """Each score with its interval and count; and how many instances have none."""
    found: dict[str, float] = {}
    for label, score in stored.result.scores.items():
        name, stats = _name(label), score.stats
        for ending, value in (("", score.value), (".ci_low", stats.ci_low), (".ci_high", stats.ci_high)):
            if value is not None and math.isfinite(value):
                found[name + ending] = value
        found[f"{name}.count"] = float(stats.count)
    for field in ("requested", "scored", "failed"):
        found[f"instances.{field}"] = float(getattr(stored.result.validity.instances, field))
    return found


def _name(label: str) -> str:
    """MLflow takes letters, digits and `_-. /` in names: `exact_match@test+typos` becomes `exact_match/test_typos`."""
    return re.sub(r"[^\w\-. /]", "_", label.replace("@", "/"))
