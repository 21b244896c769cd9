"""A task of Slurm that serves a model and does all of its cells: the same that `run_suite` does on one machine.

    python -m eval_factory.workflows.suite.slurm_served PLAN WAVE

As with the task of one cell, it may be started again and may run on two nodes at once: each cell is done in a folder
of its own, on a copy of the answers that are paid for, and is published when it has ended. A newer start takes over
from an older one that still runs.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.config.suite import Cell, Suite
from eval_factory.core.budget import Budget
from eval_factory.core.errors import EvalFactoryError, HelmError, InterruptedRunError, PrerequisiteError
from eval_factory.core.signals import interrupt_on_signals
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.executors.slurm_waves import Wave
from eval_factory.workflows.options import DISK_TAKES_NO_MORE
from eval_factory.workflows.suite.cell_outcome import COMPLETE, FAILED, MISSING
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.slurm_environment import take_environment
from eval_factory.workflows.suite.slurm_store import Ended, PlanLine, SlurmStore, read_plan, read_wave
from eval_factory.workflows.suite.slurm_takeover import ENDED, Takeover, wait_for_older
from eval_factory.workflows.suite.slurm_worker import MOST_STARTS, NO_ROOM, prepare, remove_environments, store_of
from eval_factory.workflows.suite.suite_journal import CELL_ENDED
from eval_factory.workflows.suite.suite_options import SuiteOptions

KEYS_ARE_GONE = "its keys are gone, as after 'suite cancel': run the same command again"
TAKEN_OVER = "Slurm has started this task again elsewhere: the newer start goes on, with its answers"
INTERRUPTED = InterruptedRunError.exit_code


@dataclass
class Publisher:
    """Looks on while the cells are done, and publishes each that has ended."""

    store: SlurmStore
    wave: Wave
    attempts: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(target, evaluation) -> key of the cell, name of its attempt's folder."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] != CELL_ENDED or event.get("again") or event["exit_code"] == INTERRUPTED:
            return
        key, attempt = self.attempts[event["target"], event["evaluation"]]
        ended = Ended(attempt, event["status"], event["exit_code"], event["reason"], event["attempt"])
        self.store.cell(key).publish(ended, self.wave.number, complete=ended.status == COMPLETE)

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        print(text, flush=True)


def work(plan: Path, wave_file: Path) -> int:
    """Do the task. Returns the exit code, which Slurm keeps and nobody needs."""
    wave, store = read_wave(wave_file), store_of(plan)
    lines = {line.key: line for line in read_plan(plan)}
    left = [lines[key] for key in wave.keys if _is_left(store, wave, key)]
    code = 0
    if left:
        try:
            take_environment(store.environment(wave.number), os.environ)
        except FileNotFoundError:
            code = PrerequisiteError.exit_code
            _give_up(store, wave, left, Ended("", MISSING, code, KEYS_ARE_GONE, 0))
            return code
        code = _do_where_there_is_room(left, store, wave)
        if code == INTERRUPTED:
            return code
    remove_environments(store, wave)
    return code


def _is_left(store: SlurmStore, wave: Wave, key: str) -> bool:
    cell = store.cell(key)
    cell.folder.mkdir(parents=True, exist_ok=True)
    if cell.done() is not None or cell.ended(wave.number) is not None:
        return False
    if cell.attempts_of(wave.number) >= MOST_STARTS:
        reason = f"was begun {MOST_STARTS} times and never came to its end"
        cell.publish(Ended("", FAILED, HelmError.exit_code, reason, MOST_STARTS), wave.number, complete=False)
        return False
    return True


def _do_where_there_is_room(lines: Sequence[PlanLine], store: SlurmStore, wave: Wave) -> int:
    try:
        return _do(lines, store, wave)
    except OSError as error:
        if error.errno not in DISK_TAKES_NO_MORE:
            raise
        reason = f"cannot write {error.filename or store.suite.root}: {error.strerror}"
        with suppress(OSError):  # nor can this be written, then; the same command submits the cells again
            _give_up(store, wave, lines, Ended("", FAILED, NO_ROOM, reason, 1))
        return NO_ROOM


def _do(lines: Sequence[PlanLine], store: SlurmStore, wave: Wave) -> int:
    """What stops the whole of it, of which no cell has heard, is what became of those that have not ended."""
    publisher = Publisher(store, wave)
    options = SuiteOptions(debug=lines[0].debug, no_preflight=lines[0].no_preflight)
    begun = {line.key: store.cell(line.key).new_attempt(wave.number) for line in lines}
    cells = {store.cell(key): attempt for key, attempt in begun.items()}
    takeover = Takeover(cells)
    wait_for_older(cells)
    try:
        suite = suite_of(lines, publisher, begun)
        with takeover:
            return run_suite(suite, options, env=os.environ, screen=publisher).exit_code
    except InterruptedRunError as error:
        return error.exit_code
    except EvalFactoryError as error:
        publisher.say(str(error))
        reason = str(error).split("\n")[0]
        _give_up(store, wave, lines, Ended("", FAILED, error.exit_code, reason, 1))
        return error.exit_code
    finally:
        if takeover.happened:
            publisher.say(TAKEN_OVER)
        for attempt in begun.values():
            with suppress(OSError):  # a newer start waits a little longer then
                (attempt / ENDED).touch()


def _give_up(store: SlurmStore, wave: Wave, lines: Sequence[PlanLine], ended: Ended) -> None:
    for line in lines:
        store.cell(line.key).publish(ended, wave.number, complete=False)


def suite_of(lines: Sequence[PlanLine], publisher: Publisher, begun: Mapping[str, Path]) -> Suite:
    """A suite for this start of the task: each cell in an attempt's folder, its log where the suite's own is.

    Args:
        begun: key of a cell -> the folder of its attempt.
    """
    store, wave, first = publisher.store, publisher.wave, lines[0]
    served = first.served or {}
    folder = SuiteDir(store.served(first.target, wave.number).absolute())
    cells = []
    for line in lines:
        attempt = begun[line.key]
        prepare(attempt, store.cell(line.key), line, store.suite)
        output = attempt.absolute() / "out"
        publisher.attempts[line.target, line.evaluation] = (line.key, attempt.name)
        document = copy.deepcopy(dict(line.document))
        document["config"]["output_dir"] = str(output)
        cells.append(Cell(line.target, line.evaluation, document, output))
        log = folder.cell_log(line.target, line.evaluation)
        log.parent.mkdir(parents=True, exist_ok=True)
        own = os.path.realpath(store.suite.cell_log(line.target, line.evaluation))
        log.symlink_to(os.path.relpath(own, os.path.realpath(log.parent)))  # a suite may be moved, or copied
    return Suite(
        folder=folder,
        cells=tuple(cells),
        budget=Budget(),
        max_processes=served["max_processes"],
        max_attempts=first.max_attempts,
        max_outage_s=served["max_outage_s"],
        limit_groups={first.target: first.target},
        document={},
        executor="local",
        slurm={},
        serve={first.target: served["serve"]},
    )


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    plan, wave = map(Path, arguments)
    try:
        return work(plan, wave)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
