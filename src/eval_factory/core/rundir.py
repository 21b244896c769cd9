"""Defines the output folders of runs and suites: the names of all files, and the lock.

Only this module contains these names, so all stages of a run use the same files. The lock is made
with flock and belongs to an open file. A process that inherits the file descriptor (helm-run) also
holds the lock, even if the process that acquired it has ended. A second file, next to the lock
file, names the holder for messages.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.safe_files import open_regular, parse_json, write_atomic

PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
MARKER_TEXT = (
    "eval-factory writes its results here; "
    "what it wrote is replaced by a run, and deleted by --fresh\n"
)
GIT_IGNORE = ".gitignore"
_IGNORE_ALL = "# prompts and answers may be of patients: git leaves them out\n*\n"
# the time (in seconds) to wait for processes of a killed run, which end themselves
ORPHAN_WAIT_S = 60.0
# the time (in seconds) to wait without a message if no file names the holder, which may be just
# starting or ending
UNKNOWN_HOLDER_S = 1.0
# a single run on Slurm is the only cell of a suite, whose folder is in the run's output folder
SINGLE_RUN_FOLDER = ".slurm"


@dataclass(frozen=True)
class Holder:
    """The eval-factory process that acquired the lock of a folder."""

    pid: int
    host: str
    since: str  # the time at which it acquired the lock, in UTC (ISO 8601)
    program: int | None = None  # the id of the helm-run process that it started, if there is one

    @classmethod
    def this_process(cls) -> Holder:
        """Return this process as the holder, since now."""
        # `socket` would also know the host, but importing it takes too long for a dry run.
        return cls(
            os.getpid(), os.uname().nodename, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        )

    @classmethod
    def read_from(cls, file: Path) -> Holder | None:
        """Return the holder that a file names; None if the file is missing or incomplete.

        The holder's process may have ended.
        """
        try:
            return cls(**parse_json(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def as_json(self) -> str:
        """Return the content of the file that names the holder."""
        return json.dumps(vars(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    @property
    def is_gone(self) -> bool:
        """True if the process has ended; False for a process of another machine, which cannot be
        checked.
        """
        return self.host == os.uname().nodename and not is_running(self.pid)


def is_running(pid: int) -> bool:
    """Return True if a process exists and has not ended; False for a zombie process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    # Without /proc, a zombie process counts as running.
    with suppress(OSError, IndexError):
        # The file begins with `PID (NAME) STATE`; the name may have parentheses too.
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        state = status.rpartition(")")[2].split()[0]
        return state not in ("Z", "X")  # a zombie, a dead process
    return True


class Lock:
    """The lock of a folder, which this process holds.

    A process that inherits `descriptor` also holds the lock, until that process ends.
    """

    def __init__(self, descriptor: int, holder_file: Path) -> None:
        self.descriptor = descriptor
        self._file = holder_file
        self._holder = Holder.this_process()
        self._write()

    def share_with(self, pid: int) -> None:
        """Record that the process `pid` has inherited the lock."""
        self._holder = replace(self._holder, program=pid)
        self._write()

    def record_program_end(self) -> None:
        """Record that the process that inherited the lock has ended."""
        # The file is not written again: only messages need it, and `release` deletes it.
        self._holder = replace(self._holder, program=None)

    def release(self) -> None:
        """Release the lock.

        A process that inherited the lock and still runs then holds the lock alone, and the file
        that names the holder stays.
        """
        if self._holder.program is None:
            self._file.unlink(missing_ok=True)
            with suppress(OSError):  # closing the descriptor releases the lock, too
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def _write(self) -> None:
        """Write the file that names the holder."""
        with suppress(OSError):  # the disk is full: only messages need the file
            write_atomic(self._file, self._holder.as_json())


def open_lock(path: Path) -> int:
    """Open a lock file, and return its descriptor.

    Only the user can open the file: everybody who can open it could acquire the lock.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)


class _PathInFolder:
    """An attribute of `RunDir` or `SuiteDir`: the path of a file or folder below its `root`."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, folder: RunDir | SuiteDir, owner: type | None = None) -> Path:
        return folder.root.joinpath(*self._parts)


CACHE_SUFFIXES = ("-wal", "-shm", "-sent")
"""The ends of the names of files that belong to cache.db: SQLite's own files, and requests that
were sent.
"""


