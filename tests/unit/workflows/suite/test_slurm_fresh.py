from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import BusyError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm import QueuedTask, QueueUnknownError
from eval_factory.executors.slurm_runs import SlurmStore
from eval_factory.workflows.suite.slurm_suite import begin_anew, name_of
from slurm_cells import ScriptedSlurm, cells_of, submitted


class Answered:
    """Two cells, each with a result, and with an attempt of an earlier version."""

    def __init__(self, folder: Path) -> None:
        _, self.cells = cells_of(folder)
        self.store = SlurmStore(SuiteDir(folder))
        self.wave = submitted(SuiteDir(folder), *(name_of(cell) for cell in self.cells))
        for planned in self.cells:
            planned.plan.rundir.create()
            planned.plan.rundir.evaluation_config.touch()
            (self.store.root / "cells" / name_of(planned) / "attempts").mkdir(parents=True)
        self.slurm = ScriptedSlurm()

    def begin(self) -> None:
        begin_anew(self.cells, self.store, self.slurm)  # type: ignore[arg-type]

    def left(self) -> list[bool]:
        """Of each cell: its result, its attempts."""
        found = []
        for planned in self.cells:
            attempts = self.store.root / "cells" / name_of(planned)
            found += [planned.plan.rundir.evaluation_config.exists(), attempts.exists()]
        return found


@pytest.fixture
def answered(tmp_path: Path) -> Answered:
    return Answered(tmp_path)


def test_results_and_attempts_are_forgotten(answered: Answered) -> None:
    assert answered.left() == [True] * 4
    answered.begin()
    assert answered.left() == [False] * 4


def test_not_while_one_of_them_is_in_slurm(answered: Answered) -> None:
    answered.slurm.tasks = [QueuedTask(answered.wave.job_name, "7", 1, "PENDING", "None")]
    with pytest.raises(BusyError) as caught:
        answered.begin()
    assert str(caught.value).split("\n")[0] == "--fresh: in Slurm already: b/sample_medical_qa"
    assert f"eval-factory suite cancel {answered.store.suite.root}" in str(caught.value)
    assert answered.left() == [True] * 4


def test_nor_while_nobody_knows(answered: Answered) -> None:
    answered.slurm.silent = 1
    with pytest.raises(QueueUnknownError):
        answered.begin()
    assert answered.left() == [True] * 4


def test_a_folder_that_is_not_ours_is_left_alone(answered: Answered) -> None:
    first = answered.cells[0].plan.rundir
    first.marker.unlink()
    answered.begin()
    assert first.evaluation_config.exists()
