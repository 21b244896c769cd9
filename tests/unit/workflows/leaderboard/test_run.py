"""A leaderboard's steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eval_factory.core.rundir import RunDir
from eval_factory.helm.standalone import standalone_model
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.run import fingerprints_of
from unit.builders import context, plan

MODEL = standalone_model(load_framework(), url="https://h/v1", model_id="m")


def test_edited_data_are_other_runs(tmp_path: Path) -> None:
    """By what they hold: a file that is only touched is the same."""
    rundir, own = RunDir(tmp_path / "out"), tmp_path / "own.csv"
    rundir.create()
    entry = SimpleNamespace(argument=lambda _name: str(tmp_path / "own.csv"))
    job: Any = SimpleNamespace(rundir=rundir, to_run=lambda _plan: [entry])

    def identity() -> str:
        data = fingerprints_of(context(rundir), job, plan())
        return finished_runs.identity_of("c", [MODEL], max_eval_instances=5, num_train_trials=1, data=data)

    own.write_text("a")
    before = identity()
    own.write_text("a")
    assert identity() == before
    own.write_text("b")
    assert identity() != before
    own.unlink()
    assert identity() == finished_runs.identity_of("c", [MODEL], max_eval_instances=5, num_train_trials=1)
