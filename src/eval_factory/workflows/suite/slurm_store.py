"""What a suite on Slurm keeps on disk."""

from __future__ import annotations

import json
import os
import shlex
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import OF_ONE_RUN, PRIVATE, PRIVATE_FOLDER, RunSuiteDir, SuiteDir
from eval_factory.core.safe_files import json_line, write_atomic
from eval_factory.executors.slurm import BatchJob, QueuedTask, Slurm, Wave, active, clean_up_script, job_name

RUN_CONFIG = "run_config.yml"
"""In the folder of an attempt."""
MOST_WAVES = 100_000


@dataclass(frozen=True)
class PlanLine:
    """What a task has to know to do a cell."""

    key: str
    """Of the cell with its configuration: of another configuration it is another."""
    target: str
    evaluation: str
    document: Mapping[str, Any]
    """The run config, with this task's part of the endpoint's limits."""
    max_attempts: int
    no_preflight: bool
    debug: bool
    served: Mapping[str, Any] | None = None
    """Of a cell whose task starts its model's server: the target's `serve`, and how many of its cells run at once."""


@dataclass(frozen=True)
class EndedCell:
    """What became of a cell in a wave, or for good."""

    attempt: str
    """The name of its folder; empty where nothing was begun."""
    status: str
    exit_code: int
    reason: str | None
    attempts: int


