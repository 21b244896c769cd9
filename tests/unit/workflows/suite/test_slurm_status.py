from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.executors.slurm_commands import QueuedTask
from eval_factory.workflows.suite.slurm_shards import Tasks, lines_of, part_keys
from eval_factory.workflows.suite.slurm_status import NOT_KNOWN, PUBLISHED, QueueReader, cancel_jobs
from eval_factory.workflows.suite.slurm_store import Ended, PlanLine, SlurmStore
from eval_factory.workflows.suite.suite_status import SuiteStatus, status_of
from slurm_cells import ScriptedSlurm
from suite_by_hand import CELLS, cell_ended, ended, started, suite_folder


class Jobs:
    """Four cells in one wave."""

    def __init__(self, folder: Path) -> None:
        self.dir = suite_folder(folder, started(), ended())
        self.store = SlurmStore(self.dir)
        self.wave = self.store.new_wave(self.store.begin(), [f"{cell}/0a" for cell in CELLS])
        self.store.write_plan(
            PlanLine(key, key.split("/")[0], key.split("/")[1], {}, 2, no_preflight=False, debug=False)
            for key in self.wave.keys
        )
        self.store.environment(1).touch()
        self.slurm = ScriptedSlurm([self.task(0, "RUNNING"), self.task(1), self.task(2, "COMPLETING")])
        self.now = 0.0
        self.reader = QueueReader(self.dir, self.slurm, lambda: self.now)  # type: ignore[arg-type]

    def task(self, index: int, state: str = "PENDING") -> QueuedTask:
        return QueuedTask(self.wave.job_name, "7", index, state, "Resources")

    def look(self) -> SuiteStatus:
        self.dir.state.joinpath("slurm").rename(self.dir.state / "hidden")
        plain = status_of(self.dir)
        self.dir.state.joinpath("hidden").rename(self.dir.state / "slurm")
        return self.reader.over(plain)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def told(status: SuiteStatus) -> list[tuple[str, str | None]]:
    return [(cell.state.status, cell.state.reason) for cell in status.cells]


def test_what_jobs_do_is_said_of_their_cells(jobs: Jobs) -> None:
    found = jobs.look()
    name = jobs.wave.job_name
    assert told(found) == [
        ("running", f"Slurm: {name} task 0, RUNNING"), ("waiting", f"Slurm: {name} task 1, PENDING"),
        ("running", f"Slurm: {name} task 2, COMPLETING"), ("missing", "not begun yet"),
    ]  # fmt: skip
    assert (found.state, found.pid, found.host) == ("running", None, None)


def test_what_has_ended_waits_for_the_command(jobs: Jobs) -> None:
    jobs.slurm.tasks = []
    jobs.store.cell(jobs.wave.keys[3]).folder.mkdir(parents=True)
    jobs.store.cell(jobs.wave.keys[3]).publish(Ended("a", "complete", 0, None, 1), 1, complete=True)
    found = jobs.look()
    assert told(found)[3] == ("missing", PUBLISHED)
    assert found.state == "ended"


def test_a_queue_that_is_not_known(jobs: Jobs) -> None:
    jobs.slurm.silent = 1
    assert told(jobs.look()) == [("missing", NOT_KNOWN)] * 4


def test_slurm_is_asked_now_and_then(jobs: Jobs) -> None:
    jobs.look()
    jobs.slurm.tasks = []
    jobs.now = 4.9
    assert jobs.look().state == "running"
    jobs.now = 5.0
    assert jobs.look().state == "ended"


def test_where_nothing_can_be_queued_nobody_is_asked(jobs: Jobs) -> None:
    jobs.slurm.silent = 9
    jobs.store.environment(1).unlink()
    assert told(jobs.look())[0] == ("missing", "not begun yet")
    assert jobs.slurm.silent == 9


def test_a_complete_cell_stays_complete_and_a_suite_without_slurm_as_it_is(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "a")
    with jobs.dir.events.open("a") as file:
        import json

        file.write(json.dumps(cell_ended(CELLS[0])) + "\n")
    assert told(jobs.look())[0][0] == "complete"
    plain = suite_folder(tmp_path / "b", started())
    assert QueueReader(plain, jobs.slurm).over(status_of(plain)) == status_of(plain)  # type: ignore[arg-type]


def test_cancelling_ends_every_job_and_takes_the_keys(jobs: Jobs) -> None:
    said: list[str] = []
    assert cancel_jobs(jobs.dir, said.append, jobs.slurm)  # type: ignore[arg-type]
    assert jobs.slurm.cancelled == [(jobs.wave.job_name, 0)]
    assert said == [f"asked Slurm to end {jobs.wave.job_name} ..."]
    assert jobs.store.cancelled.exists()
    assert not jobs.store.open_waves()
    assert not cancel_jobs(jobs.dir, said.append, jobs.slurm)  # type: ignore[arg-type]
    assert len(said) == 1


def test_nothing_was_ever_submitted(tmp_path: Path) -> None:
    assert not cancel_jobs(SuiteDir(tmp_path), print, ScriptedSlurm(silent=9))  # type: ignore[arg-type]


def test_jobs_that_do_not_end(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds * 100

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(jobs.slurm, "cancel", lambda *_: None)
    with pytest.raises(PrerequisiteError, match="have not ended after 120 s"):
        cancel_jobs(jobs.dir, print, jobs.slurm, sleep)  # type: ignore[arg-type]
    assert jobs.store.open_waves()


def test_a_cancelled_suite_waits_until_the_queue_is_empty(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            jobs.slurm.tasks = []

    monkeypatch.setattr(jobs.slurm, "cancel", lambda *_: None)
    assert cancel_jobs(jobs.dir, print, jobs.slurm, sleep)  # type: ignore[arg-type]
    assert slept == [0.5] * 3


def test_of_a_cell_in_parts_it_is_said_how_many_have_asked(jobs: Jobs) -> None:
    key = jobs.wave.keys[0]
    tasks, (first, *_) = Tasks(key, 3), part_keys(key, 3)
    line = next(line for line in jobs.store.plan() if line.key == key)
    jobs.store.write_plan(lines_of(line, tasks, tasks.first, "r1"))
    wave = jobs.store.new_wave("x", tasks.first)
    jobs.store.cell(first).new_attempt(2)
    (attempt,) = jobs.store.cell(first).attempts()
    (attempt / "out").mkdir()
    jobs.store.cell(first).publish(Ended(attempt.name, "complete", 0, None, 1), 2, complete=True)
    jobs.slurm.tasks = [
        QueuedTask(wave.job_name, "8", 1, "RUNNING", "None"), QueuedTask(wave.job_name, "8", 2, "PENDING", "None"),
    ]  # fmt: skip
    said = f"Slurm: {wave.job_name} task 1, RUNNING, 1 of 3 parts have asked"
    assert told(jobs.look())[0] == ("running", said)
