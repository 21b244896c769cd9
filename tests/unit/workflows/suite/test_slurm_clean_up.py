from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm import QueuedTask
from eval_factory.executors.slurm_runs import SlurmStore, clean_up_after, clean_up_after_all, forget_keys
from slurm_cells import ScriptedSlurm, cells_of


class Waves:
    """Two of them, with keys."""

    def __init__(self, folder: Path) -> None:
        self.store = SlurmStore(SuiteDir(folder))
        suite_id = self.store.begin()
        self.one, self.two = (self.store.new_wave(suite_id, [f"t/e/{number}"]) for number in (1, 2))
        for wave in (self.one, self.two):
            self.store.environment(wave.number).touch()
        self.asked: dict[str, Any] = dict(cells_of(folder)[0].slurm["a"])
        self.slurm = ScriptedSlurm()
        self.said: list[str] = []

    def keys(self) -> list[bool]:
        return [self.store.environment(number).exists() for number in (1, 2)]

    def task(self, wave: Any) -> QueuedTask:
        return QueuedTask(wave.job_name, "7", 0, "RUNNING", "None")

    def all(self, *tasks: QueuedTask) -> None:
        asked = {"t/e/1": self.asked, "t/e/2": self.asked}
        clean_up_after_all(self.store, tasks, asked, self.slurm, self.said.append)  # type: ignore[arg-type]


@pytest.fixture
def waves(tmp_path: Path) -> Waves:
    return Waves(tmp_path)


def test_a_job_is_submitted_that_begins_when_the_tasks_have_ended(waves: Waves) -> None:
    clean_up_after(waves.store, waves.two, "12", waves.asked, waves.slurm, waves.said.append)  # type: ignore[arg-type]
    ((after, text),) = waves.slurm.clean_ups
    assert after == "12"
    assert f"#SBATCH --job-name={waves.two.job_name}-clean-up\n" in text
    assert f"--name={waves.two.job_name} " in text
    assert f"exec rm -f -- {waves.store.environment(2)}\n" in text
    assert f"#SBATCH --output={waves.store.logs(2)}/clean-up.log\n" in text
    assert waves.store.clean_up_submitted(2).exists()
    assert waves.keys() == [True, True]
    assert waves.said == []


def test_where_slurm_does_not_take_it_it_is_said_and_tried_again(waves: Waves) -> None:
    waves.slurm.refuses = True
    waves.all(waves.task(waves.one))
    assert waves.said == [
        f"the keys of {waves.one.job_name} are deleted by its last task, or by the next command: sbatch does not take it"
    ]
    waves.slurm.refuses = False
    waves.all(waves.task(waves.one))
    assert [after for after, _ in waves.slurm.clean_ups] == ["7"]


def test_those_of_a_killed_submitter_are_found_by_the_names_of_their_jobs(waves: Waves) -> None:
    waves.all(waves.task(waves.one))
    assert len(waves.slurm.clean_ups) == 1, "of the other wave no task is left"
    waves.all(waves.task(waves.one), waves.task(waves.two))
    assert [text.count(waves.two.job_name) > 0 for _, text in waves.slurm.clean_ups] == [False, True]
    waves.store.clean_up_submitted(1).unlink()
    waves.store.environment(1).unlink()
    waves.all(waves.task(waves.one))
    assert len(waves.slurm.clean_ups) == 2, "there are no keys any more"


def test_keys_go_where_no_task_is_left(waves: Waves) -> None:
    forget_keys(waves.store, [waves.task(waves.two)])
    assert waves.keys() == [False, True]
    forget_keys(waves.store, [])
    assert waves.keys() == [False, False]


def test_who_only_looks_leaves_those_that_may_be_about_to_be_needed(waves: Waves) -> None:
    before = time.time() - 100
    os.utime(waves.store.environment(1), (before, before))
    forget_keys(waves.store, [], older_than_s=99)
    assert waves.keys() == [False, True]


def test_keys_that_are_another_users_raise_nothing(waves: Waves, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    forget_keys(waves.store, [])
    assert waves.keys() == [True, True]
