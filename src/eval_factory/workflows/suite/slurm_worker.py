"""Runs a task of a Slurm job array as a suite on the task's machine.

    python -m eval_factory.workflows.suite.slurm_worker WAVE

A task of Slurm has one run, or all runs of a model whose server the task starts. WAVE is the file
that describes the job array (`Wave`).

Slurm starts a task again if its node does not reply. The processes of the older start may still run
on that node, for example after a frozen slurmd or a broken network. Each start therefore creates a
file, its mark. An older start that finds the mark of a newer start ends. The newer start waits a
few seconds for this end, locks the output folder, and reuses the stored answers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from typing_extensions import Self

from eval_factory.config.load import load_run_config
from eval_factory.config.suite import Cell, Suite
from eval_factory.core.budget import Budget
from eval_factory.core.enums import LOCAL, RunStatus
from eval_factory.core.errors import (
    EvalFactoryError,
    HelmError,
    InterruptedRunError,
    PrerequisiteError,
)
from eval_factory.core.rundir import PRIVATE, SuiteDir, suite_dir
from eval_factory.core.this_process import interrupt_on_signals
from eval_factory.executors.runs import ExecutorRun
from eval_factory.executors.slurm_environment import add_stored_environment
from eval_factory.executors.slurm_waves import (
    RunEnd,
    SlurmSettings,
    SlurmStore,
    Wave,
    cell_of,
    read_wave,
    start_marks_below,
)
from eval_factory.workflows.options import DISK_FULL_ERRORS, failure_record
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, SuiteObserver, append_line
from eval_factory.workflows.suite.suite_report import SuiteOptions

_MARK_CHECK_INTERVAL_S = 1.0
# An older start needs at most this time to find the newer mark and to end its helm-run.
_MAX_END_OF_OLDER_S = 8.0
MAX_STARTS = 6
"""The maximum number of starts of a run in a wave, including restarts after lost nodes.

The limit stops the restarts of a run that makes its nodes fail.
"""
KEYS_ARE_GONE = (
    "the file with its keys was deleted, as by 'suite cancel': run the same command again"
)
REPLACED = (
    "Slurm has started this task again elsewhere: the newer start continues with these answers"
)


class Start:
    """One start of the runs of a task.

    Inside the `with` block of a start, this process is interrupted as soon as any of the runs is
    started again elsewhere.
    """

    def __init__(
        self,
        store: SlurmStore,
        wave: Wave,
        runs: Sequence[ExecutorRun],
        interrupt: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGTERM),
        check_interval_s: float = _MARK_CHECK_INTERVAL_S,
    ) -> None:
        """Create the mark of this start.

        Args:
            store: the Slurm files of the suite.
            wave: the job array of the task.
            runs: the runs that are started.
            interrupt: ends these runs, as Slurm would with SIGTERM. The answers stay on disk, and
                no end is recorded.
            check_interval_s: the interval between two checks for newer marks, in seconds.

        Raises:
            OSError: a mark cannot be written.
        """
        self._store = store
        self._interrupt = interrupt
        self._check_interval_s = check_interval_s
        # the folder of each run's marks
        self._folders = [store.starts_folder(cell_of(run.name)) for run in runs]
        name = f"w{wave.number}-{uuid.uuid4().hex[:12]}"
        self.marks = [folder / name for folder in self._folders]
        for mark in self.marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch(PRIVATE)
        self._known_marks = self._all_marks()
        self._has_left = threading.Event()  # is set at the end of the `with` block
        self._watcher = threading.Thread(target=self._check_regularly, daemon=True)
        self.was_replaced = False
        """True if a newer start has interrupted this start."""

    def wait_for_older_start(self) -> None:
        """Wait a few seconds if an older start has recorded no end.

        The processes of the older start may still run, or their node may be lost.
        """
        older_marks = self._all_marks().difference(self.marks)
        if not all(map(self._store.has_recorded_end, older_marks)):
            time.sleep(_MAX_END_OF_OLDER_S)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_left.set()
        self._watcher.join()

    def check(self) -> None:
        """Check once for newer starts, and interrupt this start if a newer start exists."""
        # If the file system does not answer, the next check may succeed.
        with suppress(OSError):
            new_marks = self._all_marks() - self._known_marks
            if new_marks and not self.was_replaced:
                self.was_replaced = True
                self._interrupt()

    def _all_marks(self) -> set[Path]:
        """Return the marks of all starts of these runs."""
        return set(chain.from_iterable(map(start_marks_below, self._folders)))

    def _check_regularly(self) -> None:
        """Check for newer starts, until the `with` block ends or this start is interrupted."""
        # `wait` returns False if the interval has passed, and True if the `with` block has ended.
        while not self.was_replaced and not self._has_left.wait(self._check_interval_s):
            self.check()


def run_task(wave_file: Path, index: int) -> int:
    """Run the unfinished runs of the task with this index as a suite on this machine.

    Returns the exit code for Slurm; eval-factory itself does not read this code. No end is recorded
    for a run that the job's time limit, `scancel` or preemption interrupted, because Slurm may
    start the task again.
    """
    # the file of a wave is .suite/slurm/waves/w1.json in the suite's folder
    wave = read_wave(wave_file)
    store = SlurmStore(suite_dir(wave_file.absolute().parents[3]))
    unfinished = []
    for run in wave.runs_of_task(index):
        if _is_unfinished(store, wave, run):
            unfinished.append(run)
    if not unfinished:
        return 0
    try:
        add_stored_environment(store.environment_file(wave.number), os.environ)
    except FileNotFoundError:
        code = PrerequisiteError.exit_code
        _record(store, wave, unfinished, RunEnd(code, RunStatus.MISSING, KEYS_ARE_GONE))
        return code
    try:
        code = _run_as_suite(store, wave, unfinished)
    except InterruptedRunError as error:
        return error.exit_code
    except EvalFactoryError as error:  # the error ends all runs: write the message to each log
        code = error.exit_code
        message = failure_record(error, code)["error"]["message"]
        for run in unfinished:
            append_line(Path(run.log), message)
        reason = message.split("\n")[0]
        _record(store, wave, unfinished, RunEnd(code, RunStatus.FAILED, reason, attempts=1))
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        code = PrerequisiteError.exit_code
        reason = f"cannot write {error.filename or store.suite.root}: {error.strerror}"
        # If the record cannot be written either, the next `eval-factory run_suite` submits the run.
        with suppress(OSError):
            _record(store, wave, unfinished, RunEnd(code, RunStatus.FAILED, reason, attempts=1))
    if all(store.recorded_end(wave, run) is not None for run in wave.runs):
        # No task of the wave needs the file with the keys any more.
        store.environment_file(wave.number).unlink(missing_ok=True)
    return code


def _run_as_suite(store: SlurmStore, wave: Wave, runs: Sequence[ExecutorRun]) -> int:
    """Run these runs of the task as a suite, and return the suite's exit code.

    Raises:
        InterruptedRunError: the job was interrupted, or a newer start has replaced this start.
        EvalFactoryError: the suite could not run.
        OSError: a file cannot be written.
    """
    recorder = Recorder(store, wave, {cell_of(run.name): run for run in runs})
    # The options are equal for all runs. `probed` is None if the runs have to probe the endpoints.
    options = SuiteOptions(debug=runs[0].debug, no_preflight=runs[0].probed is not None)
    with Start(store, wave, runs) as start:
        start.wait_for_older_start()
        try:
            suite = _suite_of(store, wave, runs)
            return run_suite(suite, options, env=os.environ, screen=recorder).exit_code
        finally:
            if start.was_replaced:
                recorder.say(REPLACED)


def _is_unfinished(store: SlurmStore, wave: Wave, run: ExecutorRun) -> bool:
    """Return True if this Slurm task still has to do the run.

    Records the run as failed if it was already started `MAX_STARTS` times; then returns False.
    """
    if store.recorded_end(wave, run) is not None or store.was_submitted_again(wave, run):
        return False
    if len(store.start_marks(wave, run)) >= MAX_STARTS:
        reason = f"was started {MAX_STARTS} times and never reached its end"
        code = HelmError.exit_code
        end = RunEnd(code, RunStatus.FAILED, reason, attempts=MAX_STARTS)
        _record(store, wave, [run], end)
        return False
    return True


def _record(store: SlurmStore, wave: Wave, runs: Sequence[ExecutorRun], end: RunEnd) -> None:
    """Record this end for each of the runs that has no recorded end yet."""
    for run in runs:
        if store.recorded_end(wave, run) is None:
            store.record_end(wave, run, end)


@dataclass
class Recorder(SuiteObserver):
    """Observes the suite of a task, and records the end of each run for the submitting suite."""

    store: SlurmStore
    wave: Wave
    runs: Mapping[str, ExecutorRun]  # each run by its `target/evaluation`

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Record the end of a run, unless the run was interrupted or is started again."""
        was_interrupted = event.get("exit_code") == InterruptedRunError.exit_code
        is_started_again = event.get("again")
        if event["event"] == CELL_ENDED and not is_started_again and not was_interrupted:
            run = self.runs[f"{event['target']}/{event['evaluation']}"]
            end = RunEnd(event["exit_code"], event["status"], event["reason"], event["attempt"])
            self.store.record_end(self.wave, run, end)

    def say(self, text: str) -> None:
        """Print the text, which goes to the log of the Slurm task."""
        print(text, flush=True)


