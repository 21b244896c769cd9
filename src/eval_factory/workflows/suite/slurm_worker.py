"""A task of Slurm: one cell, from the plan to a published result.

    python -m eval_factory.workflows.suite.slurm_worker PLAN WAVE

The task may be started again after its node was lost, and may run on two nodes at once: it works in a folder of its
own, on a copy of the answers that earlier attempts have paid for, and the first result that is published counts.

Two starts of one task at the same time: the newer one takes over, so that no request is paid for by both.

Slurm starts a task again when it hears nothing of its node, whose processes may well go on (a frozen slurmd, a broken
network). Both see the folders of what the task does, a cell or all cells of a served model: the older start finds that
of the newer one and ends, and the newer one gives it time to, before it copies the answers.

A task of Slurm that serves a model and does all of its cells: the same that `run_suite` does on one machine.

    python -m eval_factory.workflows.suite.slurm_worker PLAN WAVE

As with the task of one cell, it may be started again and may run on two nodes at once: each cell is done in a folder
of its own, on a copy of the answers that are paid for, and is published when it has ended. A newer start takes over
from an older one that still runs.
"""

from __future__ import annotations

import copy
import errno
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from eval_factory.config.suite import Cell, Suite
from eval_factory.core.budget import Budget
from eval_factory.core.errors import EvalFactoryError, HelmError, InterruptedRunError, PrerequisiteError
from eval_factory.core.rundir import PRIVATE, RunDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.this_process import interrupt_on_signals
from eval_factory.endpoint import response_cache
from eval_factory.executors.slurm import Wave
from eval_factory.report.documents import to_yaml
from eval_factory.workflows.options import DISK_TAKES_NO_MORE
from eval_factory.workflows.prepare import copy_store
from eval_factory.workflows.suite.cell_outcome import (
    COMPLETE,
    FAILED,
    MISSING,
    CellSpec,
    NextAction,
    Outcome,
    Tried,
    end_of,
    outcome_of,
)
from eval_factory.workflows.suite.cell_process import run_cell
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.slurm_store import (
    RUN_CONFIG,
    CellStore,
    EndedCell,
    PlanLine,
    SlurmStore,
    read_plan,
    read_wave,
)
from eval_factory.workflows.suite.slurm_suite import take_environment
from eval_factory.workflows.suite.suite_journal import CELL_ENDED
from eval_factory.workflows.suite.suite_report import SuiteOptions

LOOK_S = 1.0
PATIENCE_S = 8.0
"""For an older start to see the newer one, and to end its helm-run: LOOK_S, and at most two graces of SIGTERM. A start
whose node is gone never says that it has ended: it costs so long, once for each start after it."""
POLL_S = 0.2
ENDED = "end.json"
"""In the folder of an attempt that came to its end, whatever that was."""


