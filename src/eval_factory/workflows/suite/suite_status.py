"""Where a suite stands, for who looks at it from any machine: its events, its cells' folders, and what Slurm says."""

from __future__ import annotations

import os
import shlex
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.budget import Budget, Spending
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.rundir import Holder, RunDir, RunSuiteDir, SuiteDir, is_running
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.executors.progress import EventTail, figures_text
from eval_factory.executors.runs import RunSpec, RunState, Started, Waiting
from eval_factory.executors.slurm import Slurm
from eval_factory.executors.slurm_runs import JUST_WRITTEN_S, SlurmRuns, Wave, cell_of
from eval_factory.workflows.suite.suite_folder import lock_is_held, may_hold
from eval_factory.workflows.suite.suite_journal import (
    COMPLETE,
    FAILED,
    MISSING,
    PARTIAL,
    RUNNING,
    STATUSES,
    WAITING,
    CellState,
    Pause,
    SuiteState,
)


@dataclass(frozen=True)
class CellJob:
    task: str | None
    """As Slurm speaks of it, with what it waits for; None where it is not queued any more."""
    attempts: int
    """How often the cell was begun in that wave."""
    log: Path
    """What Slurm and the task say of themselves."""
    work: Path | None
    """The folder of the last attempt, an output folder; None before there is one, and once it became the cell's."""