def _suite_of(store: SlurmStore, wave: Wave, runs: Sequence[ExecutorRun]) -> Suite:
    """Return a suite for this start of the task.

    Each run has its own output folder. Its log is a link to the log in the submitting suite.
    """
    # the submitting suite's settings, equal for all runs of a task
    settings = SlurmSettings.of(runs[0])
    target = cell_of(runs[0].name).split("/")[0]
    task_folder = store.root / "tasks" / target / f"w{wave.number}-{uuid.uuid4().hex[:12]}"
    folder = SuiteDir(task_folder.absolute())
    cells = []
    for run in runs:
        evaluation = cell_of(run.name).split("/")[1]
        document = load_run_config(Path(run.run_config))
        cells.append(Cell(target, evaluation, document, Path(document["config"]["output_dir"])))
        log = folder.cell_log(target, evaluation)
        log.parent.mkdir(parents=True, exist_ok=True)
        # A relative path holds if the suite is moved. It is computed from real paths, because `..`
        # in a link leads to the parent of the real folder.
        real_log = os.path.realpath(run.log)
        log.symlink_to(os.path.relpath(real_log, start=os.path.realpath(log.parent)))
    return Suite(
        folder=folder,
        cells=tuple(cells),
        budget=Budget(),  # no limits: a suite with limits is not submitted to Slurm
        max_processes=settings.max_processes,
        max_attempts=settings.max_attempts,
        max_outage_s=settings.max_outage_s,
        limit_groups={target: target},
        document={},
        executor=LOCAL,
        slurm={},
        serve={} if settings.serve is None else {target: settings.serve},
    )


def main(arguments: list[str]) -> int:
    """Do the Slurm task that SLURM_ARRAY_TASK_ID names; return the exit code."""
    # `interrupt_on_signals` handles SIGINT only if it has Python's own handler. Python does not set
    # this handler if the parent process ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    try:
        return run_task(Path(arguments[0]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        # A log message cannot be written to a full disk either. A repeated `run_suite` submits the
        # runs again.
        return PrerequisiteError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
