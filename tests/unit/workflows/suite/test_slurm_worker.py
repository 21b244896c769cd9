"""Tests of what a task of Slurm does with its runs, and what two starts of it do with each other."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.suite import Suite as SuiteOfTask
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, InterruptedRunError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.runs import ExecutorRun
from eval_factory.executors.slurm_environment import write_environment
from eval_factory.executors.slurm_waves import RunEnd, SlurmStore, Wave, start_marks_below
from eval_factory.workflows.suite import slurm_worker
from eval_factory.workflows.suite.slurm_worker import (
    KEYS_ARE_GONE,
    MAX_STARTS,
    Start,
    main,
    run_task,
)
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions
from facts import says
from slurm_cells import run_of

NAMES = ("t/e/0a1b", "t/f/0a1b")
SERVE = {"command": "x {port}", "env": []}
LONG_S = 60.0
SECRET = "sk-012345678901234567890"
Does = Callable[[SuiteOfTask, SuiteObserver], object]
FULL = OSError(errno.ENOSPC, "No space left on device", "starts")


def raising(error: BaseException) -> Callable[..., Any]:
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


class Clock:
    """Time goes on by sleeping alone."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("time.sleep", clock.sleep)
    return clock


class Report:
    exit_code = 1


class Task:
    """One wave of two runs, each a task or both one, and what is done in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, serves: bool) -> None:
        self.dir = SuiteDir(folder)
        self.store = SlurmStore(self.dir)
        self.suites: list[SuiteOfTask] = []
        self.does: Does = lambda *_: None
        runs = []
        suite_id = self.store.create_folders()
        for name in NAMES:
            config = self.store.run_config_file(name)
            config.parent.mkdir(parents=True)
            config.write_text(
                yaml.safe_dump({"config": {"type": "x", "output_dir": str(folder / name[:3])}})
            )
            log = self.dir.cell_log("t", name[2])
            log.parent.mkdir(parents=True, exist_ok=True)
            asks: dict[str, Any] = {"serve": SERVE if serves else None}
            run = run_of(name, max_processes=3, max_attempts=3, max_outage_s=9.0, **asks)
            probed = () if serves else None
            runs.append(
                ExecutorRun(
                    **{**vars(run), "run_config": str(config), "log": str(log), "probed": probed}
                )
            )
        self.wave = self.store.new_wave(suite_id, runs)
        write_environment(
            self.store.environment_file(1), {"OPENAI_API_KEY": "k"}, ["OPENAI_API_KEY"]
        )
        monkeypatch.setenv("OPENAI_API_KEY", "not this")
        monkeypatch.setattr(slurm_worker, "interrupt_on_signals", lambda: None)
        monkeypatch.setattr(slurm_worker, "_MAX_END_OF_OLDER_S", 0.01)
        monkeypatch.setattr(slurm_worker, "run_suite", self._run)

    def _run(
        self, suite: SuiteOfTask, options: SuiteOptions, *, env: Any, screen: SuiteObserver
    ) -> Report:
        assert env is os.environ
        assert env["OPENAI_API_KEY"] == "k"
        assert (options.no_preflight, options.debug) == (self.wave.together, False)
        self.suites.append(suite)
        self.does(suite, screen)
        return Report()

    def work(self, does: Does = lambda *_: None, index: int = 0) -> int:
        self.does = does
        return run_task(self.store.wave_file(1), index)

    def ended(self, number: int = 0) -> RunEnd | None:
        return self.store.recorded_end(self.wave, self.wave.runs[number])

    def starts(self, number: int = 0) -> list[Path]:
        return self.store.start_marks(self.wave, self.wave.runs[number])

    def start(self, number: int = 0) -> Start:
        """Another one, on another node."""
        return Start(self.store, self.wave, [self.wave.runs[number]])


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """One of two: each run is a task."""
    return Task(tmp_path / "s", monkeypatch, serves=False)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """One task does both runs, and starts the server that they ask."""
    return Task(tmp_path / "s", monkeypatch, serves=True)


def end(screen: SuiteObserver, evaluation: str, status: str, code: int, **more: Any) -> None:
    told = {
        "target": "t",
        "evaluation": evaluation,
        "status": status,
        "exit_code": code,
        "reason": "r",
        "attempt": 2,
    }
    screen.on_event({"event": "cell_ended", **told, **more})


def completes(suite: SuiteOfTask, screen: SuiteObserver) -> None:
    for cell in suite.cells:
        end(screen, cell.evaluation, "complete", 0)


def is_interrupted(_: SuiteOfTask, screen: SuiteObserver) -> None:
    end(screen, "e", "complete", 0)
    end(screen, "f", "missing", 130)
    raise InterruptedRunError("stopped")


def test_what_was_submitted_again_is_left_to_the_newer_wave(task: Task) -> None:
    """Slurm may have forgotten this one for a while; or the configuration is another now."""
    task.store.new_wave("id", [run_of("t/e/ffff")])
    assert task.work(completes) == 0
    assert (task.ended(), task.suites) == (None, [])
    task.work(completes, index=1)
    assert task.ended(1) == RunEnd(0, "complete", "r", 2)


def test_a_newer_start_of_the_same_run_ends_this_one(
    task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looking: list[Start] = []

    def begun(store: SlurmStore, wave: Wave, runs: Sequence[ExecutorRun]) -> Start:
        looking.append(Start(store, wave, runs, lambda: None, check_interval_s=LONG_S))
        return looking[0]

    def taken_over(*_: object) -> None:
        looking[0].check()
        assert not looking[0].was_replaced
        task.start()
        looking[0].check()
        raise InterruptedRunError("stopped")

    monkeypatch.setattr(slurm_worker, "Start", begun)
    assert task.work(taken_over) == 130
    assert task.ended() is None
    says(capsys.readouterr().out, "started this task again")
    assert len(task.starts()) == 2


def test_a_run_that_takes_its_node_down_is_not_begun_for_ever(task: Task) -> None:
    for _ in range(MAX_STARTS):
        task.start(1)
    task.work(index=1)
    ended = task.ended(1)
    assert ended is not None
    assert ended == RunEnd(4, "failed", ended.reason, 6)
    says(str(ended.reason), "6 times", "its end")
    assert task.suites == []


def test_keys_go_with_the_last_task_of_the_wave(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    task.does = completes
    assert main([str(task.store.wave_file(1))]) == Report.exit_code
    assert (task.ended(), task.ended(1)) == (None, RunEnd(0, "complete", "r", 2))
    assert task.store.environment_file(1).exists()
    task.work(completes)
    assert not task.store.environment_file(1).exists()


def test_without_keys_nothing_is_asked(task: Task) -> None:
    task.store.environment_file(1).unlink()
    assert task.work(completes) == 3
    assert (task.ended(), task.suites) == (RunEnd(3, "missing", KEYS_ARE_GONE, 0), [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_ends_the_task_quietly(
    task: Task, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(SlurmStore, "record_end", raising(OSError(number, "no", "x")))
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    task.does = completes
    assert main([str(task.store.wave_file(1))]) == 3


def test_the_suite_of_a_task_that_serves(serving: Task) -> None:
    def does(_: SuiteOfTask, screen: SuiteObserver) -> None:
        screen.on_event({"event": "suite_started"})
        end(screen, "e", "missing", 3, again=True)
        assert serving.ended() is None
        end(screen, "e", "complete", 0)
        end(screen, "f", "partial", 1)

    assert serving.work(does) == Report.exit_code
    assert (serving.ended(0), serving.ended(1)) == (
        RunEnd(0, "complete", "r", 2),
        RunEnd(1, "partial", "r", 2),
    )
    assert not serving.store.environment_file(1).exists()
    (suite,) = serving.suites
    assert [cell.folder for cell in suite.cells] == [
        serving.dir.root / "t/e",
        serving.dir.root / "t/f",
    ]
    assert (suite.executor, suite.max_processes, suite.max_attempts, suite.max_outage_s) == (
        "local",
        3,
        3,
        9.0,
    )
    assert (dict(suite.serve), dict(suite.limit_groups)) == ({"t": SERVE}, {"t": "t"})
    assert not suite.budget
    assert suite.folder.root.parent == serving.store.root / "tasks" / "t"
    suite.folder.cell_log("t", "e").write_text("said\n")
    assert serving.dir.cell_log("t", "e").read_text() == "said\n"


def test_the_suite_of_a_task_that_serves_nothing_is_of_its_run_alone(task: Task) -> None:
    task.work(completes, index=1)
    (suite,) = task.suites
    assert ([cell.name for cell in suite.cells], dict(suite.serve)) == (["t/f"], {})
    assert len(task.starts(1)) == 1


def test_a_task_that_starts_again_does_what_is_left_only(serving: Task) -> None:
    assert serving.work(is_interrupted) == 130
    assert serving.ended(1) is None
    assert serving.store.environment_file(1).exists()
    serving.work(completes)
    assert [cell.evaluation for cell in serving.suites[1].cells] == ["f"]
    assert serving.work() == 0
    assert len(serving.suites) == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ConfigError(f"it is {SECRET}\n  mend it"),
            RunEnd(2, "failed", "it is [API_KEY_REDACTED]", 1),
        ),
        (FULL, RunEnd(3, "failed", "cannot write starts: No space left on device", 1)),
    ],
)
def test_what_stops_all_is_said_of_what_is_left(
    serving: Task, error: Exception, expected: RunEnd
) -> None:
    def stops(_: SuiteOfTask, screen: SuiteObserver) -> None:
        end(screen, "e", "complete", 0)
        raise error

    assert serving.work(stops) == expected.exit_code
    assert (serving.ended(0), serving.ended(1)) == (RunEnd(0, "complete", "r", 2), expected)
    assert all(
        SECRET not in log.read_text() for log in serving.dir.root.rglob("*.log") if log.exists()
    )


def test_an_interrupt_or_a_defect_of_the_disk(
    serving: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    serving.does = raising(KeyboardInterrupt())
    assert main([str(serving.store.wave_file(1))]) == 130
    serving.does = raising(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        main([str(serving.store.wave_file(1))])
    assert serving.ended() is None


def test_an_older_start_is_given_time_to_end(task: Task, clock: Clock) -> None:
    """Of whichever wave: a submitter may have taken its task for lost."""
    task.start()
    task.start().wait_for_older_start()
    assert clock.slept == [slurm_worker._MAX_END_OF_OLDER_S]
    clock.slept.clear()
    task.start(1).wait_for_older_start()
    assert clock.slept == [], "there is nobody else"


def test_a_start_of_an_earlier_wave_that_ended_is_not_waited_for(task: Task, clock: Clock) -> None:
    task.start()
    first = task.wave
    run = task.wave.runs[0]
    task.wave = task.store.new_wave("s", [replace(run, name="t/e/another")])
    task.start().wait_for_older_start()
    assert clock.slept == [slurm_worker._MAX_END_OF_OLDER_S], (
        "it may go on where Slurm does not reach it"
    )
    task.starts()[0].unlink()
    task.store.record_end(first, run, RunEnd(0, RunStatus.COMPLETE, None))
    task.start().wait_for_older_start()
    assert len(clock.slept) == 1


def test_it_looks_while_it_is_entered(task: Task) -> None:
    told = threading.Event()
    with Start(task.store, task.wave, task.wave.runs, told.set, check_interval_s=0.01) as start:
        assert not start.was_replaced
        task.start()
        assert told.wait(LONG_S)
    assert start.was_replaced
    assert len(start_marks_below(start.marks[0].parent)) == 2
    with Start(
        task.store,
        task.wave,
        task.wave.runs,
        lambda: pytest.fail("interrupted"),
        check_interval_s=LONG_S,
    ) as left:
        pass
    task.start()
    assert not left.was_replaced


def test_only_a_newer_start_takes_over_of_whichever_run(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that does not answer says nothing."""
    told: list[None] = []
    task.start()
    start = Start(task.store, task.wave, task.wave.runs, lambda: told.append(None))
    start.check()
    task.start(1)
    with monkeypatch.context() as stale:
        stale.setattr(slurm_worker, "start_marks_below", raising(OSError("stale file handle")))
        start.check()
    assert (told, start.was_replaced) == ([], False)
    start.check()
    start.check()
    assert (told, start.was_replaced) == ([None], True)
