"""A task of Slurm: one cell, from the plan to a published result.

    python -m eval_factory.workflows.suite.slurm_worker PLAN WAVE

The task may be started again after its node was lost, and may run on two nodes at once: it works in a folder of its
own, on a copy of the answers that earlier attempts have paid for, and the first result that is published counts.
"""

from __future__ import annotations

import copy
import errno
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import HelmError, InterruptedRunError, PrerequisiteError
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.signals import interrupt_on_signals
from eval_factory.core.suite_dir import SuiteDir, suite_dir
from eval_factory.endpoint import response_cache
from eval_factory.executors.slurm_waves import Wave
from eval_factory.report.documents import to_yaml
from eval_factory.workflows.options import DISK_TAKES_NO_MORE
from eval_factory.workflows.prepare import copy_store
from eval_factory.workflows.suite.cell_outcome import COMPLETE, FAILED, MISSING, Outcome, Then, Tried, outcome_of
from eval_factory.workflows.suite.cell_process import run_cell
from eval_factory.workflows.suite.cell_spec import CellSpec, end_of
from eval_factory.workflows.suite.slurm_environment import take_environment
from eval_factory.workflows.suite.slurm_store import (
    RUN_CONFIG,
    CellStore,
    Ended,
    PlanLine,
    SlurmStore,
    read_plan,
    read_wave,
)
from eval_factory.workflows.suite.slurm_takeover import ENDED, Takeover, wait_for_older

MODULE = "eval_factory.workflows.suite.slurm_worker"
TASK = "SLURM_ARRAY_TASK_ID"
MOST_STARTS = 6
"""Of one cell in one wave, with those after lost nodes: a cell that takes its node down is not begun for ever."""
NO_ROOM = PrerequisiteError.exit_code
SQLITE_FULL = "database or disk is full"
AGAIN = (Then.AGAIN, Then.ASK_AND_AGAIN)


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
            cell.publish(Ended("", MISSING, code, reason, 0), wave.number, complete=False)
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
            outcome = Outcome(Then.REST, FAILED, reason, HelmError.exit_code)
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
        prepare(attempt, cell, line, suite)
    except OSError as error:
        if error.errno not in DISK_TAKES_NO_MORE:
            raise
        reason = f"cannot write {error.filename or cell.folder}: {error.strerror}"
        return "", Outcome(Then.REST, FAILED, reason, NO_ROOM)
    return attempt.name, run(attempt, line, suite, tried, takeover)


def _ended(attempt: str, outcome: Outcome, count: int) -> Ended:
    return Ended(attempt, outcome.status, outcome.exit_code, outcome.reason, count)


def prepare(attempt: Path, cell: CellStore, line: PlanLine, suite: SuiteDir) -> None:
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


def run(attempt: Path, line: PlanLine, suite: SuiteDir, tried: Tried, takeover: Takeover) -> Outcome:
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


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    plan, wave = map(Path, arguments)
    try:
        return work(plan, wave, int(os.environ[TASK]))
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    except OSError as error:
        if error.errno not in DISK_TAKES_NO_MORE:
            raise
        return NO_ROOM  # its log could not be written either; the same command submits the cell again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