@dataclass(frozen=True)
class RunDir:
    """The paths below a run's `output_dir`. Creating the object does not change the disk."""

    root: Path

    evaluation_config = _PathInFolder("evaluation_config.yaml")
    results_yml = _PathInFolder("results.yml")
    eval_factory_metrics = _PathInFolder("eval_factory_metrics.json")
    run_config = _PathInFolder("run_config.yml")
    instances = _PathInFolder("instances.jsonl")
    results_jsonl = _PathInFolder("results.jsonl")
    report_html = _PathInFolder("report.html")
    report_md = _PathInFolder("report.md")
    # every installed package with its version, when the result was written
    packages = _PathInFolder("packages.txt")
    # the hash of every file of the result, in the form for `sha256sum -c`
    checksums = _PathInFolder("SHA256SUMS")
    # the hashes and a summary of the result as an in-toto statement
    attestation = _PathInFolder("attestation.intoto.json")
    # the folder with the answers of each role
    responses = _PathInFolder("responses")
    # the stored answers, and the journal of all attempts to get them
    cache_db = _PathInFolder("cache.db")
    # the batches that were sent, and their outcomes; only if requests are sent in batches
    batches = _PathInFolder("batches.db")
    # the ratings by people, and the samples of answers on their sheets
    annotations = _PathInFolder("annotations")
    ratings = _PathInFolder("annotations", "ratings.jsonl")
    # the run in which judges rated the answers of an imported result, and the folder of its answers
    judged = _PathInFolder("judged")
    judged_answers = _PathInFolder("judged", "answers")
    # the files that tell HELM about the models of this run
    model_configs = _PathInFolder("model_configs")
    # the folder in which helm-run works
    helm = _PathInFolder("helm")
    # HELM's files about answers; the other data in `helm` can be downloaded again
    helm_runs = _PathInFolder("helm", "runs")
    # the pictures that the model made, named by their SHA-256
    made_pictures = _PathInFolder("helm", "generated_images")
    logs = _PathInFolder("logs")
    program_log = _PathInFolder("logs", "eval-factory.log")
    helm_log = _PathInFolder("logs", "helm-run.log")
    summarize_log = _PathInFolder("logs", "helm-summarize.log")
    events = _PathInFolder("logs", "events.jsonl")
    run_state = _PathInFolder(".run_state.json")
    # the state of the user's own data files when they were last read
    own_data = _PathInFolder(".own_data.json")
    # marks the folder as one that eval-factory may write to and clear
    marker = _PathInFolder(".eval-factory")
    lock_file = _PathInFolder(".lock")
    lock_holder = _PathInFolder(".lock.holder.json")

    def responses_of(self, role: str) -> Path:
        """Return the file of the answers of one role: `model`, or the name of a judge."""
        return self.responses / f"{role}.jsonl"

    def sample_file(self, sheet: str) -> Path:
        """Return the file that links the codes on a sheet for raters to answers."""
        return self.annotations / f"sample-{sheet}.json"

    def bundled_folder(self, folder: str) -> Path:
        """Return the path to which `folder` of a data bundle is copied.

        `folder` must not be the folder of one scenario. It is, for example, the folder of all data
        sets of the Hub. For a scenario's folder, see `scenario_folder` in `helm/output.py`.
        """
        return self.helm / folder

    @property
    def answer_files(self) -> tuple[Path, ...]:
        """cache.db, and the files that belong to it while it is open or after a kill."""
        suffixed = [self.root / f"{self.cache_db.name}{suffix}" for suffix in CACHE_SUFFIXES]
        return (self.cache_db, *suffixed)

    @property
    def result_files(self) -> tuple[Path, ...]:
        """The files of the result, without `run_config.yml`."""
        documents = (self.evaluation_config, self.results_yml, self.eval_factory_metrics)
        return (*documents, self.results_jsonl, self.instances, self.report_html, self.report_md)

    def existing_result_files(self) -> list[Path]:
        """Return the existing files of the result, with `run_config.yml` and the answers of each
        role.
        """
        single = [path for path in (self.run_config, *self.result_files) if path.is_file()]
        return [*single, *sorted(path for path in self.responses.glob("*.jsonl") if path.is_file())]

    @property
    def _single(self) -> tuple[Path, ...]:
        """The files of a result that are directly in the folder."""
        state = (self.run_config, self.packages, self.run_state, self.own_data, self.lock_holder)
        return (*self.result_files, *state, self.checksums, self.attestation)

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """All files and folders of a result. A result is read from these files only."""
        folders = (self.responses, self.model_configs, self.helm, self.logs, self.annotations)
        return (*self._single, *self.answer_files, *folders)

    def writes(self, name: str) -> bool:
        """Return True if eval-factory writes a file with this name directly to the folder.

        Such a file is always complete (see `write_atomic`).
        """
        return name in {file.name for file in (*self._single, self.marker)}

    def forget_checksums(self) -> None:
        """Remove the checksums and the attestation.

        This is done before any file of the result is changed, so that the files of a killed run are
        not taken for a complete result.
        """
        for file in (self.checksums, self.attestation):
            file.unlink(missing_ok=True)

    def archive(self, files: Iterable[Path]) -> Path:
        """Move files to a new folder whose name has the current time, and return the folder.

        The files are then not lost, and not taken for files of a later result.
        """
        folder = self.root / f"results.set-aside-{time.strftime('%Y%m%d-%H%M%S')}"
        folder.mkdir(exist_ok=True)
        for file in files:
            if file.exists():
                file.replace(folder / file.name)
        return folder

    def create(self) -> None:
        """Make the folders, and mark the output folder as eval-factory's.

        Raises PrerequisiteError if a folder cannot be made or written to.
        """
        import tempfile  # only here: a dry run makes no folder

        try:
            self.root.mkdir(parents=True, exist_ok=True)
            keep_from_git(self.root, is_ours=self.marker.exists())
            if not self.marker.exists():
                write_atomic(self.marker, MARKER_TEXT)
            for folder in (self.responses, self.model_configs, self.helm, self.logs):
                # The folders are private: HELM's files contain prompts and are readable by
                # everybody.
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass  # existing folders may be read-only: this raises OSError
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write to the output folder {self.root}: {error.strerror or error}\n"
                "  choose another with --output_dir"
            ) from error

    @contextmanager
    def locked(self, say: Callable[[str], object] = lambda _text: None) -> Iterator[Lock]:
        """Hold the lock of the folder inside the context.

        The operating system releases the lock when the last process that holds it has ended. If the
        eval-factory process that acquired the lock was killed, this process waits for the end of
        that process's helm-run, at most `ORPHAN_WAIT_S` seconds.

        Args:
            say: reports to the user that this process waits.

        Raises:
            BusyError: another process holds the lock; the message names the process.
            PrerequisiteError: the file system has no locks, or the lock file cannot be opened.
        """
        try:
            descriptor = open_lock(self.lock_file)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot open {self.lock_file}: {error.strerror or error}\n"
                "  this file keeps two runs from using one folder; choose another folder with "
                "--output_dir"
            ) from error
        try:
            self._wait_for(descriptor, say)
        except BaseException:
            os.close(descriptor)
            raise
        lock = Lock(descriptor, self.lock_holder)
        try:
            yield lock
        finally:
            lock.release()

    def _wait_for(self, descriptor: int, say: Callable[[str], object]) -> None:
        """Acquire the lock; wait only if its holder has ended or is not known."""
        started = time.monotonic()
        reported = False
        while True:
            try:
                # The package filelock makes the same call, but its import loads asyncio.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            # Another process holds the lock; some file systems raise PermissionError.
            except (BlockingIOError, PermissionError):
                holder = Holder.read_from(self.lock_holder)
                waited = time.monotonic() - started
            except OSError as error:
                raise PrerequisiteError(
                    f"cannot lock {self.lock_file}: {error.strerror or error}\n"
                    "  its file system (a network folder?) has no locks, and without them two "
                    "runs in one folder would pay twice\n"
                    "  choose a folder on a local disk with --output_dir; you can copy what is "
                    "in this folder"
                ) from error
            still_runs = holder is not None and not holder.is_gone
            if still_runs or waited >= ORPHAN_WAIT_S:
                raise BusyError(self._in_use_by(holder))
            # A holder that is not known yet may be just starting or ending: do not report it.
            is_worth_a_message = holder is not None or waited >= UNKNOWN_HOLDER_S
            if is_worth_a_message and not reported:
                reported = True
                say(
                    f"{self.root} is still in use by a run that has ended or was killed:"
                    f" waiting up to {ORPHAN_WAIT_S:.0f} s for what it started to end"
                )
            time.sleep(0.05)

    def _in_use_by(self, holder: Holder | None) -> str:
        """Return the message for a folder whose lock another process holds."""
        if holder is None:
            return f"{self.root} is in use by another run: an unknown process"
        if not holder.is_gone:
            return f"{self.root} is in use by another run: {holder}"
        program = "an unknown process"
        remedy = "end it"
        if holder.program:
            program = f"process {holder.program}"
            remedy = f"end it (kill {holder.program})"
        return (
            f"{self.root} is in use: its run (process {holder.pid}, "
            f"since {holder.since}) was killed,"
            f" but what it started goes on: {program}\n"
            f"  {remedy}, then run the same command again"
        )


