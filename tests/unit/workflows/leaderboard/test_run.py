"""A leaderboard's steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.helm import packages
from eval_factory.helm.standalone import standalone_model
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.run import fingerprints_of, look_for_prerequisites
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


def test_another_version_of_helm_is_refused_where_an_entry_needs_a_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(*run_specs: str) -> Any:
        entries = [SimpleNamespace(run_spec=name, arguments={}) for name in run_specs]
        return SimpleNamespace(row=SimpleNamespace(name="lite"), plans=(plan(),), to_run=lambda _plan: entries)

    look_for_prerequisites(job("mmlu", "ehr_sql"))
    monkeypatch.setattr(packages, "installed_helm", lambda: "0.5.99")
    look_for_prerequisites(job("mmlu"))
    with pytest.raises(PrerequisiteError, match=r"lite needs HELM .* 0\.5\.99 is installed"):
        look_for_prerequisites(job("mmlu", "ehr_sql"))