_COUNTS = ("total", "done", "cached", "failed", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class CellProgress:
    """The last phase that was reported, and what is done in it."""

    phase: str = "starting"
    """Before helm-run tells anything: it is imported, the endpoint is asked one question."""
    phase_since: float | None = None
    """Epoch seconds."""
    counts: Mapping[str, Any] | None = None
    """The last `progress` event of the phase."""
    run: tuple[int, int] = (1, 1)
    """The number of the run, and of how many, where a cell is several of HELM's runs."""

    def figures(self, room: int = 1000) -> str:
        """`120/1000, 2 failed, 37 s left, 24.0/s`: as many of these as there are columns for."""
        return "" if self.counts is None else figures_text(dict(self.counts), self.elapsed_s, room)

    @property
    def elapsed_s(self) -> float:
        """From the beginning of the phase to the last count."""
        if self.counts is None or self.phase_since is None:
            return 0.0
        return max(0.0, float(self.counts["time"]) - self.phase_since)

    @property
    def rate(self) -> float:
        return float(self.counts["done"]) / self.elapsed_s if self.counts is not None and self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """None where nobody knows."""
        if self.counts is None or not self.counts["total"] or not self.rate:
            return None
        return max(0.0, float(self.counts["total"] - self.counts["done"]) / self.rate)

    def document(self) -> dict[str, Any]:
        reported = None if self.counts is None else {name: self.counts[name] for name in ("role", *_COUNTS)}
        number, of = self.run
        return {
            "phase": self.phase, "phase_since": self.phase_since, "run": number, "runs": of,
            "counts": reported, "requests_per_s": round(self.rate, 3),
            "left_s": None if self.left_s is None else round(self.left_s, 1),
        }  # fmt: skip


class CellFollower:
    """Reads on in a cell's events; those of earlier attempts are left out."""

    def __init__(self, folder: Path, since: float) -> None:
        """`since`: when the cell was started, in epoch seconds."""
        self._tail, self.since = EventTail(RunDir(folder).events, None), since
        self.progress = CellProgress()

    def look(self) -> CellProgress:
        for event in self._tail.new():
            if is_number(event.get("time")) and event["time"] >= self.since:
                self.progress = after(self.progress, event)
        return self.progress


def after(progress: CellProgress, event: Mapping[str, Any]) -> CellProgress:
    """One more event; those that say nothing of the progress change nothing."""
    kind = event.get("event")
    if kind == event_names.PHASE:
        number, of = event.get("number"), event.get("of")
        run = (number, of) if isinstance(number, int) and isinstance(of, int) else progress.run
        return CellProgress(str(event.get("phase")), event["time"], None, run)
    if kind == event_names.PROGRESS and all(is_number(event.get(name)) for name in _COUNTS):
        counts = {**event, "role": str(event.get("role"))}
        return CellProgress(progress.phase, progress.phase_since, counts, progress.run)
    return progress


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


GOES, STOPPED, ENDED = "running", "stopped", "ended"
"""Of a suite: a process works on it; its last one was killed; its last one came to its end."""
RUN_IT = "the same command runs it"
UNKNOWN = Holder(pid=0, host="", since="")
"""Somebody who holds the lock and has not said who he is yet."""


@dataclass(frozen=True)
class CellFigures:
    task: str
    main_metric: str
    value: float | None
    """None where it could not be computed."""
    ci_low: float | None
    ci_high: float | None
    n: int | None
    reportable: bool
    identity: str | None = None
    """Of the run that it is the result of."""


@dataclass(frozen=True)
class CellStatus:
    state: CellState
    folder: Path
    progress: CellProgress | None = None
    figures: CellFigures | None = None
    spent: Spending = field(default_factory=Spending)
    """In all runs of the cell's folder."""
    job: CellJob | None = None
    """Of a cell that Slurm has, or had, and that is not complete."""


@dataclass(frozen=True)
class SuiteStatus:
    folder: SuiteDir
    state: str
    pid: int | None
    """Of the process that works on it, or was the last to."""
    host: str | None
    started: float | None
    """Epoch seconds, of the last invocation."""
    ended: float | None
    exit_code: int | None
    """Of the last invocation, where it came to its end."""
    invocations: int
    cells: tuple[CellStatus, ...]
    pauses: tuple[Pause, ...]
    command: str | None = None
    """That began it, where it is known."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Of the budget of all cells together: name -> number."""

    @property
    def counts(self) -> dict[str, int]:
        """Status -> how many cells have it; those that none has are left out."""
        found = Counter(cell.state.status for cell in self.cells)
        return {status: found[status] for status in STATUSES if found[status]}

    @property
    def spent(self) -> Spending:
        return total(cell.spent for cell in self.cells)

    @property
    def is_complete(self) -> bool:
        return bool(self.cells) and all(cell.state.status == COMPLETE for cell in self.cells)


NOT_KNOWN = "Slurm does not say whether it is queued: ask again"
RESULT_PUBLISHED = "its job has ended: the same command takes the result over"
TASK_GONE = "its task is gone from Slurm and left no result: its logs say why, the same command submits it again"
_INTERVAL_S = 5.0
"""How long what was read is good enough: squeue asks one program for a whole cluster, and a journal of many answers
takes its time, and is written all the while."""


class SuiteReader:
    """Looks at a suite's folder again and again, and reads only what is new.

    Of a cell that runs it reads the events, of one that has ended the result; Slurm is asked now and then, and only
    while it may have something of the suite.
    """

    def __init__(
        self, folder: SuiteDir, slurm: Slurm | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._clock = folder, clock
        self._tail, self._state = EventTail(folder.events, None), SuiteState()
        self._runs = SlurmRuns(folder, slurm or Slurm(os.environ))
        self._queue: tuple[float, Mapping[str, RunState] | None] | None = None
        self._followers: dict[str, CellFollower] = {}
        self._figures: dict[str, tuple[float, CellFigures | None]] = {}
        self._spent: dict[Path, tuple[float, str, object, Spending]] = {}
        self._limits: tuple[float, dict[str, float]] | None = None

    def look(self) -> SuiteStatus:
        holder = holder_now(self._folder)  # before the events: who has let go of the lock has written all of his
        for event in self._tail.new():
            self._state.take(event)
        return self.over(self.status(self._state, is_running=holder is not None, holder=holder))

    def status(self, state: SuiteState, *, is_running: bool, holder: Holder | None = None) -> SuiteStatus:
        """Of the suite that the events tell of; `holder` is the process that works on it, where that is known."""
        started, ended = state.started or {}, state.ended or {}
        written = modified_at(self._folder.config)
        if self._limits is None or self._limits[0] != written:
            self._limits = (written, stated_limits(self._folder))
        return SuiteStatus(
            folder=self._folder,
            state=GOES if is_running else ENDED if ended else STOPPED,
            pid=started.get("pid") if holder is None else holder.pid,
            host=started.get("host") if holder is None else holder.host,
            started=started.get("time"),
            ended=ended.get("time"),
            exit_code=ended.get("exit_code"),
            invocations=state.invocations,
            cells=tuple(map(self.cell, state.all_cells(is_running=is_running))),
            pauses=tuple(state.pauses.values()) if is_running else (),
            command=started.get("command"),
            limits=self._limits[1],
        )

    def cell(self, cell: CellState) -> CellStatus:
        folder, since = self._folder.cell(cell.target, cell.evaluation), cell.since or 0.0
        spent = self.spent(folder, cell.status)
        if cell.status == RUNNING:
            return CellStatus(cell, folder, progress=self._progress(cell.name, folder, since), spent=spent)
        if cell.status == MISSING and cell.identity is not None:
            from eval_factory.workflows.resume import read_state  # imported here: most that look find nothing missing

            state = read_state(RunDir(folder))
            if state is not None and state.complete and state.identity == cell.identity:
                cell = replace(cell, status=COMPLETE, reason=None)  # its suite was killed before it could say so
        if cell.status not in (COMPLETE, PARTIAL):
            return CellStatus(cell, folder, spent=spent)
        written, known = modified_at(RunDir(folder).evaluation_config), self._figures.get(cell.name)
        if known is None or known[0] != written:
            known = self._figures[cell.name] = (written, figures_of(folder))
        figures, lost = known[1], None
        if cell.identity is not None and figures is None:  # somebody deleted its folder
            lost = "its folder holds no result any more"
        elif cell.identity is not None and figures is not None and cell.identity != figures.identity:
            lost = "the result in its folder is of another configuration"
        if lost is not None:
            return CellStatus(replace(cell, status=MISSING, reason=f"{lost}; {RUN_IT}"), folder, spent=spent)
        return CellStatus(cell, folder, figures=figures, spent=spent)

    def _progress(self, name: str, folder: Path, since: float) -> CellProgress:
        follower = self._followers.get(name)
        if follower is None or follower.since != since:
            follower = self._followers[name] = CellFollower(folder, since)
        return follower.look()

    def spent(self, folder: Path, status: str) -> Spending:
        """In all runs of this output folder; of what has a known price alone, where it is money.

        Args:
            status: of the cell. Where it is another, all is read at once: what has ended has its final figures.
        """
        now, known, rundir = self._clock(), self._spent.get(folder), RunDir(folder)
        if known is not None and known[1] == status and now - known[0] < _INTERVAL_S:
            return known[3]
        there = []
        for path in rundir.answers:
            with suppress(OSError):
                about = path.stat()
                there.append((path, about.st_mtime_ns, about.st_size))
        spent = Spending()
        if known is not None and known[2] == there:
            spent = known[3]
        else:
            with suppress(sqlite3.Error):  # damaged, or another's: the run itself says so
                spent = spent_so_far(rundir.cache_db, {})
        self._spent[folder] = (now, status, there, spent)
        return spent

    def over(self, status: SuiteStatus) -> SuiteStatus:
        """The status that the suite's own files give, with what its jobs do."""
        store = self._runs.store
        if not store.is_there():
            return status
        states: Mapping[str, RunState] | None = {}
        now = self._clock()
        if store.open_waves():
            if self._queue is None or now - self._queue[0] >= _INTERVAL_S:
                self._queue = (now, None)  # Slurm does not say
                with suppress(PrerequisiteError):
                    self._queue = (now, self._runs.look())
            states = self._queue[1]
        if states and status.state != GOES:
            self._runs.forget_keys(older_than_s=JUST_WRITTEN_S)
        latest = {cell_of(run.name): (wave, run) for wave in store.waves() for run in wave.runs}
        cells = tuple(
            self._in_slurm(cell, *latest[cell.state.name], states)
            if cell.state.name in latest and cell.state.status != COMPLETE
            else cell
            for cell in status.cells
        )
        status = replace(status, cells=cells)
        queued = any(isinstance(one, (Waiting, Started)) for one in (states or {}).values())
        return replace(status, state=GOES, pid=None, host=None) if queued and status.state != GOES else status

    def _in_slurm(
        self, cell: CellStatus, wave: Wave, run: RunSpec, states: Mapping[str, RunState] | None
    ) -> CellStatus:
        """
        Args:
            states: None: Slurm does not say.
        """
        store, state = self._runs.store, (states or {}).get(run.name)
        starts = store.starts_in(wave, run)
        task = None
        if isinstance(state, (Waiting, Started)):
            why = state.reason if isinstance(state, Waiting) else ""
            task = f"{state.where}, {why}" if why else state.where
        job = CellJob(task, len(starts), store.task_log(wave, run), cell.folder if task and starts else None)
        status, reason, progress = cell.state.status, task, cell.progress
        if isinstance(state, Waiting):
            status = WAITING
        elif isinstance(state, Started):
            status, progress = RUNNING, None
            if starts:
                progress = self._progress(cell.state.name, cell.folder, starts[-1].stat().st_mtime)
        else:  # not in the queue: what it comes to before the command has taken it over
            ended, reason = store.ended(wave, run), cell.state.reason
            if ended is not None and ended.status == COMPLETE:
                status, reason = WAITING, RESULT_PUBLISHED
            elif states is None:
                reason = NOT_KNOWN
            elif status not in (FAILED, PARTIAL) and ended is not None:
                reason = f"its job has ended: {ended.status}{f': {ended.reason}' if ended.reason else ''}"
            elif status not in (FAILED, PARTIAL, WAITING):
                reason = TASK_GONE
        reported = replace(cell.state, attempt=max(cell.state.attempt, len(starts)), status=status, reason=reason)
        return replace(cell, job=job, state=reported, progress=progress)


def same_command(status: SuiteStatus) -> str:
    """What goes on with the suite: its own command, or one that does the same."""
    if status.command is not None:
        return status.command
    if isinstance(status.folder, RunSuiteDir):
        words = ["eval-factory", "run_eval", "--run_config", str(status.folder.run_config)]
    else:
        words = ["eval-factory", "run_suite", "--run_config", str(status.folder.config)]
    stated = _section(status.folder).get("output_dir")  # another folder, where the suite would begin from nothing?
    if isinstance(stated, str) and os.path.realpath(stated) != os.path.realpath(status.folder.root):
        words += ["--output_dir", str(status.folder.named)]
    return shlex.join(words)


def holder_now(folder: SuiteDir) -> Holder | None:
    """The process that works on the suite; None where none does.

    A lock that is held, but not by the process that took it, is what that process left when it was killed.
    """
    if not lock_is_held(folder.lock):
        return None
    holder = Holder.written_in(folder.lock) or UNKNOWN
    if holder.host == socket.gethostname() and not (is_running(holder.pid) and may_hold(holder.pid, folder.lock)):
        return None
    return holder


def status_of(folder: SuiteDir) -> SuiteStatus:
    return SuiteReader(folder).look()


def figures_of(folder: Path) -> CellFigures | None:
    """None where there is no result that can be read."""
    from eval_factory.report.reader import load_result  # imported here: most that look do so while nothing has ended

    try:
        result = load_result(folder).result
    except PrerequisiteError:
        return None
    score = result.scores.get(result.main_metric)
    stats = None if score is None else score.stats
    return CellFigures(
        task=result.task,
        main_metric=result.main_metric,
        value=None if score is None else score.value,
        ci_low=None if stats is None else stats.ci_low,
        ci_high=None if stats is None else stats.ci_high,
        n=None if stats is None else stats.count,
        reportable=result.reportable,
        identity=result.provenance.run_identity,
    )


def stated_limits(folder: SuiteDir) -> dict[str, float]:
    """The limits of the budget that suite_config.yml states; none where it cannot be read."""
    section = _section(folder)
    stated: dict[str, Any] = {one.name: section.get(one.name) for one in fields(Budget)}
    return {name: value for name, value in stated.items() if is_number(value)}


def _section(folder: SuiteDir) -> dict[str, Any]:
    """What suite_config.yml holds; nothing where it cannot be read."""
    try:
        section = parse_own(folder.config.read_text(encoding="utf-8"))["suite"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return section if isinstance(section, dict) else {}


def status_document(status: SuiteStatus) -> dict[str, Any]:
    return {
        "suite": str(status.folder.root),
        "state": status.state,
        "pid": status.pid,
        "host": status.host,
        "started": status.started,
        "ended": status.ended,
        "exit_code": status.exit_code,
        "invocations": status.invocations,
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
    state, job = cell.state, cell.job
    document = {
        "target": state.target,
        "evaluation": state.evaluation,
        "status": state.status,
        "attempt": state.attempt,
        "reason": state.reason,
        "since": state.since,
        "collected": state.collected,
        "reused_from": state.reused_from,
        "folder": str(cell.folder),
        "spent": asdict(cell.spent),
        "progress": None if cell.progress is None else cell.progress.document(),
        "result": None if cell.figures is None else asdict(cell.figures),
    }
    if job is not None:
        work = None if job.work is None else str(job.work)
        document["slurm"] = {"task": job.task, "attempts": job.attempts, "log": str(job.log), "work_folder": work}
    return document


def modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def total(parts: Iterable[Spending]) -> Spending:
    known = list(parts)
    sums = {one.name: sum(getattr(part, one.name) for part in known) for one in fields(Spending)}
    return Spending(**sums)


def limit_reached(budget: Budget, spent: Spending, seconds_left: float | None) -> str | None:
    """The limit that is used up, with its number; None where there is something left.

    Args:
        seconds_left: of max_wall_s; None where there is no such limit.
    """
    most = budget.max_wall_s
    elapsed = 0.0 if most is None or seconds_left is None else most - seconds_left
    name = budget.reached(spent.by_limit(elapsed))
    return None if name is None else f"{name} ({budget.stated[name]:g}) of the suite is reached"


def cancel_jobs(folder: SuiteDir, say: Callable[[str], object], slurm: Slurm | None = None) -> bool:
    """End every job of the suite, and wait until none is left; whoever waits for them stops waiting.

    Returns:
        Whether there were any.

    Raises:
        PrerequisiteError: Slurm does not say what is queued, or the jobs do not end.
    """
    runs = SlurmRuns(folder, slurm or Slurm(os.environ), say=say)
    if not runs.store.is_there():
        return False
    states = SlurmRuns(folder, slurm or Slurm(os.environ)).look()  # which says nothing of what is waited for
    runs.end()
    return any(isinstance(state, (Waiting, Started)) for state in states.values())