def wait_for_older(
    begun: Mapping[CellStore, Path],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether every other start of these cells has ended; if not, it was waited for as long as one needs to.

    Args:
        begun: cell -> the folder of this start.
    """
    ends = clock() + PATIENCE_S
    while any(_others_work(cell, attempt) for cell, attempt in begun.items()):
        if clock() >= ends:
            return False
        sleep(POLL_S)
    return True


def _others_work(cell: CellStore, attempt: Path) -> bool:
    return any(path != attempt and not (path / ENDED).exists() for path in cell.attempts())


def interrupt_this_process() -> None:
    """As Slurm does: what was answered is on disk, and nothing is published."""
    os.kill(os.getpid(), signal.SIGTERM)


class Takeover:
    """While it is entered, the first start of one of the cells that is newer than this one interrupts this one."""

    def __init__(
        self,
        cells: Collection[CellStore],
        interrupt: Callable[[], object] = interrupt_this_process,
        every_s: float = LOOK_S,
    ) -> None:
        self._cells, self._interrupt, self._every_s = cells, interrupt, every_s
        self._known = self._attempts()
        self._left = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self.happened = False

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._watch.join()

    def look(self) -> None:
        """Once; a file system that does not answer says nothing about others."""
        with suppress(OSError):
            if not self.happened and not self._known.issuperset(self._attempts()):
                self.happened = True
                self._interrupt()

    def _attempts(self) -> set[Path]:
        return {path for cell in self._cells for path in cell.attempts()}

    def _look(self) -> None:
        while not self.happened and not self._left.wait(self._every_s):
            self.look()


MODULE = "eval_factory.workflows.suite.slurm_worker"
TASK = "SLURM_ARRAY_TASK_ID"
MOST_STARTS = 6
"""Of one cell in one wave, with those after lost nodes: a cell that takes its node down is not begun for ever."""
NO_ROOM = PrerequisiteError.exit_code
SQLITE_FULL = "database or disk is full"
AGAIN = (NextAction.AGAIN, NextAction.ASK_AND_AGAIN)


def work(plan: Path, wave_file: Path, index: int) -> int:
    """Do the task. Returns the exit code, which Slurm keeps and nobody needs."""
    wave, store = read_wave(wave_file), store_of(plan)
    line = next((line for line in read_plan(plan) if line.key == wave.keys[index]), None)
    if line is None:
        return 0  # a part of a cell, which an earlier version submitted: the same command submits the cell
    cell, code = store.cell(line.key), 0
    if not is_over(store, wave, line.key):
        cell.folder.mkdir(parents=True, exist_ok=True)
        try:
            take_environment(store.environment(wave.number), os.environ)
        except FileNotFoundError:
            reason = "its keys are gone, as after 'suite cancel': run the same command again"
            code = PrerequisiteError.exit_code
            cell.publish(EndedCell("", MISSING, code, reason, 0), wave.number, complete=False)
        else:
            code = _until_it_ends(cell, line, wave, store.suite)
            if code == InterruptedRunError.exit_code:
                return code
    remove_environments(store, wave)
    return code


def store_of(plan: Path) -> SlurmStore:
    """Of the suite whose plan it is: `.suite/slurm/plan.jsonl` in its folder."""
    return SlurmStore(suite_dir(plan.absolute().parents[2]))


def is_over(store: SlurmStore, wave: Wave, key: str) -> bool:
    """Whether nothing of a cell is left to do in this wave."""
    cell = store.cell(key)
    return cell.done() is not None or cell.ended(wave.number) is not None


def remove_environments(store: SlurmStore, wave: Wave) -> None:
    """The keys go when no task of the wave needs them any more."""
    if all(is_over(store, wave, key) for key in wave.keys):
        store.environment(wave.number).unlink(missing_ok=True)


def _until_it_ends(cell: CellStore, line: PlanLine, wave: Wave, suite: SuiteDir) -> int:
    """Begin the cell until another attempt cannot help, and publish what came of it.

    An attempt that was interrupted (its time, `scancel`, a node that is needed for others) is not published: Slurm may
    start the task again.
    """
    crashes = 0
    for count in range(1, line.max_attempts + 1):
        if cell.attempts_of(wave.number) >= MOST_STARTS:
            reason = f"was begun {MOST_STARTS} times and never came to its end"
            outcome = Outcome(NextAction.REST, FAILED, reason, HelmError.exit_code)
            cell.publish(_ended("", outcome, MOST_STARTS), wave.number, complete=False)
            return outcome.exit_code
        attempt, outcome = _begin(cell, line, wave, suite, Tried(count, line.max_attempts, crashes))
        crashes += outcome.crashed
        if outcome.exit_code == InterruptedRunError.exit_code:
            return outcome.exit_code
        if outcome.then not in AGAIN:
            break
    cell.publish(_ended(attempt, outcome, count), wave.number, complete=outcome.status == COMPLETE)
    return outcome.exit_code


def _begin(cell: CellStore, line: PlanLine, wave: Wave, suite: SuiteDir, tried: Tried) -> tuple[str, Outcome]:
    """One attempt: the name of its folder, and what came of it. Where the disk takes no more nothing is asked."""
    try:
        attempt = cell.new_attempt(wave.number)
        takeover = Takeover([cell])
        wait_for_older({cell: attempt})
        _prepare(attempt, cell, line, suite)
    except OSError as error:
        if error.errno not in DISK_TAKES_NO_MORE:
            raise
        reason = f"cannot write {error.filename or cell.folder}: {error.strerror}"
        return "", Outcome(NextAction.REST, FAILED, reason, NO_ROOM)
    return attempt.name, _run(attempt, line, suite, tried, takeover)


def _ended(attempt: str, outcome: Outcome, count: int) -> EndedCell:
    return EndedCell(attempt, outcome.status, outcome.exit_code, outcome.reason, count)


def _prepare(attempt: Path, cell: CellStore, line: PlanLine, suite: SuiteDir) -> None:
    """Put the run config into its folder, and the answers of the last attempt that can be read.

    Raises:
        OSError: the disk takes no more.
    """
    earlier = (path / "out" for path in cell.attempts() if path != attempt)
    before = [RunDir(path) for path in (suite.cell(line.target, line.evaluation), *earlier)]
    output = attempt / "out"
    document = copy.deepcopy(dict(line.document))
    document["config"]["output_dir"] = str(output)
    write_atomic(attempt / RUN_CONFIG, to_yaml(document), mode=PRIVATE)
    for source in reversed(before):
        if copy_answers(source, RunDir(output)):
            break
    shards = [store for one in before for store in one.stores()[1:]]
    parts = [RunDir(path / "out") for part in cell.parts() for path in part.attempts()[-1:]]
    put_together([*shards, *(store for one in parts for store in one.stores())], RunDir(output))


def put_together(sources: Iterable[RunDir], target: RunDir) -> None:
    """Put the answers of several folders into one; what cannot be read of them is asked again."""
    for source in sources:
        copied = RunDir(target.root.with_name("copied"))
        if copy_answers(source, copied):
            target.root.mkdir(parents=True, exist_ok=True)
            response_cache.create_or_check(target.cache_db)
            response_cache.create_or_check(copied.cache_db)
            copy_store(copied.cache_db, target.cache_db)
            shutil.rmtree(copied.root)


def copy_answers(source: RunDir, target: RunDir) -> bool:
    """Whether the copy is whole and has any: its writer may be at work on a node that nobody can reach.

    Raises:
        OSError: the disk takes no more; whoever began without the answers would pay for them again.
    """
    if not source.cache_db.is_file():
        return False
    target.root.mkdir(parents=True, exist_ok=True)
    some = False
    try:
        for one, other in zip(source.answers[:2], target.answers[:2], strict=True):
            with suppress(FileNotFoundError):
                shutil.copyfile(one, other)
                other.chmod(PRIVATE)
        with closing(sqlite3.connect(target.cache_db)) as connection:
            whole = bool(connection.execute("PRAGMA quick_check").fetchone() == ("ok",))
            some = whole and connection.execute("SELECT 1 FROM responses LIMIT 1").fetchone() is not None
    except (OSError, sqlite3.Error) as error:
        _raise_if_full(error, target.cache_db)
    finally:
        if not some:
            shutil.rmtree(target.root)
    return some


def _raise_if_full(error: OSError | sqlite3.Error, path: Path) -> None:
    if isinstance(error, OSError) and error.errno in DISK_TAKES_NO_MORE:
        raise OSError(error.errno, error.strerror, str(path)) from error
    if str(error) == SQLITE_FULL:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


def _run(attempt: Path, line: PlanLine, suite: SuiteDir, tried: Tried, takeover: Takeover) -> Outcome:
    """Evaluate, as `run_eval` does; what it says goes into the cell's log."""
    record = attempt / ENDED
    log = suite.cell_log(line.target, line.evaluation)
    spec = CellSpec(
        number=tried.attempts,
        run_config=str(attempt / RUN_CONFIG),
        log=str(log),
        record=str(record),
        debug=line.debug,
        probed=() if line.no_preflight else None,
    )
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1, errors="backslashreplace") as screen:
        with takeover:
            code = run_cell(spec, screen)
        if takeover.happened:
            screen.write("Slurm has started this cell again elsewhere: the newer start goes on, with its answers\n")
    return outcome_of(end_of(code, record), tried)


