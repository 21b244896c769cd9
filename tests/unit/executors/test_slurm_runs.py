"""Runs in Slurm: what has become of them, and their keys."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import RunSuiteDir, SuiteDir
from eval_factory.executors import slurm_runs
from eval_factory.executors.runs import Ended, Lost, Started, Waiting
from eval_factory.executors.slurm_runs import refuse_run_in_slurm, wave_script
from eval_factory.executors.slurm_waves import RunEnd, SlurmStore, Wave
from facts import naming, says
from slurm_cells import RESOURCES, ScriptedSlurm, run_of, submitted, task

A, B = (run_of(name) for name in ("t/a/0", "t/b/0"))


class Runs(slurm_runs.SlurmRuns):
    """Of two waves with a run each."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = (submitted(SuiteDir(folder), name) for name in ("t/a/0", "t/b/0"))
        self.scripted = ScriptedSlurm()
        self.said = list[str]()
        super().__init__(SuiteDir(folder), self.scripted, say=self.said.append)  # type: ignore[arg-type]

    def keys(self) -> list[bool]:
        return [self.store.environment_file(number).exists() for number in (1, 2)]

    def queue(self, *waves: Wave) -> None:
        self.scripted.tasks = [task(wave.job_name, 0, "RUNNING") for wave in waves]
        self.poll()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.mark.parametrize(
    ("state", "reason", "found"),
    [
        ("RUNNING", "None", Started("Slurm: {} task 0, RUNNING")),
        ("COMPLETING", "PartitionConfig", Started("Slurm: {} task 0, COMPLETING")),
        ("PENDING", "None", Waiting("Slurm: {} task 0, PENDING")),
        ("PENDING", "Resources", Waiting("Slurm: {} task 0, PENDING", "Resources")),
        ("PENDING", "JobArrayTaskLimit", Waiting("Slurm: {} task 0, PENDING", "JobArrayTaskLimit")),
        (
            "PENDING",
            "(PartitionTimeLimit)",
            Waiting("Slurm: {} task 0, PENDING", "PartitionTimeLimit", never_starts=True),
        ),
        (
            "PENDING",
            "launch failed requeued held",
            Waiting("Slurm: {} task 0, PENDING", "launch failed requeued held", never_starts=True),
        ),
        ("STOPPED", "", Waiting("Slurm: {} task 0, STOPPED")),
    ],
)
def test_what_squeue_says_of_a_run(
    runs: Runs, state: str, reason: str, found: Waiting | Started
) -> None:
    runs.scripted.tasks = [task(runs.one.job_name, 0, state, reason)]
    assert runs.poll()["t/a/0"] == replace(found, where=found.where.format(runs.one.job_name))


def test_what_is_not_queued_has_ended_where_a_task_recorded_it(runs: Runs) -> None:
    (run,) = runs.one.runs
    runs.store.record_end(runs.one, run, RunEnd(4, "failed", "no", 2))
    assert runs.poll() == {"t/a/0": Ended(4), "t/b/0": Lost()}
    assert runs.recorded_end("t/a/0") == RunEnd(4, "failed", "no", 2)
    submitted(runs.store.suite, "t/a/0")
    assert (runs.poll()["t/a/0"], runs.recorded_end("t/a/0")) == (Lost(), None), (
        "it was started again"
    )


def test_what_is_waited_for_is_said_once(runs: Runs) -> None:
    runs.scripted.tasks = [
        task(runs.one.job_name, 0, reason="JobHeldUser"),
        task(runs.two.job_name, 0, reason="None"),
    ]
    for _ in range(3):
        runs.poll()
    held = "JobHeldUser"
    assert runs.said == [f"{runs.one.job_name} waits in Slurm: {held}"]


def test_a_job_is_submitted_that_deletes_the_keys_when_the_tasks_have_ended(runs: Runs) -> None:
    runs.queue(runs.two)
    runs.clean_up()
    ((after, text),) = runs.scripted.clean_ups
    assert after == "7"
    assert f"#SBATCH --job-name={runs.two.job_name}-clean-up\n" in text
    assert f"--name={runs.two.job_name} " in text
    assert f"exec rm -f -- {runs.store.environment_file(2)}\n" in text
    assert f"#SBATCH --output={runs.store.logs_folder(2)}/clean-up.log\n" in text
    runs.clean_up()
    assert len(runs.scripted.clean_ups) == 1
    assert (runs.keys(), runs.said) == ([False, True], []), "of the other wave no task is left"


