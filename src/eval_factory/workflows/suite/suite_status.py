"""The state of a suite, for who looks at it from any machine: its events, its cells' folders, and
what Slurm says.

Of a cell that runs its events are read, of one that has ended the result; and the logs of both, for
who asks.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from eval_factory.core.budget import Budget, Spending, total
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.formats import first_of
from eval_factory.core.logs import PHASE, PROGRESS
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import TaskResult
from eval_factory.core.run_statuses import GOING_ON, WITH_RESULT
from eval_factory.core.rundir import RunDir, RunSuiteDir, SuiteDir
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.executors.progress import EventTail, LineTail, figures_text
from eval_factory.executors.runs import RunSpec, RunState, Started, Waiting
from eval_factory.executors.slurm import Slurm
from eval_factory.executors.slurm_runs import JUST_WRITTEN_S, SlurmRuns, Wave, cell_of
from eval_factory.workflows.options import numbers_of
from eval_factory.workflows.suite.suite_folder import holder_now
from eval_factory.workflows.suite.suite_journal import (
    STATUSES,
    CellState,
    Pause,
    SuiteState,
)

RUNNING = "running"
STOPPED = "stopped"
ENDED = "ended"
"""States of a suite: a process works on it; its last one was killed; its last one came to its end.
"""
NOT_KNOWN = "Slurm does not say whether it is queued: ask again"
RESULT_PUBLISHED = "its job has ended: the same command takes the result over"
TASK_GONE = (
    "its task is gone from Slurm and left no result: "
    "its logs say why, the same command submits it again"
)
_INTERVAL_S = 5.0
"""Seconds for which what was read is good enough: squeue asks one program for a whole cluster, and
a journal of many answers takes its time, and is written all the while.
"""
_COUNTS = ("total", "done", "cached", "failed", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class CellJob:
    # Slurm's words for the task, with what it waits for; None if it is not queued any more
    task: str | None
    attempts: int  # how often the cell was started in that wave
    log: Path  # the log of Slurm and the task


@dataclass(frozen=True)
class CellProgress:
    """The last phase that was reported, and what is done in it."""

    # before helm-run tells anything: it is imported, the endpoint is asked one question
    phase: str = "starting"
    phase_since: float | None = None  # Epoch seconds
    counts: Mapping[str, Any] | None = None  # the last `progress` event of the phase
    run: tuple[int, int] = (
        1,
        1,
    )  # the number of the run, and of how many, if a cell is several of HELM's runs

    def after(self, event: Mapping[str, Any]) -> CellProgress:
        """Return the progress after one more event; those that say nothing of the progress change
        nothing.
        """
        number = event.get("number")
        of = event.get("of")
        if event.get("event") == PHASE:
            run = (number, of) if isinstance(number, int) and isinstance(of, int) else self.run
            return CellProgress(str(event.get("phase")), event["time"], None, run)
        if event.get("event") == PROGRESS and all(_is_number(event.get(name)) for name in _COUNTS):
            return replace(self, counts={**event, "role": str(event.get("role"))})
        return self

    def figures(self, room: int = 1000) -> str:
        """Return the figures in words: `120/1000, 2 failed, 37 s left, 24.0/s`: as many of these as
        there are columns for.
        """
        if self.counts is None:
            return ""
        since = self.counts["time"] if self.phase_since is None else self.phase_since
        return figures_text(dict(self.counts), max(0.0, self.counts["time"] - since), room)

    def document(self) -> dict[str, Any]:
        if self.counts is None:
            reported = None
        else:
            reported = {name: self.counts[name] for name in ("role", *_COUNTS)}
        number, of = self.run
        return {
            "phase": self.phase,
            "phase_since": self.phase_since,
            "run": number,
            "runs": of,
            "counts": reported,
        }


@dataclass(frozen=True)
class CellFigures:
    task: str
    main_metric: str
    value: float | None  # None if it could not be computed
    ci_low: float | None
    ci_high: float | None
    n: int | None
    reportable: bool
    identity: str | None = None  # the identity of the run that made the result
    doubt: str | None = None  # what speaks against a score that may be reported, in a few words

    @classmethod
    def of(cls, result: TaskResult) -> CellFigures:
        from eval_factory.report.verdicts import (
            verdict_of,
        )  # imported here: most that look do so while nothing has ended

        verdict = verdict_of(result)
        doubt = None
        if verdict.is_doubt:
            doubt = verdict.value.word
        return cls(
            result.task,
            result.main_metric,
            **numbers_of(result.scores.get(result.main_metric)),
            reportable=result.reportable,
            identity=result.provenance.run_identity,
            doubt=doubt,
        )


@dataclass(frozen=True, kw_only=True)
class CellStatus(CellState):
    """The status of a cell: what its last event says, or what its folder and its job say since."""

    folder: Path
    progress: CellProgress | None = None
    figures: CellFigures | None = None
    spent: Spending  # what all runs of the cell's folder have spent
    job: CellJob | None = None  # set if Slurm has, or had, the cell and it is not complete


@dataclass(frozen=True)
class SuiteStatus:
    folder: SuiteDir
    state: str
    pid: int | None  # the process that works on the suite, or was the last to
    host: str | None
    started: float | None  # Epoch seconds, of the last invocation
    ended: float | None
    exit_code: int | None  # the exit code of the last invocation; None if it did not end
    cells: tuple[CellStatus, ...]
    pauses: tuple[Pause, ...]
    limits: Mapping[str, float]  # the budget of all cells together: number of each limit, by name

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells of each status; a status that no cell has is left out."""
        counts = Counter(cell.status for cell in self.cells)
        return {status: counts[status] for status in STATUSES if counts[status]}

    @property
    def spent(self) -> Spending:
        return total(cell.spent for cell in self.cells)

    @property
    def is_complete(self) -> bool:
        return bool(self.cells) and all(cell.status == RunStatus.COMPLETE for cell in self.cells)


