"""Exports a result as an offline run of Weights & Biases (W&B).

The client of W&B is an optional package, which is imported only for an export.
"""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.report.exports.tracked_runs import RESULT_TAG, TrackedRun
from eval_factory.report.inner_hosts import files_without_hosts


def write_wandb_run(run: TrackedRun, project: str, folder: Path) -> str:
    """Write an offline run of W&B into a folder, and return the path of the run's own folder.

    Nothing is sent: the user uploads the run with `wandb sync`. The run's id depends on the result
    alone: if the user uploads a second export of the result, W&B still has one run of the result.
    Raises PrerequisiteError if the client of W&B is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise PrerequisiteError(
            f"the client of W&B is not installed ({error})\n  pip install 'wandb>=0.18'"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
    )  # The settings keep facts about this machine out of the run.
    started = wandb.init(
        project=project,
        name=run.name,
        id=run.tags[RESULT_TAG][:32],  # half of the hash is enough to identify a result
        dir=str(folder),
        mode="offline",
        config={**run.params, **run.tags},
        settings=settings,
    )
    started.summary.update(dict(run.metrics))
    artifact = wandb.Artifact("result", type="evaluation")
    with files_without_hosts(run.artifacts, run.inner_hosts) as files:
        for path in files:
            artifact.add_file(str(path), name=path.name)
        started.log_artifact(artifact)
        started.finish()
    return str(Path(started.dir).parent)  # `dir` is the folder `files` in the run's own folder