def test_where_slurm_does_not_take_it_it_is_said_and_tried_again(runs: Runs) -> None:
    runs.scripted.refuses = True
    runs.queue(runs.one)
    runs.clean_up()
    (message,) = runs.said
    says(message, f"keys of {runs.one.job_name}", "next command", "sbatch")
    runs.scripted.refuses = False
    runs.clean_up()
    assert len(runs.scripted.clean_ups) == 1


def test_who_only_looks_leaves_keys_that_may_be_about_to_be_needed(runs: Runs) -> None:
    os.utime(runs.store.environment_file(1), (time.time() - 100,) * 2)
    runs.forget_keys(older_than_s=99)
    assert runs.keys() == [False, True]


def test_who_ends_some_runs_leaves_the_others_their_keys(runs: Runs) -> None:
    runs.queue(runs.one, runs.two)
    runs.end({"t/a/0"})
    assert runs.scripted.cancelled == [(runs.one.job_name, 1)]
    assert (runs.keys(), runs.store.cancelled.exists()) == ([True, True], False)
    runs.end()
    assert (runs.keys(), runs.store.cancelled.exists()) == ([False, False], True)


def test_the_script_begins_the_worker_with_this_python(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    text = wave_script([A, B], 3, store, job_name="ef-x-w3", worker=("-m", "worker"))
    assert "#SBATCH --job-name=ef-x-w3\n#SBATCH --array=0-1%2\n" in text
    assert text.splitlines()[-1] == f"exec {sys.executable} -m worker {store.wave_file(3)}"
    assert f"--output={store.logs_folder(3)}/%a.log" in text
    other = run_of("t/a/0", resources={**RESOURCES, "python": "/opt/python"})
    assert "exec /opt/python -m" in wave_script(
        [other], 1, store, job_name="n", worker=("-m", "worker")
    )
    servers = run_of("t/a/0", serve={"replicas": 3}, at_once=1)
    assert "#SBATCH --array=0-0%1\n#SBATCH --ntasks=3\n" in wave_script(
        [servers, servers], 1, store, job_name="n", worker=()
    )


def test_a_run_whose_job_is_queued_is_not_begun_here(tmp_path: Path) -> None:
    wave = submitted(RunSuiteDir(tmp_path / "out" / ".slurm"), "model/medec/0a")
    slurm: Any = ScriptedSlurm([task(wave.job_name, 0)])
    said = rf"(?s)^{tmp_path}/out: in Slurm already: {wave.job_name} \(model/medec, PENDING\)\n  wait for the end: "
    with pytest.raises(BusyError, match=rf"{said}.*suite cancel {tmp_path}/out"):
        refuse_run_in_slurm(tmp_path / "out", {}, slurm)
    slurm.tasks = []
    refuse_run_in_slurm(tmp_path / "out", {}, slurm)


def test_nor_a_cell_of_a_suite_in_slurm(tmp_path: Path) -> None:
    suite = SuiteDir(tmp_path)
    slurm: Any = ScriptedSlurm([task(submitted(suite, "a/medec/0a", "b/medec/0a").job_name, 1)])
    refuse_run_in_slurm(tmp_path / "a" / "medec", {}, slurm)
    slurm_runs.refuse_cells_in_slurm(suite, ["a/medec"], slurm)
    with pytest.raises(BusyError, match=r"b/medec, PENDING"):
        refuse_run_in_slurm(tmp_path / "b" / "medec", {}, slurm)
    with pytest.raises(BusyError, match=r"b/medec, PENDING"):
        slurm_runs.refuse_cells_in_slurm(suite, ["a/medec", "b/medec"], slurm)


def test_many_are_not_all_named(tmp_path: Path) -> None:
    names = [f"t/e{number}" for number in range(5)]
    job = submitted(SuiteDir(tmp_path), *(f"{name}/0a" for name in names)).job_name
    slurm: Any = ScriptedSlurm([task(job, index) for index in range(len(names))])
    with pytest.raises(BusyError, match=naming("(t/e2, PENDING)", "2 more")):
        slurm_runs.refuse_cells_in_slurm(SuiteDir(tmp_path), names, slurm)


def test_slurm_is_asked_only_where_a_task_may_be_there(tmp_path: Path) -> None:
    slurm: Any = ScriptedSlurm(silent=1)
    refuse_run_in_slurm(tmp_path / "out", {}, slurm)
    submitted(RunSuiteDir(tmp_path / "out" / ".slurm"), "model/medec/0a")
    with pytest.raises(PrerequisiteError, match=naming("squeue", "no controller")):
        refuse_run_in_slurm(tmp_path / "out", {}, slurm)