class SuiteReader:
    """Looks at a suite's folder again and again, and reads only what is new; Slurm is asked now
    and then.
    """

    def __init__(
        self,
        folder: SuiteDir,
        slurm: Slurm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._tail = EventTail(folder.events, None)
        self._state = SuiteState()
        self._runs = SlurmRuns(folder, slurm or Slurm(os.environ))
        self._queue: tuple[float, Mapping[str, RunState] | None] | None = None
        self._followed: dict[str, tuple[float, EventTail, CellProgress]] = {}

    def look(self) -> SuiteStatus:
        # before the events: who has let go of the lock has written all of his
        holder = holder_now(self.folder)
        for event in self._tail.new():
            self._state.take(event)
        state = self._state
        started = self._state.started or {}
        ended = self._state.ended or {}
        is_running = holder is not None
        state_of_suite = ENDED if ended else STOPPED
        if is_running:
            state_of_suite = RUNNING
        status = SuiteStatus(
            folder=self.folder,
            state=state_of_suite,
            pid=started.get("pid") if holder is None else holder.pid,
            host=started.get("host") if holder is None else holder.host,
            started=started.get("time"),
            ended=ended.get("time"),
            exit_code=ended.get("exit_code"),
            cells=tuple(map(self._cell, state.all_cells(is_running=is_running))),
            pauses=tuple(state.pauses.values()) if is_running else (),
            limits=_read_once(stated_limits, self.folder.config, modified_at(self.folder.config)),
        )
        return self.with_jobs(status)

    def _cell(self, state: CellState) -> CellStatus:
        folder = self.folder.cell(state.target, state.evaluation)
        cell = CellStatus(**vars(state), folder=folder, spent=self.spent(folder, state.status))
        if cell.status == RunStatus.RUNNING:
            return replace(cell, progress=self._progress(cell, cell.since or 0.0))
        if cell.status == RunStatus.MISSING and cell.identity is not None:
            from eval_factory.workflows.resume import (
                read_state,
            )  # imported here: most that look find nothing missing

            last = read_state(RunDir(folder))
            # its suite was killed before it could say so
            if last is not None and last.identity == cell.identity:
                status = RunStatus.COMPLETE if last.complete else RunStatus.PARTIAL
                cell = replace(cell, status=status, reason=None if last.complete else cell.reason)
        if cell.status not in WITH_RESULT:
            return cell
        written = modified_at(RunDir(folder).evaluation_config)
        figures: CellFigures | None = _read_once(figures_of, folder, written)
        if cell.identity is None or (figures is not None and figures.identity == cell.identity):
            return replace(cell, figures=figures)
        lost = "the result in its folder is of another configuration"
        if figures is None:  # somebody deleted its folder
            lost = "its folder holds no result any more"
        return replace(cell, status=RunStatus.MISSING, reason=f"{lost}; the same command runs it")

    def _progress(self, cell: CellStatus, since: float) -> CellProgress:
        """Return the progress of a cell by its events since it was started (`since`, in epoch
        seconds); those of earlier attempts are left out.
        """
        followed = self._followed.get(cell.name)
        if followed is None or followed[0] != since:
            followed = (since, EventTail(RunDir(cell.folder).events, None), CellProgress())
        _, tail, progress = followed
        for event in tail.new():
            if _is_number(event.get("time")) and event["time"] >= since:
                progress = progress.after(event)
        self._followed[cell.name] = (since, tail, progress)
        return progress

    def spent(self, folder: Path, status: str) -> Spending:
        """Return what all runs of this output folder have spent; as money, only what has a known
        price.
        """
        stamp: object = (status, self._clock() // _INTERVAL_S)
        if status not in GOING_ON:
            stamp = tuple(map(modified_at, RunDir(folder).answers))
        spent: Spending = _read_once(_spent_in, folder, stamp)
        return spent

    def with_jobs(self, status: SuiteStatus) -> SuiteStatus:
        """Return the status that the suite's own files give, with what its jobs do."""
        store = self._runs.store
        if not store.is_there():
            return status
        states = self._jobs() if store.open_waves() else {}
        if states and status.state != RUNNING:
            self._runs.forget_keys(older_than_s=JUST_WRITTEN_S)
            if any(isinstance(state, (Waiting, Started)) for state in states.values()):
                status = replace(status, state=RUNNING, pid=None, host=None)
        latest = {}
        for wave in store.waves():
            for run in wave.runs:
                latest[cell_of(run.name)] = (wave, run)
        cells = tuple(
            self._in_slurm(cell, *latest[cell.name], states)
            if cell.name in latest and cell.status != RunStatus.COMPLETE
            else cell
            for cell in status.cells
        )
        return replace(status, cells=cells)

    def _jobs(self) -> Mapping[str, RunState] | None:
        """Return what Slurm said a few seconds ago at most; None if it does not say."""
        now = self._clock()
        if self._queue is None or now - self._queue[0] >= _INTERVAL_S:
            self._queue = (now, None)
            with suppress(PrerequisiteError):
                self._queue = (now, self._runs.look())
        return self._queue[1]

    def _in_slurm(
        self, cell: CellStatus, wave: Wave, run: RunSpec, states: Mapping[str, RunState] | None
    ) -> CellStatus:
        """Return the status of a cell with what Slurm says of its run. `states`: None: Slurm does
        not say.
        """
        store = self._runs.store
        state = (states or {}).get(run.name)
        starts = store.starts_in(wave, run)
        task = None
        status = cell.status
        reason = cell.reason
        progress = cell.progress
        if isinstance(state, Waiting):
            reason = task = f"{state.where}, {state.reason}" if state.reason else state.where
            status = RunStatus.WAITING
        elif isinstance(state, Started):
            reason = task = state.where
            status = RunStatus.RUNNING
            progress = self._progress(cell, starts[-1].stat().st_mtime) if starts else None
        else:  # not in the queue: what it comes to before the command has taken it over
            ended = store.ended(wave, run)
            has_ended = status in (RunStatus.FAILED, RunStatus.PARTIAL)
            if ended is not None and ended.status == RunStatus.COMPLETE:
                status = RunStatus.WAITING
                reason = RESULT_PUBLISHED
            elif states is None:
                reason = NOT_KNOWN
            elif ended is not None and not has_ended:
                reason = (
                    "its job has ended: "
                    f"{ended.status}{f': {ended.reason}' if ended.reason else ''}"
                )
            elif not has_ended and status != RunStatus.WAITING:
                reason = TASK_GONE
        job = CellJob(task, len(starts), store.task_log(wave, run))
        attempt = max(cell.attempt, len(starts))
        return replace(
            cell, job=job, attempt=attempt, status=status, reason=reason, progress=progress
        )


@lru_cache(maxsize=10_000)
def _read_once(read: Callable[[Path], Any], path: Path, _stamp: object) -> Any:
    """Return what `read` makes of `path`; it is read again if the stamp is another one."""
    return read(path)


def status_of(folder: SuiteDir) -> SuiteStatus:
    return SuiteReader(folder).look()


def figures_of(folder: Path) -> CellFigures | None:
    """Return the figures of the folder's result; None if there is no result that can be read."""
    from eval_factory.report.reader import (
        load_result,
    )  # imported here: most that look do so while nothing has ended

    with suppress(PrerequisiteError):
        return CellFigures.of(load_result(folder).result)
    return None


def _spent_in(folder: Path) -> Spending:
    with suppress(sqlite3.Error):  # damaged, or another's: the run itself says so
        return spent_so_far(RunDir(folder).cache_db, {})
    return Spending()


def stated_limits(config: Path) -> dict[str, float]:
    """Return the limits of the budget that suite_config.yml states; none if it cannot be read."""
    try:
        section = parse_own(config.read_text(encoding="utf-8"))["suite"]
        stated = {limit.name: section.get(limit.name) for limit in fields(Budget)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: value for name, value in stated.items() if _is_number(value)}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def same_command(status: SuiteStatus) -> str:
    """Return the command that goes on with the suite, wherever its folder was moved to."""
    folder = status.folder
    command = "run_suite"
    config = status.folder.config
    if isinstance(folder, RunSuiteDir):
        command = "run_eval"
        config = folder.run_config
    return shlex.join(
        ["eval-factory", command, "--run_config", str(config), "--output_dir", str(folder.named)]
    )


def limit_reached(budget: Budget, spent: Spending, seconds_left: float | None) -> str | None:
    """Return the limit that is used up, with its number; None if there is something left.
    `seconds_left`: what is left of max_wall_s; None if there is no such limit.
    """
    elapsed = 0.0
    if seconds_left is not None and budget.max_wall_s is not None:
        elapsed = budget.max_wall_s - seconds_left
    name = budget.reached(spent.by_limit(elapsed))
    if name is None:
        return None
    return f"{name} ({budget.stated[name]:g}) of the suite is reached"


def status_document(status: SuiteStatus) -> dict[str, Any]:
    names = ("state", "pid", "host", "started", "ended", "exit_code")
    return {
        "suite": str(status.folder.root),
        **{name: getattr(status, name) for name in names},
        "command": same_command(status),
        "complete": status.is_complete,
        "total": len(status.cells),
        "counts": status.counts,
        "spent": asdict(status.spent),
        "limits": dict(status.limits),
        "paused": [{**asdict(pause), "cells": sorted(pause.cells)} for pause in status.pauses],
        "cells": [_cell_document(cell) for cell in status.cells],
    }


def _cell_document(cell: CellStatus) -> dict[str, Any]:
    names = (
        "target",
        "evaluation",
        "status",
        "attempt",
        "reason",
        "since",
        "collected",
        "reused_from",
    )
    document = {
        **{name: getattr(cell, name) for name in names},
        "folder": str(cell.folder),
        "spent": asdict(cell.spent),
        "progress": None if cell.progress is None else cell.progress.document(),
        "result": None if cell.figures is None else asdict(cell.figures),
    }
    if (job := cell.job) is not None:
        work = str(cell.folder) if job.task and job.attempts else None
        document["slurm"] = {
            "task": job.task,
            "attempts": job.attempts,
            "log": str(job.log),
            "work_folder": work,
        }
    return document


def show_logs(
    reader: SuiteReader, wanted: str | None, write: Callable[[str], object], *, follow: bool
) -> None:
    """Show every line of the logs of the cell that `find_cell` finds; with `follow` until it has
    ended, or the suite. Raises ConfigError, PrerequisiteError: there is no such cell; it has no
    logs.
    """
    tails: dict[Path, LineTail] = {}
    last: LineTail | None = None
    while True:
        status = reader.look()
        cell = find_cell(status, wanted)
        # Slurm's words on its task, what a run by itself would show, the program's own log, and
        # HELM's
        job = cell.job
        wanted = cell.name
        rundir = RunDir(cell.folder)
        paths = [
            status.folder.cell_log(cell.target, cell.evaluation),
            rundir.program_log,
            rundir.helm_log,
        ]
        if job is not None:
            # else the logs in its folder are of an earlier run
            has_started = job.task is None or job.attempts
            paths = [job.log, *(paths if has_started else paths[:1])]
        tails |= {path: LineTail(path) for path in paths if path not in tails}
        if not follow and not any(path.is_file() for path in tails):
            why = f"{cell.status}{f', {cell.reason}' if cell.reason else ''}"
            raise PrerequisiteError(f"{cell.name}: has no logs yet: {why}; -f waits for them")
        goes_on = follow and (cell.status in GOING_ON or cell.reason == NOT_KNOWN)
        for tail in tails.values():
            lines = list(tail.lines())
            for line in lines if goes_on or not tail.rest else [*lines, tail.rest]:
                if tail is not last:
                    write(f"==> {tail.path} <==")
                    last = tail
                write(printable(line.decode("utf-8", errors="replace")))
        if not goes_on:
            return
        time.sleep(0.5)


def find_cell(status: SuiteStatus, wanted: str | None) -> CellStatus:
    """Return the cell of that name, or the only one whose name has this in it; `wanted`: None if
    there is one alone. Raises ConfigError: there is none, or more than one.
    """
    cells = []
    for cell in status.cells:
        if wanted is None or wanted in cell.name:
            cells.append(cell)
    cells = [cell for cell in cells if cell.name == wanted] or cells
    if len(cells) == 1:
        return cells[0]
    if wanted is None:
        named = "the name of a cell is needed"
    else:
        named = f"{one_line(repr(wanted))} fits {len(cells)} cells"
    there = first_of([cell.name for cell in cells or status.cells], 10) or "none yet"
    raise ConfigError(f"{named}; there are: {there}")
