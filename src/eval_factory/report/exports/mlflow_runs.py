"""Sends results to an MLflow server.

MLflow is an optional package, which is imported only for an export.
"""

from __future__ import annotations

import os
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.report.exports.tracked_runs import RESULT_TAG, TrackedRun
from eval_factory.report.inner_hosts import files_without_hosts

ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Environment variables that are set unless the user has set them. With these values, MLflow
reports within seconds that a server does not answer, sends no telemetry, and does not print the
URLs of runs.
"""


def mlflow_client(tracking_uri: str) -> Any:
    """Return a client of the MLflow server at this address.

    Raises PrerequisiteError if MLflow is not installed, or does not support the address.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise PrerequisiteError(
            f"MLflow is not installed ({error})\n  pip install 'mlflow-skinny>=2.14'"
        ) from None
    try:
        return MlflowClient(tracking_uri=tracking_uri)
    except (MlflowException, ImportError) as error:
        # `mlflow-skinny` lacks the packages that connect to a database: it raises an ImportError.
        raise PrerequisiteError(
            f"--tracking_uri {tracking_uri}: {error}\n  give the URL of a tracking server"
        ) from error


def log_mlflow_run(run: TrackedRun, client: Any, experiment: str) -> tuple[str, bool]:
    """Send a run, unless the experiment already has a complete run of the same result.

    Returns the id of the run, and True if the run existed already. Raises PrerequisiteError if the
    server cannot be reached or refuses the run.
    """
    from mlflow.exceptions import MlflowException

    try:
        experiment_id = _experiment_id(client, experiment)
        query = f"tags.`{RESULT_TAG}` = '{run.tags[RESULT_TAG]}' and attributes.status = 'FINISHED'"
        existing_runs = client.search_runs([experiment_id], filter_string=query, max_results=1)
        if existing_runs:
            return existing_runs[0].info.run_id, True
        created = client.create_run(experiment_id, tags=dict(run.tags), run_name=run.name)
        _send(run, client, created.info.run_id)
    # Uploads use the package `requests`, whose exceptions are OSErrors.
    except (MlflowException, OSError) as error:
        raise PrerequisiteError(
            f"MLflow did not accept {run.name}: {error}\n"
            "  check --tracking_uri and give the same command again: runs that are not complete "
            "are sent again, each as a new run"
        ) from error
    return created.info.run_id, False


def _experiment_id(client: Any, name: str) -> str:
    """Return the id of the experiment with this name; the experiment is created if needed."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name))
    return str(experiment.experiment_id)


def _send(run: TrackedRun, client: Any, run_id: str) -> None:
    """Send the parameters, metrics and files of a run, and end the run.

    The status of the run is then `FINISHED`; after an error or an interruption it is `FAILED`.
    """
    status = "FAILED"
    try:
        for name, value in run.params.items():
            client.log_param(run_id, name, value)
        for name, number in run.metrics.items():
            client.log_metric(run_id, name, number)
        with files_without_hosts(run.artifacts, run.inner_hosts) as files:
            for path in files:
                client.log_artifact(run_id, str(path))
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status=status)
