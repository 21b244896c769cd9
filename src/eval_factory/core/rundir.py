"""The output folder of a run and that of a suite: every file name in them, and the lock.

Only this module spells these names, so that the next stage finds what one stage writes. The lock is flock's: it belongs
to an open file, and a process that inherits the descriptor (helm-run) holds it too, even when the process that took it
is gone.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.folder_lock import Holder
from eval_factory.core.safe_files import open_regular, write_atomic

PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
MARKER_TEXT = "eval-factory writes its results here; what it wrote is replaced by a run, and deleted by --fresh\n"
ORPHAN_WAIT_S = 60.0
"""How long a run waits for the processes of one that was killed: they end themselves, but a busy machine takes time."""
UNKNOWN_HOLDER_S = 1.0
"""How long nothing is said of a holder that is not written down: it has only just begun, or is about to end."""
LOCK_POLL_S = 0.05
HELD_BY_ANOTHER = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES})
"""What flock says where a lock is held; some file systems say the last."""


class Lock:
    """A folder that is held. A program that inherits `descriptor` holds it as well, until it ends."""

    def __init__(self, descriptor: int, holder_file: Path) -> None:
        self.descriptor = descriptor
        self._file = holder_file
        self._holder = Holder.this_process()
        self._write()

    def share_with(self, pid: int) -> None:
        """Write down that the program `pid` has inherited the lock."""
        self._holder = replace(self._holder, program=pid)
        self._write()

    def program_ended(self) -> None:
        """Nobody but this process holds it any more."""
        self._holder = replace(self._holder, program=None)

    def release(self) -> None:
        """Give the folder free; where the program could not be ended, it goes on holding it."""
        if self._holder.program is None:
            self._file.unlink(missing_ok=True)
            with suppress(OSError):  # closing it does the same, where nobody has inherited it
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def _write(self) -> None:
        with suppress(OSError):  # a full disk: it is there for messages only
            write_atomic(self._file, self._holder.as_json())


def open_lock(path: Path) -> int:
    """A lock's file, its user's alone, as one of an earlier version becomes: who can open it could take the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), PRIVATE)
    with suppress(PermissionError):  # another user's, which may be written to
        os.fchmod(descriptor, PRIVATE)
    return descriptor