def keep_from_git(folder: Path, *, is_ours: bool) -> None:
    """Write a `.gitignore` to an output folder, so that git ignores the folder.

    Nothing is written if the folder has a `.gitignore`, or if it is not marked yet and contains
    files: these files may belong to a repository.

    Args:
        folder: the output folder.
        is_ours: True if the folder is already marked as eval-factory's.

    Raises:
        OSError: the file cannot be written.
    """
    file = folder / GIT_IGNORE
    if os.path.lexists(file):
        return
    if is_ours or not any(folder.iterdir()):
        write_atomic(file, _IGNORE_ALL)


def sha256_of(path: Path, inside: Path | None = None) -> str:
    """Return the SHA-256 of a regular file's content, in hexadecimal digits.

    Args:
        path: the path of the file.
        inside: the folder that must contain the file, also after links are followed; None: any
            folder.
    """
    digest = hashlib.sha256()
    with open_regular(path, inside) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class SuiteDir:
    """The paths below a suite's `output_dir`. Creating the object does not change the disk.

    A cell of a suite is one evaluation of one target; its run has an output folder of its own.
    """

    root: Path

    # the configuration of the suite, with `extends` and presets resolved
    config = _PathInFolder("suite_config.yml")
    results_yaml = _PathInFolder("suite_results.yaml")
    results_csv = _PathInFolder("suite_results.csv")
    results_md = _PathInFolder("suite_results.md")
    results_html = _PathInFolder("suite_results.html")
    # the cost of the cells: times, requests, attempts
    usage_yaml = _PathInFolder("suite_usage.yaml")
    # every run of every model of a leaderboard, with its outcome
    leaderboard = _PathInFolder("leaderboard.json")
    # files that are not results: the lock, the events, the log, the run configs of the cells
    state = _PathInFolder(".suite")
    lock = _PathInFolder(".suite", "lock")
    # the events of the cells, one JSON object per line
    events = _PathInFolder(".suite", "events.jsonl")
    log = _PathInFolder(".suite", "suite.log")

    def cell_folder(self, target: str, evaluation: str) -> Path:
        """Return the output folder of a cell's run."""
        return self.root / target / evaluation

    @property
    def was_started(self) -> bool:
        """True if the suite was started in this folder before."""
        return self.events.is_file() or self.lock.is_file()

    def cell_config(self, target: str, evaluation: str) -> Path:
        """Return the path of the run config with which `run_eval` runs a cell."""
        return self.state / "cells" / target / f"{evaluation}.yml"

    def server_log(self, target: str) -> Path:
        """Return the path of the log of a target's server, over all starts of the server."""
        return self.state / "servers" / f"{target}.log"

    @property
    def server_logs(self) -> tuple[Path, ...]:
        """The logs of all servers that this machine started, and of those that each target's last
        Slurm job started.
        """
        # The folders of the jobs are slurm/tasks/TARGET/JOB; here the oldest job is first.
        jobs = sorted(self.state.glob("slurm/tasks/*/*"), key=os.path.getmtime)
        # a dict from a target's folder to its last job's folder: later jobs replace earlier jobs
        last_jobs = {job.parent: job for job in jobs}
        # Each job has a folder `.suite` of its own.
        folders = [self.state, *(job / self.state.name for job in last_jobs.values())]
        logs: list[Path] = []
        for folder in folders:
            logs += sorted(folder.glob("servers/*.log"))
        return tuple(logs)

    def cell_log(self, target: str, evaluation: str) -> Path:
        """Return the path of the log of a cell's `run_eval`, over all attempts."""
        return self.state / "cells" / target / f"{evaluation}.log"

    @property
    def table_files(self) -> tuple[Path, ...]:
        """The files with the suite's table of results and its usage."""
        return (
            self.results_yaml,
            self.results_csv,
            self.results_md,
            self.results_html,
            self.usage_yaml,
        )

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """All files and folders of the suite and its runs. Results are read from these only."""
        # A cell's folder is TARGET/EVALUATION. A single run is in `chosen_folder` itself.
        folders = map(RunDir, (self.chosen_folder, *self.chosen_folder.glob("*/*")))
        runs = [run for run in folders if run.marker.exists() or run.evaluation_config.exists()]
        return (
            self.config,
            *self.table_files,
            self.leaderboard,
            self.state,
            *chain.from_iterable(run.all_paths for run in runs),
        )

    @property
    def chosen_folder(self) -> Path:
        """The output folder that the user has chosen; messages to the user name this folder."""
        return self.root


class RunSuiteDir(SuiteDir):
    """The paths of a suite with a single run, whose `root` is inside the run's output folder."""

    run_config = _PathInFolder("run_config.yml")  # the run config with its executor, for `run_eval`

    def cell_folder(self, target: str, evaluation: str) -> Path:  # noqa: ARG002
        """Return the run's output folder: the suite has one cell, whatever its name."""
        return self.root.parent

    @property
    def chosen_folder(self) -> Path:
        return self.root.parent


def suite_dir(root: Path) -> SuiteDir:
    """Return the paths of a suite, which may be the suite of a single run."""
    if root.name == SINGLE_RUN_FOLDER:
        return RunSuiteDir(root)
    return SuiteDir(root)