class CellStore:
    """Of one cell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._attempts = folder / "attempts"
        self._done = folder / "done.json"

    def attempts(self) -> list[Path]:
        """Oldest first."""
        found = [path for path in self._attempts.glob("w*") if path.is_dir()]
        return sorted(found, key=lambda path: (_begun(path), path.name))

    def attempts_of(self, wave: int) -> int:
        return sum(1 for _ in self._attempts.glob(f"w{wave}-*"))

    def new_attempt(self, wave: int) -> Path:
        """A folder that nobody else works in: the same task may run on two nodes at once."""
        path = self._attempts / f"w{wave}-{uuid.uuid4().hex[:12]}"
        path.mkdir(parents=True, mode=PRIVATE_FOLDER)
        return path

    def output(self, attempt: str) -> Path:
        return self._attempts / attempt / "out"

    def done(self) -> EndedCell | None:
        """The attempt that counts: it is complete."""
        return _read(self._done)

    def ended(self, wave: int) -> EndedCell | None:
        return _read(self._of_wave(wave))

    def publish(self, ended: EndedCell, wave: int, *, complete: bool) -> None:
        """The first that publishes has decided, here and for good where the result is complete."""
        own = self.folder / f"{uuid.uuid4().hex}.tmp"
        write_atomic(own, json_line(asdict(ended)))
        try:
            for place in [self._done, self._of_wave(wave)] if complete else [self._of_wave(wave)]:
                with suppress(FileExistsError):
                    os.link(own, place)
        finally:
            own.unlink(missing_ok=True)

    def parts(self) -> list[CellStore]:
        """Of an earlier version, which had several tasks ask a cell, each a part: their folders are beside it."""
        return [CellStore(path) for path in sorted(self.folder.parent.glob(f"{self.folder.name}.*-of-*"))]

    def forget_done(self) -> None:
        """Its result is not there any more."""
        for path in (self._done, *self.folder.glob("ended-w*.json")):
            path.unlink(missing_ok=True)

    def _of_wave(self, wave: int) -> Path:
        return self.folder / f"ended-w{wave}.json"


class SlurmStore:
    """Of a suite."""

    def __init__(self, suite: SuiteDir) -> None:
        self.suite = suite
        self.root = suite.state / "slurm"
        self.plan_file = self.root / "plan.jsonl"
        self.cancelled = self.root / "cancelled"
        """There where somebody has ended all jobs: who waits for them submits no others."""
        self._waves = self.root / "waves"

    def begin(self) -> str:
        """Make the folders; the suite's own id, which the names of its jobs have.

        Raises:
            PrerequisiteError: the file system has no hard links, and who is first could not be told.
        """
        self._waves.mkdir(parents=True, exist_ok=True)
        self.cancelled.unlink(missing_ok=True)
        own, place = self.root / f"{uuid.uuid4().hex}.tmp", self.root / "id"
        own.write_text(uuid.uuid4().hex[:10], encoding="utf-8")
        try:
            os.link(own, place)
        except FileExistsError:
            pass
        except OSError as error:
            raise PrerequisiteError(
                f"executor slurm needs hard links; the file system of {self.suite.root} has none: {error.strerror}\n"
                "  choose a folder on another one with suite.output_dir"
            ) from error
        finally:
            own.unlink(missing_ok=True)
        return place.read_text(encoding="utf-8")

    def is_there(self) -> bool:
        """Whether anything was ever submitted."""
        return self._waves.is_dir()

    def write_plan(self, lines: Iterable[PlanLine]) -> None:
        """Tasks that are queued still find what they were submitted for."""
        known = {line.key: line for line in (*self.plan(), *lines)}
        text = "".join(f"{json_line(asdict(line))}\n" for line in known.values())
        write_atomic(self.plan_file, text, mode=PRIVATE)

    def plan(self) -> list[PlanLine]:
        return read_plan(self.plan_file) if self.plan_file.is_file() else []

    def waves(self) -> list[Wave]:
        """Oldest first."""
        found = (read_wave(path) for path in self._waves.glob("w*.json"))
        return sorted(found, key=lambda wave: wave.number)

    def open_waves(self) -> bool:
        """Whether tasks may still need their keys, and so may be queued."""
        return next(self._waves.glob("w*.env"), None) is not None

    def new_wave(self, suite_id: str, keys: Sequence[str], *, together: bool = False) -> Wave:
        """Its list stands on disk before anything is submitted; no two have the same number."""
        last = max((wave.number for wave in self.waves()), default=0)
        for number in range(last + 1, last + MOST_WAVES):
            wave = Wave(number, job_name(suite_id, number), tuple(keys), together)
            with suppress(FileExistsError):
                descriptor = os.open(self.wave_file(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(wave)))
                self.logs(number).mkdir(parents=True, exist_ok=True)
                return wave
        raise PrerequisiteError(f"{self._waves} has too many waves: choose another suite.output_dir")

    def wave_file(self, number: int) -> Path:
        return self._waves / f"w{number}.json"

    def script(self, number: int) -> Path:
        return self._waves / f"w{number}.sh"

    def environment(self, number: int) -> Path:
        """The keys of a wave's tasks: theirs alone, and gone when the wave has ended."""
        return self._waves / f"w{number}.env"

    def clean_up_script(self, number: int) -> Path:
        """Of the job that deletes the keys when the tasks have ended."""
        return self._waves / f"w{number}.clean-up.sh"

    def clean_up_submitted(self, number: int) -> Path:
        """There once Slurm has taken that job."""
        return self._waves / f"w{number}.clean-up"

    def logs(self, number: int) -> Path:
        """What Slurm and the tasks say of themselves, a file a task."""
        return self.root / "logs" / f"w{number}"

    def served(self, target: str, wave: int) -> Path:
        """A folder for one start of a task that serves a model; what it keeps beside the attempts of cells."""
        return self.root / "served" / target / f"w{wave}-{uuid.uuid4().hex[:12]}"

    def task_log(self, wave: Wave, key: str) -> Path:
        """Of the task that does a cell; one task does all cells of a wave whose model it serves."""
        return self.logs(wave.number) / f"{0 if wave.together else wave.keys.index(key)}.log"

    def cell(self, key: str) -> CellStore:
        return CellStore(self.root / "cells" / key)


def cell_key(key: str) -> str:
    """The cell's, also of a key that an earlier version gave a part of it: `<target>/<evaluation>/<digest>.2-of-5`."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def read_plan(path: Path) -> list[PlanLine]:
    """Without the lines and fields of an earlier version that are about parts of a cell."""
    known = {field.name for field in fields(PlanLine)}
    documents = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        PlanLine(**{name: value for name, value in document.items() if name in known})
        for document in documents
        if not document.get("part")
    ]


def read_wave(path: Path) -> Wave:
    """One whose submitter was killed while he wrote it has nothing in it: nothing was submitted."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return Wave(int(path.stem[1:]), "", ())
    return Wave(fields["number"], fields["job_name"], tuple(fields["keys"]), fields.get("together", False))


def _begun(attempt: Path) -> int:
    """When an attempt had its run config, which is written once; its folder changes when an older start ends late."""
    with suppress(FileNotFoundError):
        return (attempt / RUN_CONFIG).stat().st_mtime_ns
    return attempt.stat().st_mtime_ns