@dataclass(frozen=True)
class RunDir:
    """Paths under one `output_dir`. Creating it touches nothing on disk."""

    root: Path

    @property
    def evaluation_config(self) -> Path:
        return self.root / "evaluation_config.yaml"

    @property
    def results_yml(self) -> Path:
        return self.root / "results.yml"

    @property
    def eval_factory_metrics(self) -> Path:
        return self.root / "eval_factory_metrics.json"

    @property
    def run_config(self) -> Path:
        return self.root / "run_config.yml"

    @property
    def instances(self) -> Path:
        return self.root / "instances.jsonl"

    @property
    def results_jsonl(self) -> Path:
        return self.root / "results.jsonl"

    @property
    def responses(self) -> Path:
        return self.root / "responses"

    def responses_of(self, role: str) -> Path:
        return self.responses / f"{role}.jsonl"

    @property
    def cache_db(self) -> Path:
        return self.root / "cache.db"

    @property
    def answers(self) -> tuple[Path, ...]:
        """cache.db and what SQLite keeps beside it while it is open, or after a kill."""
        return (self.cache_db, *(self.root / f"{self.cache_db.name}{suffix}" for suffix in ("-wal", "-shm")))

    @property
    def annotations(self) -> Path:
        """What people rated, and which answers their sheets are about."""
        return self.root / "annotations"

    @property
    def ratings(self) -> Path:
        return self.annotations / "ratings.jsonl"

    def sample(self, sheet: str) -> Path:
        return self.annotations / f"sample-{sheet}.json"

    @property
    def shards(self) -> Path:
        """Of an earlier version, which had several processes ask: a folder for each of them."""
        return self.root / "shards"

    def stores(self) -> list[RunDir]:
        """This folder and those of an earlier version's shards, each of which may have a cache.db."""
        return [self, *map(RunDir, sorted(self.shards.glob("*-of-*")))]

    @property
    def model_configs(self) -> Path:
        return self.root / "model_configs"

    @property
    def helm(self) -> Path:
        return self.root / "helm"

    @property
    def helm_runs(self) -> Path:
        """What HELM makes of answers; the data beside it are read again."""
        return self.helm / "runs"

    def bundled(self, folder: str) -> Path:
        """The copy of a data bundle's folder that belongs to no scenario: data sets of the Hub, vocabularies."""
        return self.helm / folder

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def program_log(self) -> Path:
        return self.logs / "eval-factory.log"

    @property
    def helm_log(self) -> Path:
        return self.logs / "helm-run.log"

    @property
    def summarize_log(self) -> Path:
        return self.logs / "helm-summarize.log"

    @property
    def packages(self) -> Path:
        """Every installed package with its version, when the result was written."""
        return self.root / "packages.txt"

    @property
    def events(self) -> Path:
        return self.logs / "events.jsonl"

    @property
    def report_html(self) -> Path:
        return self.root / "report.html"

    @property
    def report_md(self) -> Path:
        return self.root / "report.md"

    @property
    def run_state(self) -> Path:
        return self.root / ".run_state.json"

    @property
    def own_data(self) -> Path:
        """What the user's own files were like when they were last read."""
        return self.root / ".own_data.json"

    @property
    def checksums(self) -> Path:
        """Of every file that is part of the result, as `sha256sum -c` reads them."""
        return self.root / "SHA256SUMS"

    @property
    def attestation(self) -> Path:
        """The same as a statement of in-toto, with what the result says."""
        return self.root / "attestation.intoto.json"

    @property
    def results(self) -> tuple[Path, ...]:
        """All that says what came out; `run_config.yml` says of what."""
        return (
            self.evaluation_config,
            self.results_yml,
            self.eval_factory_metrics,
            self.results_jsonl,
            self.instances,
            self.report_html,
            self.report_md,
        )

    def written(self) -> list[Path]:
        """Those of the results that are there, with the configuration and the answers of each role."""
        single = [path for path in (self.run_config, *self.results) if path.is_file()]
        return [*single, *sorted(path for path in self.responses.glob("*.jsonl") if path.is_file())]

    @property
    def own(self) -> tuple[Path, ...]:
        """Everything that is read of a result; what else lies in the folder is nobody's business."""
        kept = (self.run_config, self.packages, self.run_state, self.own_data)
        folders = (self.responses, self.model_configs, self.helm, self.logs, self.annotations, self.shards)
        return (*self.results, *kept, self.checksums, self.attestation, *self.answers, self.lock_holder, *folders)

    def archive(self, files: Iterable[Path]) -> Path:
        """Move files into a folder of this moment's name, so that they are neither taken for others nor lost."""
        folder = self.root / f"results.set-aside-{time.strftime('%Y%m%d-%H%M%S')}"
        folder.mkdir(exist_ok=True)
        for file in files:
            if file.exists():
                file.replace(folder / file.name)
        return folder

    @property
    def marker(self) -> Path:
        """Says that the folder is eval-factory's to write in and to clear."""
        return self.root / ".eval-factory"

    @property
    def lock_file(self) -> Path:
        return self.root / ".lock"

    @property
    def lock_holder(self) -> Path:
        return self.root / ".lock.holder.json"

    def writes(self, name: str) -> bool:
        """Whether a file of that name in the folder itself is one that is written here whole or not at all."""
        kept = (self.run_config, self.packages, self.run_state, self.own_data)
        sums = (self.checksums, self.attestation)
        names = {file.name for file in (*self.results, *kept, *sums, self.marker, self.lock_holder)}
        return name in names

    def create(self) -> None:
        """Make the folders, and mark them as ours.

        Raises:
            PrerequisiteError: the folder cannot be made or written to.
        """
        import tempfile  # imported here: a dry run makes no folder

        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.marker.exists():
                write_atomic(self.marker, MARKER_TEXT)
            for folder in (self.responses, self.model_configs, self.helm, self.logs):
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)  # HELM's files hold prompts, and anybody may read them
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write to the output folder {self.root}: {error.strerror or error}\n"
                "  choose another with --output_dir"
            ) from error

    @contextmanager
    def locked(self, say: Callable[[str], None] = lambda _text: None) -> Iterator[Lock]:
        """Hold the folder. The operating system drops the lock when the last process that has it has ended.

        Where the eval-factory that took it was killed, its helm-run is given the time to end: `say` is told.

        Raises:
            BusyError: another process holds it; the message says which.
            PrerequisiteError: the file system has no locks, or the lock file cannot be opened.
        """
        descriptor = self._open_lock()
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

    def _open_lock(self) -> int:
        try:
            return open_lock(self.lock_file)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot open {self.lock_file}: {error.strerror or error}\n"
                "  it keeps two runs out of one folder; choose another folder with --output_dir"
            ) from error

    def _wait_for(self, descriptor: int, say: Callable[[str], None]) -> None:
        started, said = time.monotonic(), False
        while not self._try(descriptor):
            holder, waited = Holder.written_in(self.lock_holder), time.monotonic() - started
            if (holder is not None and not holder.is_gone) or waited >= ORPHAN_WAIT_S:
                raise BusyError(self._in_use_by(holder))
            if not said and (holder is not None or waited >= UNKNOWN_HOLDER_S):
                said = True
                say(
                    f"{self.root} is still in use by a run that has ended or was killed:"
                    f" waiting up to {ORPHAN_WAIT_S:.0f} s for what it started to end"
                )
            time.sleep(LOCK_POLL_S)

    def _try(self, descriptor: int) -> bool:
        """The system's own call: filelock's `lock_descriptor` is this one too, and importing it loads asyncio."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD_BY_ANOTHER:
                return False
            raise PrerequisiteError(
                f"cannot lock {self.lock_file}: {error.strerror or error}\n"
                "  its file system (a network folder?) gives no locks, and two runs in one folder would pay twice\n"
                "  choose a folder on a local disk with --output_dir; what is there can be copied along"
            ) from error
        return True

    def _in_use_by(self, holder: Holder | None) -> str:
        if holder is None:
            return f"{self.root} is in use by another run: an unknown process"
        if not holder.is_gone:
            return f"{self.root} is in use by another run: {holder}"
        program = f"process {holder.program}" if holder.program else "an unknown process"
        return (
            f"{self.root} is in use: its run (process {holder.pid}, since {holder.since}) was killed,"
            f" but what it started goes on: {program}\n"
            f"  end it{f' (kill {holder.program})' if holder.program else ''}, then run the same command again"
        )


def sha256_of(path: Path, inside: Path | None = None) -> str:
    """The SHA-256 of a regular file's content, in hexadecimal digits; `inside` is the folder that it has to lie in."""
    digest = hashlib.sha256()
    with open_regular(path, inside) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


