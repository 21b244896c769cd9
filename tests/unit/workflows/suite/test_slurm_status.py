from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm import QueuedTask
from eval_factory.executors.slurm_waves import RunEnd, SlurmStore
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.slurm_worker import Start
from eval_factory.workflows.suite.suite_folder import cancel
from eval_factory.workflows.suite.suite_status import (
    TASK_GONE,
    SuiteReader,
    SuiteStatus,
    read_suite_status,
)
from facts import each_says, naming
from slurm_cells import ScriptedSlurm, submitted
from suite_by_hand import CELLS, cell_ended, ended, phase, progress, started, suite_folder, tell


class Jobs:
    """Four cells in one wave."""

    def __init__(self, folder: Path) -> None:
        self.dir = suite_folder(folder, started(), ended())
        self.store = SlurmStore(self.dir)
        self.wave = submitted(self.dir, *(f"{cell}/0a" for cell in CELLS))
        self.slurm = ScriptedSlurm(
            [self.task(0, "RUNNING"), self.task(1), self.task(2, "COMPLETING")]
        )
        self.now = 0.0
        self.reader = SuiteReader(self.dir, self.slurm, lambda: self.now)  # type: ignore[arg-type]

    def task(self, index: int, state: str = "PENDING") -> QueuedTask:
        return QueuedTask(self.wave.job_name, "7", index, state, "Resources")

    def ends(self, number: int, *end: Any) -> None:
        self.store.record_end(self.wave, self.wave.runs[number], RunEnd(*end))

    def read_status(self) -> SuiteStatus:
        self.dir.state.joinpath("slurm").rename(self.dir.state / "hidden")
        plain = read_suite_status(self.dir)
        self.dir.state.joinpath("hidden").rename(self.dir.state / "slurm")
        return self.reader.with_jobs(plain)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def told(status: SuiteStatus) -> list[tuple[str, str | None]]:
    return [(cell.status, cell.reason) for cell in status.cells]


def test_what_jobs_do_is_said_of_their_cells(jobs: Jobs) -> None:
    found = jobs.read_status()
    name = jobs.wave.job_name
    assert told(found) == [
        ("running", f"Slurm: {name} task 0, RUNNING"),
        ("waiting", f"Slurm: {name} task 1, PENDING, Resources"),
        ("running", f"Slurm: {name} task 2, COMPLETING"),
        ("missing", TASK_GONE),
    ]
    assert (found.state, found.pid, found.host) == ("running", None, None)


def test_slurm_is_asked_now_and_then(jobs: Jobs) -> None:
    jobs.read_status()
    jobs.slurm.tasks = []
    jobs.now = 4.9
    assert jobs.read_status().state == "running"
    jobs.now = 5.0
    assert jobs.read_status().state == "ended"


def test_where_nothing_can_be_queued_nobody_is_asked(jobs: Jobs) -> None:
    jobs.slurm.silent = 9
    assert told(jobs.read_status()) == [("missing", suite_status.QUEUE_UNKNOWN)] * 4
    jobs.store.environment_file(1).unlink()
    jobs.now = 9.0
    assert told(jobs.read_status())[0] == ("missing", TASK_GONE)
    assert jobs.slurm.silent == 8


def test_a_complete_cell_stays_complete_and_a_suite_without_slurm_as_it_is(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "a")
    tell(jobs.dir.events, cell_ended(CELLS[0]))
    assert told(jobs.read_status())[0][0] == "complete"
    plain = suite_folder(tmp_path / "b", started())
    reader = SuiteReader(plain, jobs.slurm)  # type: ignore[arg-type]
    assert reader.with_jobs(read_suite_status(plain)) == read_suite_status(plain)


def test_cancelling_ends_every_job_and_takes_the_keys(jobs: Jobs) -> None:
    said: list[str] = []
    assert cancel(jobs.dir, said.append, jobs.slurm)  # type: ignore[arg-type]
    assert jobs.slurm.cancelled == [(jobs.wave.job_name, 0), (f"{jobs.wave.job_name}-clean-up", 0)]
    assert said == [f"asked Slurm to end {jobs.wave.job_name} ..."]
    assert jobs.store.cancelled.exists()
    assert not jobs.store.has_open_waves()
    assert not cancel(jobs.dir, said.append, jobs.slurm)  # type: ignore[arg-type]
    assert len(said) == 1
    never = SuiteDir(jobs.dir.root / "never")
    assert not cancel(never, print, ScriptedSlurm(silent=9))  # type: ignore[arg-type]


