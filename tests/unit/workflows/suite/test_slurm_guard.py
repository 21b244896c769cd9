from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import RunSuiteDir, SuiteDir
from eval_factory.executors.slurm import QueuedTask, Wave
from eval_factory.executors.slurm_runs import MOST_NAMED, SlurmStore, refuse_cells_in_slurm, refuse_run_in_slurm
from slurm_cells import ScriptedSlurm


def submitted(folder: SuiteDir, *keys: str) -> Wave:
    store = SlurmStore(folder)
    wave = store.new_wave(store.begin(), keys)
    store.environment(wave.number).touch()
    return wave


def task(wave: Wave, index: int) -> QueuedTask:
    return QueuedTask(wave.job_name, "7", index, "PENDING", "Priority")


@pytest.mark.parametrize("key", ["model/medec/0a", "model/medec/0a.2-of-3"])
def test_a_run_whose_job_is_queued_is_not_begun_here(tmp_path: Path, key: str) -> None:
    wave = submitted(RunSuiteDir(tmp_path / "out" / ".slurm"), key)
    slurm = ScriptedSlurm([task(wave, 0)])
    with pytest.raises(BusyError) as caught:
        refuse_run_in_slurm(tmp_path / "out", {}, slurm)  # type: ignore[arg-type]
    assert str(caught.value).startswith(
        f"{tmp_path}/out: in Slurm already: {wave.job_name} (model/medec, PENDING)\n  wait for the end: "
    )
    assert f"suite cancel {tmp_path}/out" in str(caught.value)
    slurm.tasks = []
    refuse_run_in_slurm(tmp_path / "out", {}, slurm)  # type: ignore[arg-type]


def test_nor_a_cell_of_a_suite_in_slurm(tmp_path: Path) -> None:
    wave = submitted(SuiteDir(tmp_path), "a/medec/0a", "b/medec/0a")
    slurm = ScriptedSlurm([task(wave, 1)])
    refuse_run_in_slurm(tmp_path / "a" / "medec", {}, slurm)  # type: ignore[arg-type]
    with pytest.raises(BusyError, match=r"b/medec, PENDING"):
        refuse_run_in_slurm(tmp_path / "b" / "medec", {}, slurm)  # type: ignore[arg-type]
    refuse_cells_in_slurm(SuiteDir(tmp_path), ["a/medec"], slurm)  # type: ignore[arg-type]
    with pytest.raises(BusyError, match=r"b/medec, PENDING"):
        refuse_cells_in_slurm(SuiteDir(tmp_path), ["a/medec", "b/medec"], slurm)  # type: ignore[arg-type]


def test_many_are_not_all_named(tmp_path: Path) -> None:
    names = [f"t/e{number}" for number in range(MOST_NAMED + 2)]
    wave = submitted(SuiteDir(tmp_path), *(f"{name}/0a" for name in names))
    slurm = ScriptedSlurm([task(wave, index) for index in range(len(names))])
    with pytest.raises(BusyError, match=r"\(t/e2, PENDING\) and 2 more\n"):
        refuse_cells_in_slurm(SuiteDir(tmp_path), names, slurm)  # type: ignore[arg-type]


def test_slurm_is_asked_only_where_a_task_may_be_there(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(silent=1)
    refuse_run_in_slurm(tmp_path / "out", {}, slurm)  # type: ignore[arg-type]
    submitted(RunSuiteDir(tmp_path / "out" / ".slurm"), "model/medec/0a")
    with pytest.raises(PrerequisiteError, match=r"may be in Slurm, which does not say: squeue .* no controller\n"):
        refuse_run_in_slurm(tmp_path / "out", {}, slurm)  # type: ignore[arg-type]