RESERVED_NAMES = frozenset({".suite"})
"""No target may be called so; neither may one begin with `suite_`."""
OF_ONE_RUN = ".slurm"
"""In the output folder of a run that is done by Slurm: a suite with this run as its one cell."""


@dataclass(frozen=True)
class SuiteDir:
    """Paths under a suite's `output_dir`. Creating it touches nothing on disk."""

    root: Path

    @property
    def config(self) -> Path:
        """The suite as it is run: `extends` and presets resolved."""
        return self.root / "suite_config.yml"

    @property
    def results_yaml(self) -> Path:
        return self.root / "suite_results.yaml"

    @property
    def results_csv(self) -> Path:
        return self.root / "suite_results.csv"

    @property
    def results_md(self) -> Path:
        return self.root / "suite_results.md"

    @property
    def results_html(self) -> Path:
        return self.root / "suite_results.html"

    @property
    def usage_yaml(self) -> Path:
        """What the cells took: times, requests, attempts. No two runs of a suite have the same."""
        return self.root / "suite_usage.yaml"

    @property
    def leaderboard(self) -> Path:
        """Of a leaderboard: every run of every model, and what came of it."""
        return self.root / "leaderboard.json"

    @property
    def state(self) -> Path:
        """What is no result: the lock, the events, the log, the run configs of the cells."""
        return self.root / ".suite"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def events(self) -> Path:
        """What happened to the cells, a JSON object a line; of several invocations one after another."""
        return self.state / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.state / "suite.log"

    @property
    def socket(self) -> Path:
        """Where the socket of the limits is, while the suite runs."""
        return self.state / "socket.json"

    def cell(self, target: str, evaluation: str) -> Path:
        """A cell's output folder."""
        return self.root / target / evaluation

    def cell_config(self, target: str, evaluation: str) -> Path:
        """The run config of a cell, for `run_eval`."""
        return self.state / "cells" / target / f"{evaluation}.yml"

    def server_log(self, target: str) -> Path:
        """What the server of a target said, of all its starts."""
        return self.state / "servers" / f"{target}.log"

    @property
    def server_logs(self) -> tuple[Path, ...]:
        """Of all servers that were started here, and by the last job of each target on Slurm."""
        last = {start.parent: start for start in sorted(self.state.glob("slurm/served/*/*"), key=os.path.getmtime)}
        folders = [self.state, *(start / self.state.name for start in last.values())]
        return tuple(log for folder in folders for log in sorted(folder.glob("servers/*.log")))

    def cell_log(self, target: str, evaluation: str) -> Path:
        """What `run_eval` would have shown of the cell, of all its attempts."""
        return self.state / "cells" / target / f"{evaluation}.log"

    @property
    def table(self) -> tuple[Path, ...]:
        """All that says what came out."""
        return (self.results_yaml, self.results_csv, self.results_md, self.results_html, self.usage_yaml)

    @property
    def own(self) -> tuple[Path, ...]:
        """Everything that is read of the suite and of the runs in it."""
        folders = map(RunDir, (self.named, *self.named.glob("*/*")))
        runs = [run for run in folders if run.marker.exists() or run.evaluation_config.exists()]
        return (self.config, *self.table, self.leaderboard, self.state, *(path for run in runs for path in run.own))

    @property
    def named(self) -> Path:
        """The folder by which its user knows it."""
        return self.root


class RunSuiteDir(SuiteDir):
    """A suite of one run, in that run's output folder, which is the folder of its one cell."""

    def cell(self, target: str, evaluation: str) -> Path:  # noqa: ARG002 - there is but one
        return self.root.parent

    @property
    def run_config(self) -> Path:
        """The run, with where it is done, for `run_eval`."""
        return self.root / "run_config.yml"

    @property
    def named(self) -> Path:
        return self.root.parent


def suite_dir(root: Path) -> SuiteDir:
    """Of a suite, or of a run that is one."""
    return RunSuiteDir(root) if root.name == OF_ONE_RUN else SuiteDir(root)
