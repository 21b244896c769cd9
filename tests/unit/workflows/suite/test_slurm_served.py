from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.suite import Suite
from eval_factory.core.errors import ConfigError, InterruptedRunError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite import slurm_worker
from eval_factory.workflows.suite.slurm_store import CellStore, EndedCell, PlanLine, SlurmStore
from eval_factory.workflows.suite.slurm_suite import write_environment
from eval_factory.workflows.suite.slurm_worker import (
    ENDED,
    KEYS_ARE_GONE,
    MOST_STARTS,
    Takeover,
    main,
    work_served,
)
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions

KEYS = ("t/e/0a1b", "t/f/0a1b")
SERVED = {"serve": {"command": "x {port}", "env": []}, "max_processes": 3, "max_outage_s": 9.0}


class Report:
    exit_code = 1


class Task:
    """One wave of two cells, and what the suite that the task runs comes to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dir = SuiteDir(folder)
        self.store = SlurmStore(self.dir)
        self.wave = self.store.new_wave(self.store.begin(), KEYS, together=True)
        self.store.write_plan(
            PlanLine(
                key, "t", key.split("/")[1], {"config": {"type": "x", "params": {}}, "target": {}}, 3,
                no_preflight=True, debug=False, served=SERVED,
            )
            for key in KEYS
        )  # fmt: skip
        self.dir.cell_log("t", "e").parent.mkdir(parents=True)
        write_environment(self.store.environment(1), {"OPENAI_API_KEY": "k"}, ["OPENAI_API_KEY"])
        self.suites: list[Suite] = []
        self.does: Callable[[Suite, SuiteObserver], object] = lambda *_: None
        monkeypatch.setattr(slurm_worker, "run_suite", self._run)
        monkeypatch.setenv("OPENAI_API_KEY", "not this")
        self.cells = [self.store.cell(key) for key in KEYS]

    def _run(self, suite: Suite, options: SuiteOptions, *, env: Any, screen: SuiteObserver) -> Report:
        assert env is os.environ
        assert env["OPENAI_API_KEY"] == "k"
        assert (options.no_preflight, options.debug) == (True, False)
        self.suites.append(suite)
        self.does(suite, screen)
        return Report()

    def work(self, does: Callable[[Suite, SuiteObserver], object]) -> int:
        self.does = does
        return work_served(self.store.plan_file, self.store.wave_file(1))


def end(screen: SuiteObserver, evaluation: str, status: str, code: int, **more: Any) -> None:
    told = {"target": "t", "evaluation": evaluation, "status": status, "exit_code": code, "reason": "r", "attempt": 2}
    screen.on_event({"event": "cell_ended", **told, **more})


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(tmp_path / "s", monkeypatch)


def test_cells_are_done_in_folders_of_their_own_and_published_as_they_end(task: Task) -> None:
    def does(suite: Suite, screen: SuiteObserver) -> None:
        screen.on_event({"event": "suite_started"})
        end(screen, "e", "missing", 3, again=True)
        assert task.cells[0].ended(1) is None
        end(screen, "e", "complete", 0)
        assert task.cells[0].done() is not None
        end(screen, "f", "partial", 1)

    assert task.work(does) == Report.exit_code
    (suite,) = task.suites
    (first,), (second,) = (cell.attempts() for cell in task.cells)
    assert [cell.folder for cell in suite.cells] == [first / "out", second / "out"]
    assert [cell.document["config"]["output_dir"] for cell in suite.cells] == [str(first / "out"), str(second / "out")]
    assert task.cells[0].done() == task.cells[0].ended(1) == EndedCell(first.name, "complete", 0, "r", 2)
    assert task.cells[1].done() is None
    assert task.cells[1].ended(1) == EndedCell(second.name, "partial", 1, "r", 2)
    assert not task.store.environment(1).exists()


def test_the_suite_of_a_task(task: Task) -> None:
    task.work(lambda *_: None)
    (suite,) = task.suites
    assert (suite.executor, suite.max_processes, suite.max_attempts, suite.max_outage_s) == ("local", 3, 3, 9.0)
    assert dict(suite.serve) == {"t": SERVED["serve"]}
    assert dict(suite.limit_groups) == {"t": "t"}
    assert not suite.budget
    assert suite.folder.root.parent == task.store.root / "served" / "t"
    suite.folder.cell_log("t", "e").write_text("said\n")
    assert task.dir.cell_log("t", "e").read_text() == "said\n"
    assert task.store.environment(1).exists()  # nothing was published


def test_a_task_that_starts_again_does_what_is_left_only(task: Task) -> None:
    def interrupted(_: Suite, screen: SuiteObserver) -> None:
        end(screen, "e", "complete", 0)
        end(screen, "f", "missing", 130)
        raise InterruptedRunError("stopped")

    assert task.work(interrupted) == 130
    assert task.cells[1].ended(1) is None
    assert task.store.environment(1).exists()
    task.work(lambda _, screen: end(screen, "f", "complete", 0))
    assert [cell.evaluation for cell in task.suites[1].cells] == ["f"]
    assert all(cell.done() for cell in task.cells)
    assert task.work(lambda *_: None) == 0
    assert len(task.suites) == 2


def test_a_newer_start_of_the_task_ends_this_one(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which waits until it has ended, before it copies the answers."""
    waited: list[list[bool]] = []

    def wait(begun: dict[CellStore, Path]) -> None:
        older = [path for cell, attempt in begun.items() for path in cell.attempts() if path != attempt]
        waited.append([(path / ENDED).exists() for path in older])
        assert not any((attempt / "run_config.yml").exists() for attempt in begun.values())

    class Looking(Takeover):
        def __init__(self, cells: Collection[CellStore]) -> None:
            super().__init__(cells, lambda: None, every_s=60.0)
            takeovers.append(self)

    takeovers: list[Takeover] = []
    monkeypatch.setattr(slurm_worker, "wait_for_older", wait)
    monkeypatch.setattr(slurm_worker, "Takeover", Looking)

    def taken_over(_: Suite, screen: SuiteObserver) -> None:
        end(screen, "e", "complete", 0)
        takeovers[0].look()
        assert not takeovers[0].happened
        task.cells[1].new_attempt(1)
        takeovers[0].look()
        assert takeovers[0].happened
        raise InterruptedRunError("stopped")

    assert task.work(taken_over) == 130
    assert task.cells[1].ended(1) is None
    first = task.cells[1].attempts()[0]
    assert (first / ENDED).exists()
    assert task.store.environment(1).exists()
    task.work(lambda _, screen: end(screen, "f", "complete", 0))
    assert waited[0] == []
    assert sorted(waited[1]) == [False, True]


