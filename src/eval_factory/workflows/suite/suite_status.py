"""Reads the status of a suite from its events, the folders of its cells, and Slurm's queue.

The progress of a running cell comes from the events of its run. The figures of an ended cell come
from its result. The status can be read on any machine that has access to the suite's folder.
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
from typing import Any, NamedTuple, TypeGuard

from eval_factory.core.budget import Budget, Spending, sum_spendings
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.logs import PHASE, PROGRESS
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.results import TaskResult
from eval_factory.core.run_statuses import GOING_ON, WITH_RESULT
from eval_factory.core.rundir import RunDir, RunSuiteDir, SuiteDir
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.executors.progress import EventTail, progress_text
from eval_factory.executors.runs import ExecutorRun, RunState, Started, Waiting
from eval_factory.executors.slurm import Slurm
from eval_factory.executors.slurm_runs import JUST_WRITTEN_S, SlurmRuns
from eval_factory.executors.slurm_waves import RunEnd, Wave, cell_of
from eval_factory.workflows.options import score_fields
from eval_factory.workflows.suite.suite_folder import find_lock_holder
from eval_factory.workflows.suite.suite_journal import STATUSES, CellState, Pause, SuiteState

RUNNING = "running"
STOPPED = "stopped"
ENDED = "ended"
"""The states of a suite. Running: a process works on the suite. Stopped: the last process was
killed. Ended: the last process has ended the suite.
"""
QUEUE_UNKNOWN = "Slurm does not report whether the job is queued: ask again"
RESULT_READY = "its job has ended: the same command collects the result"
TASK_GONE = (
    "its task is gone from Slurm and left no result: "
    "its logs say why; the same command submits the cell again"
)
_INTERVAL_S = 5.0
"""The time in seconds for which Slurm's queue and the spending of unfinished cells are cached.

squeue puts load on the controller of the cluster, and a journal with many answers takes long to
read.
"""
_COUNTS = ("total", "done", "cached", "failed", "prompt_tokens", "completion_tokens")
"""The numbers of a `progress` event: requests by their state, and tokens."""


@dataclass(frozen=True)
class CellJob:
    """The last Slurm task of a cell."""

    # a text such as `Slurm: ef-1-w1 task 0, PENDING, Resources`; None if the task is not in the
    # queue, or if Slurm does not answer
    task: str | None
    # the number of times that Slurm has started the cell in its last wave; a wave is a
    # submitted job array
    attempts: int
    log: Path  # the log file of the task, with messages of Slurm


@dataclass(frozen=True)
class CellProgress:
    """The progress of a running cell: its current phase, and the requests in this phase."""

    # `starting` until helm-run reports its first phase
    phase: str = "starting"
    phase_since: float | None = None  # in epoch seconds
    counts: Mapping[str, Any] | None = None  # the last `progress` event of the phase
    # the number of the current HELM run from 1, and the number of HELM runs of the cell
    run: tuple[int, int] = (1, 1)

    def after(self, event: Mapping[str, Any]) -> CellProgress:
        """Return the progress after one more event; only phase and progress events change it."""
        number = event.get("number")
        run_count = event.get("of")
        if event.get("event") == PHASE:
            run = self.run  # a phase that belongs to no HELM run has no number
            if isinstance(number, int) and isinstance(run_count, int):
                run = (number, run_count)
            return CellProgress(str(event.get("phase")), event["time"], run=run)
        if event.get("event") == PROGRESS and all(_is_number(event.get(name)) for name in _COUNTS):
            return replace(self, counts={**event, "role": str(event.get("role"))})
        return self

    def counts_text(self, max_length: int = 1000) -> str:
        """Return the counts as text, such as `120/1000, 2 failed, 37 s left, 24.0/s`.

        Returns an empty text if there are no counts. `max_length`: the maximum length of the text,
        in characters. Parts that do not fit are left out.
        """
        if self.counts is None:
            return ""
        since = self.counts["time"] if self.phase_since is None else self.phase_since
        # not negative, even if the clock of the machine was set back
        seconds = max(0.0, self.counts["time"] - since)
        return progress_text(dict(self.counts), seconds, max_length)

    def document(self) -> dict[str, Any]:
        """Return the progress as a document for JSON output."""
        if self.counts is None:
            reported = None
        else:
            reported = {name: self.counts[name] for name in ("role", *_COUNTS)}
        number, run_count = self.run
        return {
            "phase": self.phase,
            "phase_since": self.phase_since,
            "run": number,
            "runs": run_count,
            "counts": reported,
        }


@dataclass(frozen=True)
class CellFigures:
    """The main score of a cell's result."""

    task: str
    main_metric: str
    value: float | None  # None if the score could not be computed
    ci_low: float | None
    ci_high: float | None
    n: int | None
    reportable: bool
    identity: str | None = None  # the identity of the run that made the result
    doubt: str | None = None  # a short reason to doubt the score; None if there is no reason

    @classmethod
    def of(cls, result: TaskResult) -> CellFigures:
        """Return the figures of a result."""
        # imported here, for the status is mostly read while no cell has ended
        from eval_factory.report.verdicts import verdict_of

        verdict = verdict_of(result)
        doubt = None
        if verdict.is_doubt:
            doubt = verdict.value.phrase
        return cls(
            result.task,
            result.main_metric,
            # the fields `value`, `ci_low`, `ci_high` and `n`
            **score_fields(result.scores.get(result.main_metric)),
            reportable=result.reportable,
            identity=result.provenance.run_identity,
            doubt=doubt,
        )


