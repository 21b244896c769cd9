"""The output folder: every file name in it, atomic writes, and the lock.

The only module that spells these names, so that what is written by one stage is found by the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eval_factory.errors import BusyError, PrerequisiteError

PRIVATE = 0o600
PUBLIC = 0o644
PRIVATE_FOLDER = 0o700


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
    def model_configs(self) -> Path:
        return self.root / "model_configs"

    @property
    def helm(self) -> Path:
        return self.root / "helm"

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

    def run_entries_of(self, model: str) -> Path:
        return self.root / f"run_entries_{model}.conf"

    @property
    def leaderboard(self) -> Path:
        return self.root / "leaderboard.json"

    @property
    def leaderboard_state(self) -> Path:
        return self.root / ".leaderboard_state.json"

    @property
    def events(self) -> Path:
        return self.logs / "events.jsonl"

    @property
    def report_html(self) -> Path:
        return self.root / "report.html"

    @property
    def run_state(self) -> Path:
        return self.root / ".run_state.json"

    @property
    def own_data(self) -> Path:
        """What the user's own files were like when they were last read."""
        return self.root / ".own_data.json"

    @property
    def results(self) -> tuple[Path, ...]:
        """All that says what came out; `run_config.yml` says of what."""
        return (self.evaluation_config, self.results_yml, self.results_jsonl, self.instances, self.report_html)

    def set_aside(self, files: Iterable[Path]) -> Path:
        """Move files into a folder of this moment's name, so that they are neither taken for others nor lost."""
        folder = self.root / f"results.set-aside-{time.strftime('%Y%m%d-%H%M%S')}"
        folder.mkdir(exist_ok=True)
        for file in files:
            if file.exists():
                file.replace(folder / file.name)
        return folder

    @property
    def lock_file(self) -> Path:
        return self.root / ".lock"

    @property
    def lock_holder(self) -> Path:
        return self.root / ".lock.holder.json"

    def create(self) -> None:
        """Make the folders.

        Raises:
            PrerequisiteError: the folder cannot be made or written to.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
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
    def locked(self) -> Iterator[None]:
        """Hold the folder. The operating system drops the lock of a process that died.

        Raises:
            BusyError: another process holds it; the message says which.
        """
        from filelock import FileLock, Timeout  # imported here: it loads asyncio, and `--dry_run` locks nothing

        lock = FileLock(self.lock_file)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise BusyError(f"{self.root} is in use by another run: {self._holder()}") from None
        try:
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
            write_atomic(self.lock_holder, json.dumps(holder))
            yield
        finally:
            self.lock_holder.unlink(missing_ok=True)
            lock.release()

    def _holder(self) -> str:
        try:
            held = json.loads(self.lock_holder.read_text(encoding="utf-8"))
            return f"process {held['pid']} on {held['host']}, since {held['since']}"
        except (OSError, ValueError, KeyError):
            return "an unknown process"


def write_atomic(path: Path, text: str | Iterable[str], *, mode: int = PUBLIC) -> None:
    """Write `text`, whole or in parts, so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