def test_a_cell_that_never_ends_is_not_begun_for_ever(task: Task) -> None:
    for _ in range(MOST_STARTS):
        task.cells[0].new_attempt(1)
    task.work(lambda _, screen: end(screen, "f", "complete", 0))
    reason = f"was begun {MOST_STARTS} times and never came to its end"
    assert task.cells[0].ended(1) == EndedCell("", "failed", 4, reason, MOST_STARTS)
    assert [cell.evaluation for cell in task.suites[0].cells] == ["f"]


def test_what_stops_all_of_it_is_said_of_those_that_have_not_ended(task: Task) -> None:
    def wrong(_: Suite, screen: SuiteObserver) -> None:
        end(screen, "e", "complete", 0)
        raise ConfigError("it is wrong\n  mend it")

    assert task.work(wrong) == 2
    assert task.cells[0].ended(1) != task.cells[1].ended(1) == EndedCell("", "failed", 2, "it is wrong", 1)


@pytest.mark.parametrize("published", [True, False])
def test_on_a_full_disk_the_cells_that_have_not_ended_have_failed(
    task: Task, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Suite, screen: SuiteObserver) -> None:
        end(screen, "e", "complete", 0)
        if not published:
            monkeypatch.setattr(CellStore, "publish", lambda *_, **__: full_disk())
        full_disk()

    def full_disk() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out/cache.db")

    assert task.work(full) == 3
    done = task.cells[0].ended(1)
    assert done is not None
    assert (done.status, done.exit_code) == ("complete", 0)
    reason = "cannot write out/cache.db: No space left on device"
    assert task.cells[1].ended(1) == (EndedCell("", "failed", 3, reason, 1) if published else None)
    assert task.store.environment(1).exists() is not published  # whoever does the cell again deletes them


def test_a_defect_of_the_disk_is_not_called_a_full_one(task: Task) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        task.work(broken)
    assert task.cells[0].ended(1) is None


def test_keys_that_are_gone(task: Task) -> None:
    task.store.environment(1).unlink()
    assert task.work(lambda *_: None) == 3
    assert task.cells[0].ended(1) == task.cells[1].ended(1) == EndedCell("", "missing", 3, KEYS_ARE_GONE, 0)
    assert task.suites == []


def test_an_interrupt_ends_the_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(slurm_worker, "interrupt_on_signals", lambda: None)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    task.does = interrupted
    assert main([str(task.store.plan_file), str(task.store.wave_file(1))]) == 130