@dataclass(frozen=True, kw_only=True)
class CellStatus(CellState):
    """The status of a cell by its last event, and by later changes of its folder and its job."""

    folder: Path
    progress: CellProgress | None = None  # None if the cell does not run
    figures: CellFigures | None = None  # None if the folder contains no result of the cell
    spent: Spending  # the total spending of all runs in the cell's folder
    # the last Slurm task of the cell; None if the result was collected or no job was submitted
    job: CellJob | None = None


@dataclass(frozen=True)
class SuiteStatus:
    """The status of a suite and of all its cells."""

    folder: SuiteDir
    state: str  # RUNNING, STOPPED or ENDED
    # the id of the process that works on the suite, or of the last process that did; None if only
    # jobs run, or if no process has started the suite
    pid: int | None
    host: str | None  # the machine of this process
    started: float | None  # when the last invocation started, in epoch seconds
    ended: float | None  # when the last invocation ended, in epoch seconds
    exit_code: int | None  # the exit code of the last invocation; None if it has not ended
    cells: tuple[CellStatus, ...]
    pauses: tuple[Pause, ...]
    limits: Mapping[str, float]  # the limits of the suite's budget, by name

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells of each status; a status that no cell has is left out."""
        counts = Counter(cell.status for cell in self.cells)
        return {status: counts[status] for status in STATUSES if counts[status]}

    @property
    def spent(self) -> Spending:
        """The total spending of all cells."""
        return sum_spendings(cell.spent for cell in self.cells)

    @property
    def is_complete(self) -> bool:
        """True if there are cells and all of them are complete."""
        return bool(self.cells) and all(cell.status == RunStatus.COMPLETE for cell in self.cells)


class _FollowedRun(NamedTuple):
    """The run of a cell whose events are read repeatedly."""

    since: float  # the start of the cell's attempt, in epoch seconds
    events: EventTail
    progress: CellProgress  # the progress by all events that were read


class SuiteReader:
    """Reads the status of a suite repeatedly.

    Each call of `read_status` reads only new events, and asks Slurm only if the last answer is at
    least `_INTERVAL_S` seconds old.
    """

    def __init__(
        self,
        folder: SuiteDir,
        slurm: Slurm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to read the status of the suite in `folder`.

        Args:
            folder: the folder of the suite.
            slurm: Slurm's commands; None for the commands of this machine.
            clock: returns the time in seconds.
        """
        self.folder = folder
        self._clock = clock
        self._tail = EventTail(folder.events, run_id=None)
        self._state = SuiteState()
        self._slurm_runs = SlurmRuns(folder, slurm or Slurm(os.environ))
        # when Slurm was asked last, by `clock`; None: Slurm was not asked yet
        self._asked_at: float | None = None
        self._last_states: Mapping[str, RunState] | None = None  # None: Slurm did not answer
        self._followed: dict[str, _FollowedRun] = {}  # the run of each running cell

    def read_status(self) -> SuiteStatus:
        """Read what is new, and return the current status."""
        # The lock is checked before the events are read: if the lock is free, its last holder has
        # written all events.
        holder = find_lock_holder(self.folder)
        for event in self._tail.read_new_events():
            self._state.update(event)
        start_event = self._state.started or {}
        end_event = self._state.ended or {}
        suite_state = ENDED if end_event else STOPPED
        pid = start_event.get("pid")
        host = start_event.get("host")
        pauses: tuple[Pause, ...] = ()
        if holder is not None:
            suite_state = RUNNING
            pid = holder.pid
            host = holder.host
            pauses = tuple(self._state.pauses.values())
        cell_states = self._state.all_cells(is_running=holder is not None)
        status = SuiteStatus(
            folder=self.folder,
            state=suite_state,
            pid=pid,
            host=host,
            started=start_event.get("time"),
            ended=end_event.get("time"),
            exit_code=end_event.get("exit_code"),
            cells=tuple(map(self._status_of_cell, cell_states)),
            pauses=pauses,
            limits=_cached_read(stated_limits, self.folder.config, modified_at(self.folder.config)),
        )
        return self.with_jobs(status)

    def _status_of_cell(self, cell_state: CellState) -> CellStatus:
        """Return the status of a cell by its state and its folder.

        The folder corrects the state: the folder may contain a result that no event reports, or no
        longer contain the result of the last event.
        """
        folder = self.folder.cell_folder(cell_state.target, cell_state.evaluation)
        spent = self.read_spending(folder, cell_state.status)
        cell = CellStatus(**vars(cell_state), folder=folder, spent=spent)
        if cell.status == RunStatus.RUNNING:
            # if the start of the attempt is unknown, all events in the cell's folder count
            return replace(cell, progress=self._progress(cell, cell.since or 0.0))
        if cell.status == RunStatus.MISSING:
            cell = _with_unrecorded_end(cell)
        if cell.status in WITH_RESULT:
            cell = _with_figures(cell)
        return cell

    def _progress(self, cell: CellStatus, since: float) -> CellProgress:
        """Return the progress of a cell by the events of its current attempt.

        `since`: the start of the attempt, in epoch seconds. Earlier events are ignored.
        """
        followed = self._followed.get(cell.name)
        if followed is None or followed.since != since:  # a new attempt has no progress yet
            events = EventTail(RunDir(cell.folder).events, run_id=None)
            followed = _FollowedRun(since, events, CellProgress())
        progress = followed.progress
        for event in followed.events.read_new_events():
            if _is_number(event.get("time")) and event["time"] >= since:
                progress = progress.after(event)
        self._followed[cell.name] = followed._replace(progress=progress)
        return progress

    def read_spending(self, folder: Path, status: str) -> Spending:
        """Return the total spending of all runs in this output folder.

        The cost includes only requests whose price was recorded with them. `status`: the status of
        the cell.
        """
        # The spending is cached until the stamp changes.
        stamp: object
        if status in GOING_ON:
            stamp = (status, self._clock() // _INTERVAL_S)  # changes after `_INTERVAL_S` seconds
        else:
            stamp = tuple(map(modified_at, RunDir(folder).answer_files))
        spent: Spending = _cached_read(_spent_in, folder, stamp)
        return spent

    def with_jobs(self, status: SuiteStatus) -> SuiteStatus:
        """Return the status, updated by the states of the suite's Slurm jobs.

        Each job array gets its API keys from a file. If no process works on the suite, this method
        also deletes the old files of job arrays that have no task left in Slurm. `status`: the
        status by the suite's own files.
        """
        store = self._slurm_runs.store  # the files about Slurm in the suite's folder
        if not store.exists():
            return status
        # A wave is a submitted job array. Slurm is asked only if a wave is open: its file with keys
        # then still exists.
        states: Mapping[str, RunState] | None = {}
        if store.has_open_waves():
            states = self._run_states()  # None: Slurm does not answer
        if states and status.state != RUNNING:
            # This process has not locked the suite. Another command may be submitting jobs now, and
            # its new file with keys must stay: only older files are deleted.
            self._slurm_runs.forget_keys(older_than_s=JUST_WRITTEN_S)
            if any(isinstance(state, (Waiting, Started)) for state in states.values()):
                status = replace(status, state=RUNNING, pid=None, host=None)
        # the last wave of each cell, and the cell's run in this wave: later waves replace earlier
        # ones in the dict
        latest = {}
        for wave in store.waves():
            for run in wave.runs:
                latest[cell_of(run.name)] = (wave, run)
        cells = []
        for cell in status.cells:
            if cell.name in latest and cell.status != RunStatus.COMPLETE:
                wave, run = latest[cell.name]
                cells.append(self._with_job(cell, wave, run, states))
            else:
                cells.append(cell)
        return replace(status, cells=tuple(cells))

    def _run_states(self) -> Mapping[str, RunState] | None:
        """Return the state of each run in Slurm, at most `_INTERVAL_S` seconds old.

        Returns None if Slurm does not answer.
        """
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= _INTERVAL_S:
            self._asked_at = now
            self._last_states = None
            with suppress(PrerequisiteError):
                self._last_states = self._slurm_runs.poll()  # asks Slurm
        return self._last_states

    def _with_job(
        self, cell: CellStatus, wave: Wave, run: ExecutorRun, states: Mapping[str, RunState] | None
    ) -> CellStatus:
        """Return the status of a cell, updated by the state of its run in Slurm.

        `states`: the state of each run in Slurm; None if Slurm does not answer.
        """
        store = self._slurm_runs.store
        start_marks = store.start_marks(wave, run)  # a file for each start of the run in this wave
        run_state = None if states is None else states.get(run.name)
        task = None
        if isinstance(run_state, Waiting):
            task = run_state.where
            if run_state.reason:
                task += f", {run_state.reason}"
            cell = replace(cell, status=RunStatus.WAITING, reason=task)
        elif isinstance(run_state, Started):
            task = run_state.where
            progress = None
            if start_marks:
                # only the events since the last start, which is as old as its mark
                progress = self._progress(cell, start_marks[-1].stat().st_mtime)
            cell = replace(cell, status=RunStatus.RUNNING, reason=task, progress=progress)
        else:
            end = store.recorded_end(wave, run)
            cell = _without_task(cell, end, slurm_answered=states is not None)
        job = CellJob(task, len(start_marks), store.task_log(wave, run))
        # the events do not count starts in Slurm until the result is collected
        attempt = max(cell.attempt, len(start_marks))
        return replace(cell, job=job, attempt=attempt)


def _with_unrecorded_end(cell: CellStatus) -> CellStatus:
    """Return the status of a missing cell, corrected if the cell's run has ended nevertheless.

    The suite was then killed before it could record the end of the run.
    """
    # imported here, because cells are rarely missing
    from eval_factory.workflows.resume import read_last_run_state

    if cell.identity is None:
        return cell
    last_run = read_last_run_state(RunDir(cell.folder))
    if last_run is None or last_run.identity != cell.identity:
        return cell
    if last_run.complete:
        return replace(cell, status=RunStatus.COMPLETE, reason=None)
    return replace(cell, status=RunStatus.PARTIAL)


def _with_figures(cell: CellStatus) -> CellStatus:
    """Return the status with the figures of the cell's result.

    The cell is missing if its folder no longer contains the result of its last run.
    """
    written = modified_at(RunDir(cell.folder).evaluation_config)
    figures: CellFigures | None = _cached_read(read_cell_figures, cell.folder, written)
    if cell.identity is None:  # the event named no identity: every result is accepted
        return replace(cell, figures=figures)
    if figures is not None and figures.identity == cell.identity:
        return replace(cell, figures=figures)
    problem = "the result in its folder is of another configuration"
    if figures is None:  # the result was deleted after the end of the cell
        problem = "its folder no longer has a readable result"
    reason = f"{problem}; the same command runs the cell"
    return replace(cell, status=RunStatus.MISSING, reason=reason)


def _without_task(cell: CellStatus, end: RunEnd | None, *, slurm_answered: bool) -> CellStatus:
    """Return the status of a cell that was submitted and of which Slurm reports no task.

    Args:
        cell: the status of the cell by the suite's own files.
        end: the record of the run's end; None if the run has recorded no end.
        slurm_answered: False if Slurm does not answer: the run may still have a task.
    """
    if end is not None and end.status == RunStatus.COMPLETE:
        return replace(cell, status=RunStatus.WAITING, reason=RESULT_READY)
    if not slurm_answered:
        return replace(cell, reason=QUEUE_UNKNOWN)
    if cell.status in (RunStatus.FAILED, RunStatus.PARTIAL):
        return cell  # a command has already reported how the cell ended
    if end is not None:
        reason = f"its job has ended: {end.status}"
        if end.reason:
            reason += f": {end.reason}"
        return replace(cell, reason=reason)
    if cell.status == RunStatus.WAITING:
        return cell  # a command is running, which will notice that the task is gone
    return replace(cell, reason=TASK_GONE)


@lru_cache(maxsize=10_000)
def _cached_read(read: Callable[[Path], Any], path: Path, _stamp: object) -> Any:
    """Return `read(path)`, from the cache if the last call had the same arguments.

    `_stamp`: any value that differs if the path may have changed, such as its modification time.
    """
    return read(path)


def read_suite_status(folder: SuiteDir) -> SuiteStatus:
    """Return the current status of the suite in this folder."""
    return SuiteReader(folder).read_status()


def read_cell_figures(folder: Path) -> CellFigures | None:
    """Return the figures of the result in the folder; None if there is no readable result."""
    # imported here, for the status is mostly read while no cell has ended
    from eval_factory.report.reader import load_result

    with suppress(PrerequisiteError):
        return CellFigures.of(load_result(folder).result)
    return None


def _spent_in(folder: Path) -> Spending:
    """Return the spending of all runs in the folder; zero if the file of answers is damaged."""
    with suppress(sqlite3.Error):  # the run itself reports a damaged file
        # no prices (`{}`): only the costs that were recorded with the answers count
        return spent_so_far(RunDir(folder).cache_db, {})
    return Spending()


def stated_limits(config: Path) -> dict[str, float]:
    """Return a dict from the name of each limit in suite_config.yml to its value.

    Values that are not numbers are left out. The dict is empty if the file cannot be read.
    """
    try:
        section = parse_own_text(config.read_text(encoding="utf-8"))["suite"]
        stated = {limit.name: section.get(limit.name) for limit in fields(Budget)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: value for name, value in stated.items() if _is_number(value)}


def _is_number(value: Any) -> TypeGuard[float]:
    """Return True if the value is a number; False for True and False."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def modified_at(path: Path) -> float:
    """Return when the file was modified, in epoch seconds; 0 if the file cannot be accessed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def resume_command(status: SuiteStatus) -> str:
    """Return the command that continues the suite, with the current path of the suite's folder."""
    folder = status.folder
    command = "run_suite"
    config = status.folder.config
    # A `RunSuiteDir` is the suite of a single run, which `run_eval` has submitted to Slurm.
    if isinstance(folder, RunSuiteDir):
        command = "run_eval"
        config = folder.run_config
    output_dir = str(folder.chosen_folder)
    return shlex.join(
        ["eval-factory", command, "--run_config", str(config), "--output_dir", output_dir]
    )


def reached_limit_text(budget: Budget, spent: Spending, seconds_left: float | None) -> str | None:
    """Return a text that names the limit of the budget that is reached; None if none is reached.

    `seconds_left`: the seconds that are left of `max_wall_s`; None if this limit is not set.
    """
    elapsed = 0.0
    if seconds_left is not None and budget.max_wall_s is not None:
        elapsed = budget.max_wall_s - seconds_left
    name = budget.find_reached_limit(spent.by_limit(elapsed))
    if name is None:
        return None
    return f"{name} ({budget.stated_limits[name]:g}) of the suite is reached"


def status_document(status: SuiteStatus) -> dict[str, Any]:
    """Return the status of a suite as a document for JSON output."""
    names = ("state", "pid", "host", "started", "ended", "exit_code")
    return {
        "suite": str(status.folder.root),
        **{name: getattr(status, name) for name in names},
        "command": resume_command(status),
        "complete": status.is_complete,
        "total": len(status.cells),
        "counts": status.counts,
        "spent": asdict(status.spent),
        "limits": dict(status.limits),
        "paused": [{**asdict(pause), "cells": sorted(pause.cells)} for pause in status.pauses],
        "cells": [_cell_document(cell) for cell in status.cells],
    }


def _cell_document(cell: CellStatus) -> dict[str, Any]:
    """Return the status of a cell as a document for JSON output."""
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
        is_started = job.task is not None and job.attempts > 0
        document["slurm"] = {
            "task": job.task,
            "attempts": job.attempts,
            "log": str(job.log),
            "work_folder": str(cell.folder) if is_started else None,
        }
    return document
