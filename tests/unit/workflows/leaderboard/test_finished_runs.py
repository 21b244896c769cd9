"""What changes a run's identity, and how much of it is there."""

from __future__ import annotations

from dataclasses import replace

from eval_factory.helm.standalone import standalone_model
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.finished_runs import Gaps

MODEL = standalone_model(load_framework(), url="https://h/v1", model_id="m")


def test_identity() -> None:
    def identity(conf: str = "c", instances: int = 5, **changes: object) -> str:
        return finished_runs.identity_of(
            conf,
            [replace(MODEL, **changes)],  # type: ignore[arg-type]
            max_eval_instances=instances,
            num_train_trials=1,
        )

    assert identity() == identity(parallelism=99, key_names=("X",))
    assert len({identity(), identity("d"), identity(instances=6), identity(url="https://other/v1")}) == 4


def test_coverage() -> None:
    assert Gaps("r", 10, 1, 2).coverage == 0.7
    assert Gaps("r", 10, 0, 0).coverage == 1.0
    assert not Gaps("r", 10, 0, 0)
    assert Gaps("r", 0, 0, 0).coverage == 0.0
