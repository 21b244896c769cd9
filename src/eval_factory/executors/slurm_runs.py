"""Runs evaluations as Slurm tasks: submits them as job arrays, reports their states and ends them.

A job array of this module is called a wave. All state is in the suite's folder (`slurm_waves.py`).
Keys are the credentials that the tasks of a wave need for their endpoints. A file passes the keys
to the tasks (`slurm_environment.py`), and is deleted after the end of the wave.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.formats import counted, first_of
from eval_factory.core.rundir import PRIVATE, SINGLE_RUN_FOLDER, RunSuiteDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.executors.runs import Ended, ExecutorRun, Lost, RunState, Started, Waiting
from eval_factory.executors.slurm import (
    NO_REASON,
    QueuedTask,
    Slurm,
    batch_script,
    can_never_start,
    clean_up_name,
    clean_up_script,
    reason_name,
)
from eval_factory.executors.slurm_environment import write_environment
from eval_factory.executors.slurm_waves import (
    RunEnd,
    SlurmSettings,
    SlurmStore,
    Wave,
    cell_of,
    split_into_arrays,
    task_of_each_run,
)

JUST_WRITTEN_S = 300.0
"""The minimum age, in seconds, of a file with keys that a command may delete if the command has not
locked the suite. A younger file may belong to tasks that are not queued yet.
"""
MAX_CANCEL_S = 120.0
"""The maximum time that `SlurmRuns.end` waits for the end of cancelled jobs, in seconds."""


def wave_script(
    array: Sequence[ExecutorRun],
    number: int,
    store: SlurmStore,
    *,
    job_name: str,
    worker: Sequence[str],
) -> str:
    """Return the batch script of one wave.

    Args:
        array: the runs of the wave.
        number: the number of the wave.
        store: the Slurm files of the suite.
        job_name: the name of the wave's job.
        worker: the arguments of Python that start the program of a task. The path of the wave's
            file is appended to them.
    """
    settings = SlurmSettings.of(array[0])
    return batch_script(
        {**settings.resources, "python": settings.resources["python"] or sys.executable},
        (*worker, str(store.wave_file(number).absolute())),
        name=job_name,
        tasks=len(array) if settings.serve is None else 1,
        at_once=settings.at_once,
        log_folder=store.logs_folder(number).absolute(),
        servers=settings.servers,
    )


class SlurmRuns:
    """The executor that does runs as Slurm tasks. `Executor` documents its methods."""

    def __init__(
        self,
        folder: SuiteDir,
        slurm: Slurm,
        worker: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        secrets: Collection[str] = (),
        say: Callable[[str], object] = lambda _text: None,
    ) -> None:
        """Create an executor for one suite; nothing is written or submitted yet.

        Args:
            folder: the folder of the suite.
            slurm: Slurm's commands.
            worker: the arguments of Python that start the program of a task.
            env: the environment of the submitter; tasks get a part of its variables.
            secrets: the names of the variables in `env` that contain keys for the tasks.
            say: is called with each message for the user.
        """
        self.store = SlurmStore(folder)
        self._slurm = slurm
        self._worker = worker
        self._say = say
        self._env = env or {}
        self._secrets = secrets
        self._queue: tuple[QueuedTask, ...] | None = None
        self._latest: dict[str, tuple[Wave, ExecutorRun]] = {}
        """The last wave of each run, and the run in that wave, by the name of the run."""
        self._reasons: set[str] = set()
        """The reasons for waiting that were already reported to the user."""

    def begin(self, runs: Sequence[ExecutorRun]) -> None:
        """Submit these runs as waves.

        Raises:
            PrerequisiteError: Slurm rejected a wave; earlier waves were submitted.
        """
        suite_id = self.store.create_folders()
        for array in split_into_arrays(runs, self._slurm.max_array_size()):
            # The wave's files are written before sbatch is called, for the tasks need them. If this
            # process ends before sbatch answers, the tasks are found by the name of the wave's job.
            wave = self.store.new_wave(suite_id, array)
            script = self.store.script_file(wave.number)
            keys = self.store.environment_file(wave.number)
            text = wave_script(
                array, wave.number, self.store, job_name=wave.job_name, worker=self._worker
            )
            write_atomic(script, text, mode=PRIVATE)
            write_environment(keys, self._env, self._secrets)
            try:
                job = self._slurm.submit(script)
            except BaseException:
                # sbatch may have queued the tasks nevertheless. Without their keys, they end at
                # once.
                keys.unlink(missing_ok=True)
                raise
            self._say(
                f"submitted {counted(len(array), 'cell')} to Slurm: {wave.job_name} (job {job})"
            )
            self._clean_up_after(wave, job)

    def poll(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """Wait for `seconds`, then return the state of each run of every wave, by the run's name.

        Raises:
            QueueUnknownError: squeue failed, so that the states are unknown.
        """
        time.sleep(seconds)
        self._queue = self._slurm.queue()
        # The records are read after the queue: a run that has left the queue has written its
        # record by then.
        waves = self.store.waves()
        queued = task_of_each_run(self._queue, waves)
        self._latest = {}
        for wave in waves:
            for run in wave.runs:
                self._latest[run.name] = (wave, run)
        states: dict[str, RunState] = {}
        for name, latest in self._latest.items():
            if name in queued:
                states[name] = self._state_of(queued[name])
            else:
                end = self.store.recorded_end(*latest)
                states[name] = Lost() if end is None else Ended(end.exit_code)
        return states

    def recorded_end(self, name: str) -> RunEnd | None:
        """Return the record of a run's end in its last wave; None if the run has not ended.

        Call `poll` first: it finds the last wave of each run.
        """
        return self.store.recorded_end(*self._latest[name])

    def end(self, names: Collection[str] | None = None) -> None:
        """Cancel the tasks of these runs, or of all runs, and wait until they have ended.

        If all runs are cancelled, their keys are deleted too.

        Raises:
            PrerequisiteError: Slurm does not report its queue, or the jobs do not end.
        """
        waves = self.store.waves()
        ends_all_runs = names is None

        def tasks_left() -> dict[str, QueuedTask]:
            """Return the queued tasks of these runs, by the name of the run."""
            queued = task_of_each_run(self._slurm.queue(), waves)
            return {name: task for name, task in queued.items() if names is None or name in names}

        tasks_by_job: dict[str, list[QueuedTask]] = {}
        for task in tasks_left().values():
            tasks_by_job.setdefault(task.job_name, []).append(task)
        jobs = sorted(tasks_by_job)
        if ends_all_runs and jobs:
            self.store.cancelled.touch()
        for job in jobs:
            if ends_all_runs:
                self._slurm.cancel(job)  # with all its tasks
                self._slurm.cancel(clean_up_name(job))
                self._say(f"asked Slurm to end {job} ...")
            else:
                # A task that does several runs occurs once for each run.
                distinct_tasks = list(dict.fromkeys(tasks_by_job[job]))
                self._slurm.cancel(job, distinct_tasks)
        started = time.monotonic()
        while jobs and tasks_left():
            if time.monotonic() - started > MAX_CANCEL_S:
                raise PrerequisiteError(
                    f"{self.store.suite.root}: jobs were cancelled and have not ended "
                    f"after {MAX_CANCEL_S:.0f} s:"
                    f" {', '.join(jobs)}\n  see squeue, then run the same command again"
                )
            time.sleep(0.5)
        if ends_all_runs:
            for wave in waves:
                self.store.environment_file(wave.number).unlink(missing_ok=True)

    def clean_up(self) -> None:
        """Delete the keys of waves whose tasks have all ended.

        A wave with queued tasks gets a clean-up job, unless it has one; this job deletes the keys
        later. The last task of a wave deletes the keys too, but this is not enough: the task may be
        killed, or cancelled before it starts.
        """
        if self._queue is None:
            self._queue = self._slurm.queue()
        self.forget_keys()
        queued_jobs = {task.job_name: task.job_id for task in self._queue}
        # A killed submitter may have submitted a wave without its clean-up job.
        for wave in self.store.waves():
            has_clean_up_job = self.store.clean_up_mark(wave.number).exists()
            if has_clean_up_job or wave.job_name not in queued_jobs:
                continue
            if self.store.environment_file(wave.number).exists():
                self._clean_up_after(wave, queued_jobs[wave.job_name])

    def forget_keys(self, *, older_than_s: float = 0.0) -> None:
        """Delete the keys of waves that had no task left when the queue was last read.

        Call `poll` first: without a known queue, the keys of all waves are deleted.
        Files that cannot be deleted are skipped: the folder may belong to another user.

        Args:
            older_than_s: the minimum age of a deleted file, in seconds. Callers that have not
                locked the suite must set a minimum age, for another process may be submitting a
                wave.
        """
        queued_job_names = {task.job_name for task in self._queue or ()}
        for wave in self.store.waves():
            keys_file = self.store.environment_file(wave.number)
            with suppress(OSError):
                if (
                    wave.job_name not in queued_job_names
                    and time.time() - keys_file.stat().st_mtime >= older_than_s
                ):
                    keys_file.unlink()

    def _clean_up_after(self, wave: Wave, job: str) -> None:
        """Submit the clean-up job of a wave, which deletes the wave's keys.

        If Slurm rejects the clean-up job, the wave's last task deletes the keys, unless this task
        is killed. The next command submits the clean-up job again (`clean_up`).

        `job`: the id of the wave's job; the clean-up job starts when this job has ended.
        """
        number = wave.number
        script = self.store.clean_up_script_file(number)
        resources = SlurmSettings.of(wave.runs[0]).resources
        text = clean_up_script(
            wave.job_name,
            resources,
            log_folder=self.store.logs_folder(number).absolute(),
            file_to_delete=self.store.environment_file(number).absolute(),
        )
        write_atomic(script, text, mode=PRIVATE)
        try:
            self._slurm.submit(script, after=job)
        except PrerequisiteError as error:
            message = (
                f"the keys of {wave.job_name} are deleted by its last task, "
                f"or by the next command: {error}"
            )
            self._say(message.split("\n")[0])
        else:
            self.store.clean_up_mark(number).touch()

    def _state_of(self, task: QueuedTask) -> RunState:
        """Return the state of a queued task, and report a new reason for waiting to the user."""
        where = f"Slurm: {task.job_name} task {task.index}, {task.state}"
        if task.state in ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"):
            return Started(where)
        if task.state != "PENDING":
            return Waiting(where)
        reason = reason_name(task.reason)
        if can_never_start(task.reason):
            return Waiting(where, reason, never_starts=True)
        # Each reason is reported only once: later calls find the same reason again, also for other
        # tasks. The reason JobArrayTaskLimit is not reported, but the returned state has it.
        if task.reason not in NO_REASON | self._reasons:
            self._reasons.add(task.reason)
            self._say(f"{task.job_name} waits in Slurm: {reason}")
        if reason == "None":  # Slurm's word for no reason
            reason = ""
        return Waiting(where, reason)


def refuse_run_in_slurm(output: Path, env: Mapping[str, str], slurm: Slurm | None = None) -> None:
    """Check that Slurm has no job of this run, neither as a single run nor as a cell of a suite.

    Args:
        output: the output folder of the run.
        env: the environment in which Slurm's commands are called.
        slurm: Slurm's commands; None to call them with `env`.

    Raises:
        BusyError: Slurm has a job of the run.
        PrerequisiteError: Slurm may have a job of the run, but does not report its queue.
    """
    root = output.absolute()
    slurm = slurm or Slurm(env)
    # The output folder of a cell is SUITE/TARGET/EVALUATION. Its path has at least four parts,
    # the first of which is `/`.
    if len(root.parts) > 3:
        refuse_cells_in_slurm(
            SuiteDir(root.parent.parent), [f"{root.parent.name}/{root.name}"], slurm
        )
    # A run that was submitted by itself is the only cell of a suite: any queued cell is this run.
    single_run = RunSuiteDir(root / SINGLE_RUN_FOLDER)
    queued_cells = _in_slurm(single_run, slurm).keys()
    refuse_cells_in_slurm(single_run, queued_cells, slurm)


def refuse_cells_in_slurm(folder: SuiteDir, cells: Collection[str], slurm: Slurm) -> None:
    """Check that Slurm has no job of these cells of a suite.

    Args:
        folder: the folder of the suite.
        cells: the names of the cells that are about to start on this machine.
        slurm: Slurm's commands.

    Raises:
        BusyError: Slurm has a job of a cell.
        PrerequisiteError: Slurm may have a job of a cell, but does not report its queue.
    """
    if not cells:
        return
    queued = _in_slurm(folder, slurm)
    queued_cells = [
        f"{queued[name].job_name} ({name}, {queued[name].state})"
        for name in cells
        if name in queued
    ]
    if queued_cells:
        quoted_folder = shlex.quote(str(folder.chosen_folder))
        raise BusyError(
            f"{folder.chosen_folder}: in Slurm already: {first_of(queued_cells, 3)}\n"
            f"  wait for the end: eval-factory suite status {quoted_folder}, "
            "then run the same command with --executor slurm\n"
            "  or cancel the jobs, then run the same command, which reuses the answers so far: "
            f"eval-factory suite cancel {quoted_folder}"
        )


def _in_slurm(folder: SuiteDir, slurm: Slurm) -> dict[str, QueuedTask]:
    """Return a dict from each queued cell to its waiting or running task.

    Slurm is asked only if tasks may be queued.
    """
    store = SlurmStore(folder)
    if not store.has_open_waves():
        return {}
    try:
        queued = task_of_each_run(slurm.queue(), store.waves())
    except PrerequisiteError as error:
        first_line = str(error).partition("\n")[0]
        raise PrerequisiteError(
            f"{folder.chosen_folder}: its jobs may still be in Slurm, "
            "which does not report its queue: "
            f"{first_line}\n"
            "  run the same command again where Slurm answers; if all jobs have ended, delete"
            f" {shlex.quote(str(store.environment_file(1).parent))}/w*.env first"
        ) from error
    return {cell_of(name): task for name, task in queued.items()}