def test_jobs_that_do_not_end(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 50))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(jobs.slurm, "cancel", lambda *_: None)
    with pytest.raises(PrerequisiteError, match=naming("not ended", "120 s")):
        cancel(jobs.dir, print, jobs.slurm)  # type: ignore[arg-type]
    assert jobs.store.has_open_waves()


def test_a_cancelled_suite_waits_until_the_queue_is_empty(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.extend([seconds] if seconds else [])
        if len(slept) == 3:
            jobs.slurm.tasks = []

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(jobs.slurm, "cancel", lambda *_: None)
    assert cancel(jobs.dir, print, jobs.slurm)  # type: ignore[arg-type]
    assert slept == [0.5] * 3


def test_how_far_a_running_task_is_and_where_its_log_is(jobs: Jobs) -> None:
    for _ in range(2):
        Start(jobs.store, jobs.wave, [jobs.wave.runs[0]])
    work = jobs.dir.root / CELLS[0]
    now = time.time()
    # of an earlier run
    tell(work / "logs" / "events.jsonl", phase("asking", time=1.0), progress(80, time=4.0))
    tell(work / "logs" / "events.jsonl", phase("asking", time=now + 1), progress(30, time=now + 4))
    found = jobs.read_status()
    first, second, third, _ = found.cells
    assert str(first.progress and first.progress.counts_text()).startswith("30/100")
    assert first.attempt == 2
    assert suite_status.status_document(found)["cells"][0]["slurm"] == {
        "task": f"Slurm: {jobs.wave.job_name} task 0, RUNNING",
        "attempts": 2,
        "work_folder": str(work),
        "log": str(jobs.store.logs_folder(1) / "0.log"),
    }
    tell(work / "logs" / "events.jsonl", progress(40, time=now + 5))
    again = jobs.read_status().cells[0].progress
    assert str(again and again.counts_text()).startswith("40/100")
    assert second.job == suite_status.CellJob(second.reason, 0, jobs.store.logs_folder(1) / "1.log")
    assert second.progress is None
    assert third.progress is None, "it has not started yet"


def test_what_became_of_a_task_is_said_before_it_is_taken_over(jobs: Jobs) -> None:
    jobs.slurm.tasks = []
    jobs.ends(0, 3, "failed", "no such model", 1)
    jobs.ends(1, 3, "failed", None, 1)
    jobs.ends(3, 0, "complete", None, 1)
    found = jobs.read_status()
    assert [status for status, _ in told(found)] == ["missing", "missing", "missing", "waiting"]
    each_says(
        [str(reason) for _, reason in told(found)][:2],
        ["job has ended", "no such model"],
        ["job has ended"],
    )
    assert [reason for _, reason in told(found)][2:] == [TASK_GONE, suite_status.RESULT_READY]
    assert found.state == "ended"
    tell(jobs.dir.events, cell_ended(CELLS[0], "failed", reason="as taken over"))
    assert told(jobs.read_status())[0] == ("failed", "as taken over")


def test_a_cell_that_waits_for_its_submission_is_not_gone(jobs: Jobs) -> None:
    jobs.slurm.tasks = []
    status = jobs.read_status()
    waiting = replace(status.cells[0], status=RunStatus.WAITING, reason=None, job=None)
    found = jobs.reader.with_jobs(replace(status, cells=(waiting,)))
    assert told(found) == [("waiting", None)]


def test_who_looks_deletes_keys_that_nobody_needs_any_more(jobs: Jobs) -> None:
    jobs.slurm.tasks = []
    status = jobs.read_status()
    assert jobs.store.has_open_waves(), "somebody may be about to submit"
    before = time.time() - 301
    os.utime(jobs.store.environment_file(1), (before, before))
    jobs.reader.with_jobs(replace(status, state="running"))
    assert jobs.store.has_open_waves(), "somebody works on the suite"
    jobs.read_status()
    assert not jobs.store.has_open_waves()