KEYS_ARE_GONE = "its keys are gone, as after 'suite cancel': run the same command again"
TAKEN_OVER = "Slurm has started this task again elsewhere: the newer start goes on, with its answers"
INTERRUPTED = InterruptedRunError.exit_code


@dataclass
class _Publisher:
    """Looks on while the cells are done, and publishes each that has ended."""

    store: SlurmStore
    wave: Wave
    attempts: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(target, evaluation) -> key of the cell, name of its attempt's folder."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] != CELL_ENDED or event.get("again") or event["exit_code"] == INTERRUPTED:
            return
        key, attempt = self.attempts[event["target"], event["evaluation"]]
        ended = EndedCell(attempt, event["status"], event["exit_code"], event["reason"], event["attempt"])
        self.store.cell(key).publish(ended, self.wave.number, complete=ended.status == COMPLETE)

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        print(text, flush=True)


def work_served(plan: Path, wave_file: Path) -> int:
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
            _give_up(store, wave, left, EndedCell("", MISSING, code, KEYS_ARE_GONE, 0))
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
        cell.publish(EndedCell("", FAILED, HelmError.exit_code, reason, MOST_STARTS), wave.number, complete=False)
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
            _give_up(store, wave, lines, EndedCell("", FAILED, NO_ROOM, reason, 1))
        return NO_ROOM


