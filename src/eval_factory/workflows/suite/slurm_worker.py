"""A task of Slurm: one run, or all runs of a model whose server it starts, done as a suite on the
task's machine.

    python -m eval_factory.workflows.suite.slurm_worker WAVE

Slurm starts a task again when its node does not reply, whose processes may well go on (a frozen
slurmd, a broken network). So each start leaves a mark: an older start that finds the mark of a
newer one ends, and the newer one gives it time to, before it takes the folder's lock and goes on
with the answers that are there.
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
from eval_factory.executors.runs import RunSpec
from eval_factory.executors.slurm_runs import (
    RunEnd,
    SlurmAsks,
    SlurmStore,
    Wave,
    cell_of,
    read_wave,
    starts_below,
    take_environment,
)
from eval_factory.workflows.options import DISK_FULL_ERRORS, failure_record
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, SuiteObserver, append_line
from eval_factory.workflows.suite.suite_report import SuiteOptions

_LOOK_S = 1.0
# seconds in which an older start sees the newer one and ends its helm-run: at most two graces of
# SIGTERM
_PATIENCE_S = 8.0
MAX_STARTS = 6
"""The starts of one run in one wave, with those after lost nodes: a run that takes its node down is
not started for ever.
"""
KEYS_ARE_GONE = "its keys are gone, as after 'suite cancel': run the same command again"
TAKEN_OVER = (
    "Slurm has started this task again elsewhere: the newer start goes on, with its answers"
)


class Start:
    """One start of some runs. While it is entered, a newer start of one of them interrupts this
    one.
    """

    def __init__(
        self,
        store: SlurmStore,
        wave: Wave,
        runs: Sequence[RunSpec],
        interrupt: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGTERM),
        every_s: float = _LOOK_S,
    ) -> None:
        """Record this start. `interrupt`: ends these runs as Slurm does: what was answered is on
        disk, and no end is recorded. Raises OSError.
        """
        self._store = store
        self._interrupt = interrupt
        self._every_s = every_s
        self._folders = [store.starts(cell_of(run.name)) for run in runs]
        name = f"w{wave.number}-{uuid.uuid4().hex[:12]}"
        self.marks = [folder / name for folder in self._folders]
        for mark in self.marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch(PRIVATE)
        self._known = self._starts()
        self._left = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self.happened = False
        """A newer start has taken over."""

    def wait_for_older(self) -> None:
        """Wait for older runs whose wave has recorded no end: nobody knows whether they have ended,
        their nodes may be gone.
        """
        if not all(map(self._store.has_ended, self._starts().difference(self.marks))):
            time.sleep(_PATIENCE_S)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._watch.join()

    def look(self) -> None:
        """Look once for newer starts; a file system without an answer says nothing about them."""
        with suppress(OSError):
            if not self.happened and not self._known.issuperset(self._starts()):
                self.happened = True
                self._interrupt()

    def _starts(self) -> set[Path]:
        return set(chain.from_iterable(map(starts_below, self._folders)))

    def _look(self) -> None:
        while not self.happened and not self._left.wait(self._every_s):
            self.look()


def work(wave_file: Path, index: int) -> int:
    """Do the task: a suite of its runs, on this machine. Returns the exit code, which Slurm has and
    nobody needs.

    Of runs that were interrupted (the job's time, `scancel`, a node that is needed for others) no
    end is recorded: Slurm may start the task again.
    """
    # the wave's file is .suite/slurm/waves/w1.json in the suite's folder
    wave = read_wave(wave_file)
    store = SlurmStore(suite_dir(wave_file.absolute().parents[3]))
    left = []
    for run in wave.of_task(index):
        if _is_left(store, wave, run):
            left.append(run)
    if not left:
        return 0
    try:
        take_environment(store.environment(wave.number), os.environ)
    except FileNotFoundError:
        _record(
            store, wave, left, RunEnd(PrerequisiteError.exit_code, RunStatus.MISSING, KEYS_ARE_GONE)
        )
        return PrerequisiteError.exit_code
    recorder = Recorder(store, wave, {cell_of(run.name): run for run in left})
    try:
        with Start(store, wave, left) as start:
            start.wait_for_older()
            options = SuiteOptions(debug=left[0].debug, no_preflight=left[0].probed is not None)
            try:
                code = run_suite(
                    _suite_of(store, wave, left), options, env=os.environ, screen=recorder
                ).exit_code
            finally:
                if start.happened:
                    recorder.say(TAKEN_OVER)
    except InterruptedRunError as error:
        return error.exit_code
    except EvalFactoryError as error:  # it stops them all: each says so in its log
        code = error.exit_code
        message = failure_record(error, code)["error"]["message"]
        for run in left:
            append_line(Path(run.log), message)
        _record(store, wave, left, RunEnd(code, RunStatus.FAILED, message.split("\n")[0], 1))
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        code = PrerequisiteError.exit_code
        place = error.filename or store.suite.root
        # nor can this be written, then; the same command submits the run again
        with suppress(OSError):
            _record(
                store,
                wave,
                left,
                RunEnd(code, RunStatus.FAILED, f"cannot write {place}: {error.strerror}", 1),
            )
    if all(store.ended(wave, run) is not None for run in wave.runs):
        # no task of the wave needs the keys any more
        store.environment(wave.number).unlink(missing_ok=True)
    return code


def _is_left(store: SlurmStore, wave: Wave, run: RunSpec) -> bool:
    if store.ended(wave, run) is not None or store.was_submitted_again(wave, run):
        return False
    if len(store.starts_in(wave, run)) >= MAX_STARTS:
        reason = f"was started {MAX_STARTS} times and never came to its end"
        _record(
            store, wave, [run], RunEnd(HelmError.exit_code, RunStatus.FAILED, reason, MAX_STARTS)
        )
        return False
    return True


def _record(store: SlurmStore, wave: Wave, runs: Sequence[RunSpec], end: RunEnd) -> None:
    for run in runs:
        if store.ended(wave, run) is None:  # some of a task's runs may have come to their end
            store.record_end(wave, run, end)


@dataclass
class Recorder(SuiteObserver):
    """Looks on while runs are done, and records the end of each."""

    store: SlurmStore
    wave: Wave
    runs: Mapping[str, RunSpec]  # each run by its `target/evaluation`

    def on_event(self, event: Mapping[str, Any]) -> None:
        interrupted = InterruptedRunError.exit_code
        if (
            event["event"] == CELL_ENDED
            and not event.get("again")
            and event["exit_code"] != interrupted
        ):
            run = self.runs[f"{event['target']}/{event['evaluation']}"]
            end = RunEnd(event["exit_code"], event["status"], event["reason"], event["attempt"])
            self.store.record_end(self.wave, run, end)

    def say(self, text: str) -> None:
        print(text, flush=True)


def _suite_of(store: SlurmStore, wave: Wave, runs: Sequence[RunSpec]) -> Suite:
    """Return a suite for this start of the task: each run in its own folder, its log where the
    suite's own is.
    """
    asks = SlurmAsks.of(runs[0])
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
        log.symlink_to(os.path.relpath(os.path.realpath(run.log), os.path.realpath(log.parent)))
    return Suite(
        folder=folder,
        cells=tuple(cells),
        budget=Budget(),
        max_processes=asks.max_processes,
        max_attempts=asks.max_attempts,
        max_outage_s=asks.max_outage_s,
        limit_groups={target: target},
        document={},
        executor=LOCAL,
        slurm={},
        serve={} if asks.serve is None else {target: asks.serve},
    )


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    try:
        return work(Path(arguments[0]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        # nor could its log be written: the same command submits the run again
        return PrerequisiteError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
