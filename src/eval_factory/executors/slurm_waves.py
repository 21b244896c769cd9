"""The waves of a suite: which runs a job array does, and their files in the suite's folder.

A job array of Slurm that does runs of a suite is called a wave. The folder has a file with the runs
of each wave, a file for each start of a run, and the record of each run's end. The file of a wave
is written before sbatch is called. A wave is recognized in Slurm's queue by the name of its job.
The submitter and the tasks on other machines write files atomically, so that readers never find an
incomplete file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eval_factory.core.rundir import PRIVATE, SuiteDir
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.executors.runs import ExecutorRun
from eval_factory.executors.slurm import QueuedTask


@dataclass(frozen=True)
class SlurmSettings:
    """The settings of a run for Slurm: the typed form of `ExecutorRun.settings`."""

    group: str  # the name of the limit group; runs with the same group share limits
    # all keys of suite.slurm; runs with equal resources may share an array
    resources: Mapping[str, Any]
    at_once: int  # the maximum number of tasks of the array that run at once
    serve: Mapping[str, Any] | None = None
    """The settings of the model's servers; None if the task starts no server.

    With these settings, a single task starts the servers and does all runs of the group.
    """
    # The next three fields have the values of the suite's keys with these names. They apply to a
    # task that does all runs of its group.
    max_processes: int = 1
    max_attempts: int = 1
    max_outage_s: float = 0.0

    @classmethod
    def of(cls, run: ExecutorRun) -> SlurmSettings:
        """Return the settings of a run."""
        # A wave of another version of eval-factory may have further settings: ignore them.
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in run.settings.items() if name in names})

    @property
    def servers(self) -> int:
        """The number of model servers of a task; 1 if the task starts no server.

        The job gets the resources this number of times.
        """
        if self.serve is None:
            return 1
        return int(self.serve["replicas"])


@dataclass(frozen=True)
class Wave:
    """A job array that was submitted, or was about to be submitted."""

    number: int  # from 1
    job_name: str
    runs: tuple[ExecutorRun, ...]  # the task with the number n does the run with the index n
    together: bool = False  # True if a single task does all runs

    def runs_of_task(self, index: int) -> tuple[ExecutorRun, ...]:
        """Return the runs of the task with this number; an empty tuple if there is no such task."""
        if self.together:
            return self.runs
        return self.runs[index : index + 1]  # a slice: empty for an index that is too large


_WAVE = TypeAdapter(Wave)


@dataclass(frozen=True)
class RunEnd:
    """The record that a task writes about the end of a run."""

    exit_code: int
    status: str  # one of `RunStatus`
    reason: str | None
    attempts: int = 0  # the number of times that the run was started


def cell_of(name: str) -> str:
    """Return the cell `target/evaluation` of the run with the name `target/evaluation/digest`.

    A cell of a suite is one evaluation of one target. The digest identifies the configuration of
    the run: a cell has several runs if its configuration was changed.
    """
    return name.rpartition("/")[0]


def task_of_each_run(queue: Iterable[QueuedTask], waves: Iterable[Wave]) -> dict[str, QueuedTask]:
    """Return the waiting or running task of each run, by the name of the run.

    If a run has several tasks, a running task is preferred. Tasks are identified by the name of
    their job and their number, not by the job's id, for Slurm may assign the same id again.
    """
    wave_by_job = {wave.job_name: wave for wave in waves}
    tasks: dict[str, QueuedTask] = {}
    for task in queue:
        wave = wave_by_job.get(task.job_name)
        if wave is None:
            continue
        for run in wave.runs_of_task(task.index):
            if run.name not in tasks or task.state == "RUNNING":
                tasks[run.name] = task
    return tasks


def split_into_arrays(
    runs: Iterable[ExecutorRun], max_size: int
) -> Iterator[Sequence[ExecutorRun]]:
    """Yield the runs of each array.

    The runs of an array have the same limit group, resources and number of servers.
    More than `max_size` runs are split into several arrays. Runs that a single task does together
    (`SlurmSettings.serve`) are not split, because their array has only this task.
    """
    runs_by_settings: dict[str, list[ExecutorRun]] = {}
    for run in runs:
        settings = SlurmSettings.of(run)
        key = json.dumps([settings.group, settings.resources, settings.servers], sort_keys=True)
        runs_by_settings.setdefault(key, []).append(run)
    for similar_runs in runs_by_settings.values():
        size = max_size
        if SlurmSettings.of(similar_runs[0]).serve is not None:
            size = len(similar_runs)
        for start in range(0, len(similar_runs), size):
            yield similar_runs[start : start + size]


class SlurmStore:
    """The files in a suite's folder about the waves, their tasks and their ends."""

    def __init__(self, suite: SuiteDir) -> None:
        self.suite = suite
        self.root = suite.state / "slurm"
        self.cancelled = self.root / "cancelled"
        """The file that the cancellation of all jobs creates.

        A suite that waits for the jobs then submits no further jobs.
        """
        self._waves = self.root / "waves"

    def create_folders(self) -> str:
        """Create the folders; return the id of the suite, which is a part of its jobs' names.

        Only a process that has locked the suite may call this method.
        """
        self._waves.mkdir(parents=True, exist_ok=True)
        self.cancelled.unlink(missing_ok=True)
        file = self.root / "id"
        if not file.exists():
            write_atomic(file, uuid.uuid4().hex[:10])
        return file.read_text(encoding="utf-8")

    def exists(self) -> bool:
        """Return True if the suite has ever submitted a job."""
        return self._waves.is_dir()

    def waves(self) -> list[Wave]:
        """Return all waves, oldest first."""
        return sorted(map(read_wave, self._waves.glob("w*.json")), key=lambda wave: wave.number)

    def has_open_waves(self) -> bool:
        """Return True if tasks may still be queued: a wave still has its file with keys."""
        return next(self._waves.glob("w*.env"), None) is not None

    def new_wave(self, suite_id: str, runs: Sequence[ExecutorRun]) -> Wave:
        """Create a wave of these runs, and write its file.

        Only a process that has locked the suite may call this method. The process must call this
        method before it submits the wave.
        """
        number = 1 + max((wave.number for wave in self.waves()), default=0)
        starts_servers = SlurmSettings.of(runs[0]).serve is not None
        wave = Wave(number, f"ef-{suite_id}-w{number}", tuple(runs), together=starts_servers)
        write_atomic(self.wave_file(number), json.dumps(asdict(wave)), mode=PRIVATE)
        self.logs_folder(number).mkdir(parents=True, exist_ok=True)
        return wave

    def wave_file(self, number: int) -> Path:
        """Return the path of the file with the list of a wave's runs."""
        return self._waves / f"w{number}.json"

    def script_file(self, number: int) -> Path:
        """Return the path of a wave's batch script."""
        return self._waves / f"w{number}.sh"

    def clean_up_script_file(self, number: int) -> Path:
        """Return the path of the batch script of the job that deletes a wave's keys."""
        return self._waves / f"w{number}.clean-up.sh"

    def clean_up_mark(self, number: int) -> Path:
        """Return the path of an empty file: it exists if the wave's clean-up job was submitted."""
        return self._waves / f"w{number}.clean-up"

    def environment_file(self, number: int) -> Path:
        """Return the path of the file with the environment variables of a wave's tasks.

        The keys are among the variables, so the file is deleted after the end of the wave.
        """
        return self._waves / f"w{number}.env"

    def logs_folder(self, number: int) -> Path:
        """Return the folder of the logs of a wave's tasks."""
        return self.root / "logs" / f"w{number}"

    def task_log(self, wave: Wave, run: ExecutorRun) -> Path:
        """Return the path of the log of the task that does the run."""
        task = 0 if wave.together else wave.runs.index(run)
        return self.logs_folder(wave.number) / f"{task}.log"

    def run_config_file(self, name: str) -> Path:
        """Return the path of the run config that a task uses.

        This run config contains the task's part of the endpoint's limits.
        """
        return self.root / "runs" / f"{name}.yml"

    def recorded_end(self, wave: Wave, run: ExecutorRun) -> RunEnd | None:
        """Return the record of the run's end in this wave; None if the run has not ended."""
        with suppress(FileNotFoundError):
            return RunEnd(**parse_json(self._record(wave, run).read_text(encoding="utf-8")))
        return None

    def record_end(self, wave: Wave, run: ExecutorRun, end: RunEnd) -> None:
        """Write the record of the run's end in this wave."""
        write_atomic(self._record(wave, run), json.dumps(asdict(end)), mode=PRIVATE)

    def was_submitted_again(self, wave: Wave, run: ExecutorRun) -> bool:
        """Return True if a newer wave has a run of the same cell.

        A cell is submitted again if its configuration was changed, if Slurm lost its task, or if
        its run has ended without a complete result.
        """
        newer_waves = [newer for newer in self.waves() if newer.number > wave.number]
        newer_runs = chain.from_iterable(newer.runs for newer in newer_waves)
        cell = cell_of(run.name)
        return any(cell_of(newer_run.name) == cell for newer_run in newer_runs)

    def _record(self, wave: Wave, run: ExecutorRun) -> Path:
        """Return the path of the record of the run's end in this wave."""
        return self.root / "runs" / f"{run.name}.w{wave.number}.end.json"

    def starts_folder(self, cell: str) -> Path:
        """Return the folder with a file for each start of the cell's runs on any machine."""
        return self.root / "starts" / cell

    def start_marks(self, wave: Wave, run: ExecutorRun) -> list[Path]:
        """Return the files of the starts of this run in this wave, oldest first."""
        starts = start_marks_below(self.starts_folder(cell_of(run.name)))
        return [path for path in starts if path.name.startswith(f"w{wave.number}-")]

    def has_recorded_end(self, start: Path) -> bool:
        """Return True if a run of this start's cell has a recorded end in this start's wave.

        `start`: the file of the start. Its name begins with the number of the wave, and its folder
        is the cell. The file does not name the run's configuration, so the end of any run of the
        cell in the wave is accepted.
        """
        cell = start.parent.relative_to(self.root / "starts")
        wave = start.name.partition("-")[0]
        return any((self.root / "runs" / cell).glob(f"*.{wave}.end.json"))


def start_marks_below(folder: Path) -> list[Path]:
    """Return the files of starts in a folder, oldest first."""
    return sorted(folder.glob("w*"), key=lambda path: (path.stat().st_mtime_ns, path.name))


def read_wave(path: Path) -> Wave:
    """Read the file of a wave."""
    return _WAVE.validate_json(path.read_bytes())