def _read(path: Path) -> EndedCell | None:
    try:
        return EndedCell(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


Say = Callable[[str], object]
JUST_WRITTEN_S = 300.0
"""Keys that are younger may be of tasks which sbatch is about to take."""


def clean_up_after(
    store: SlurmStore, wave: Wave, job: str, resources: Mapping[str, Any], slurm: Slurm, say: Say
) -> None:
    """Submit the job that deletes the keys of a wave. Where Slurm does not take it, it is said, and tried again.

    Args:
        job: the id of the wave's array, as Slurm has just said it.
    """
    script = store.clean_up_script(wave.number)
    array = BatchJob(wave.job_name, len(wave.keys), 1, store.logs(wave.number).absolute(), resources, ())
    write_atomic(script, clean_up_script(array, store.environment(wave.number).absolute()), mode=PRIVATE)
    try:
        slurm.submit(script, after=job)
    except PrerequisiteError as error:
        say(f"the keys of {wave.job_name} are deleted by its last task, or by the next command: {error}".split("\n")[0])
    else:
        store.clean_up_submitted(wave.number).touch()


def clean_up_after_all(
    store: SlurmStore, queued: Iterable[QueuedTask], resources: Mapping[str, Mapping[str, Any]], slurm: Slurm, say: Say
) -> None:
    """Of waves whose submitter was killed before he did: found by the names of their jobs.

    Args:
        resources: key -> what its task asks of Slurm.
    """
    jobs = {task.job_name: task.job_id for task in queued}
    for wave in store.waves():
        asked = next((resources[key] for key in wave.keys if key in resources), None)
        is_there = store.environment(wave.number).exists() and not store.clean_up_submitted(wave.number).exists()
        if wave.job_name in jobs and is_there and asked is not None:
            clean_up_after(store, wave, jobs[wave.job_name], asked, slurm, say)


def forget_keys(store: SlurmStore, queued: Iterable[QueuedTask], *, older_than_s: float = 0.0) -> None:
    """Of waves that have no task any more. Nothing is raised: the folder may be another user's.

    Args:
        older_than_s: of who does not hold the suite; somebody may be submitting.
    """
    names = {task.job_name for task in queued}
    for wave in store.waves():
        file = store.environment(wave.number)
        with suppress(OSError):
            if wave.job_name not in names and time.time() - file.stat().st_mtime >= older_than_s:
                file.unlink()


MOST_NAMED = 3


def refuse_run_in_slurm(output: Path, env: Mapping[str, str], slurm: Slurm | None = None) -> None:
    """
    Args:
        output: of a run that is about to begin here: one that was submitted by itself, or as a cell of a suite.

    Raises:
        BusyError: Slurm has it.
        PrerequisiteError: Slurm may have it, and does not say.
    """
    root = output.absolute()
    slurm = slurm or Slurm(env)
    if len(root.parts) > 3:
        refuse_cells_in_slurm(SuiteDir(root.parent.parent), [f"{root.parent.name}/{root.name}"], slurm)
    alone = RunSuiteDir(root / OF_ONE_RUN)
    refuse_cells_in_slurm(alone, _in_slurm(alone, slurm), slurm)


def refuse_cells_in_slurm(folder: SuiteDir, cells: Collection[str], slurm: Slurm) -> None:
    """
    Args:
        cells: names of those that are about to begin here.

    Raises:
        BusyError: Slurm has one of them.
        PrerequisiteError: Slurm may have one of them, and does not say.
    """
    if not cells:
        return
    queued = _in_slurm(folder, slurm)
    found = [f"{queued[name].job_name} ({name}, {queued[name].state})" for name in cells if name in queued]
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        named = shlex.quote(str(folder.named))
        raise BusyError(
            f"{folder.named}: in Slurm already: {', '.join(found[:MOST_NAMED])}{more}\n"
            f"  wait for the end: eval-factory suite status {named}, then the same command with --executor slurm\n"
            f"  or end it, then run it here, which goes on with its answers: eval-factory suite cancel {named}"
        )


def _in_slurm(folder: SuiteDir, slurm: Slurm) -> dict[str, QueuedTask]:
    """Name of a cell -> a task of it; nobody is asked where no task can be there."""
    store = SlurmStore(folder)
    if not store.open_waves():
        return {}
    try:
        queued = active(slurm.queue(), store.waves())
    except PrerequisiteError as error:
        raise PrerequisiteError(
            f"{folder.named}: its jobs may be in Slurm, which does not say: {str(error).partition(chr(10))[0]}\n"
            "  run the same command again where Slurm answers; if all its jobs have ended, delete"
            f" {shlex.quote(str(store.environment(1).parent))}/w*.env first"
        ) from error
    return {key.rpartition("/")[0]: task for key, task in queued.items()}