def _do(lines: Sequence[PlanLine], store: SlurmStore, wave: Wave) -> int:
    """What stops the whole of it, of which no cell has heard, is what became of those that have not ended."""
    publisher = _Publisher(store, wave)
    options = SuiteOptions(debug=lines[0].debug, no_preflight=lines[0].no_preflight)
    begun = {line.key: store.cell(line.key).new_attempt(wave.number) for line in lines}
    cells = {store.cell(key): attempt for key, attempt in begun.items()}
    takeover = Takeover(cells)
    wait_for_older(cells)
    try:
        suite = _suite_of(lines, publisher, begun)
        with takeover:
            return run_suite(suite, options, env=os.environ, screen=publisher).exit_code
    except InterruptedRunError as error:
        return error.exit_code
    except EvalFactoryError as error:
        publisher.say(str(error))
        reason = str(error).split("\n")[0]
        _give_up(store, wave, lines, EndedCell("", FAILED, error.exit_code, reason, 1))
        return error.exit_code
    finally:
        if takeover.happened:
            publisher.say(TAKEN_OVER)
        for attempt in begun.values():
            with suppress(OSError):  # a newer start waits a little longer then
                (attempt / ENDED).touch()


def _give_up(store: SlurmStore, wave: Wave, lines: Sequence[PlanLine], ended: EndedCell) -> None:
    for line in lines:
        store.cell(line.key).publish(ended, wave.number, complete=False)


def _suite_of(lines: Sequence[PlanLine], publisher: _Publisher, begun: Mapping[str, Path]) -> Suite:
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
        _prepare(attempt, store.cell(line.key), line, store.suite)
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
        if read_wave(wave).together:
            return work_served(plan, wave)
        return work(plan, wave, int(os.environ[TASK]))
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    except OSError as error:
        if error.errno not in DISK_TAKES_NO_MORE:
            raise
        return NO_ROOM  # its log could not be written either; the same command submits the cell again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
