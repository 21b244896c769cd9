"""The ledger of a panel: what was looked at and found, line after line, none of which can be changed unseen.

Each line is a JSON object with the SHA-256 of the line before. `ledger.sha256` beside it holds that of the last line:
a line that is dropped at the end is missed, too. While a line is written it holds two hashes, of the last line and of
the one that comes: whenever the program is killed, the line is there whole, or not at all.

Who may write to the folder can write all of it anew. What shows that is the last line's hash, kept elsewhere: each
look prints it, and `monitor verify --head` takes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import UTC_FORMAT
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import json_line, open_regular, write_atomic

NOTHING = "0" * 64  # stands for the line before the first
Line = dict[str, Any]


def now() -> str:
    return datetime.now(timezone.utc).strftime(UTC_FORMAT)


@dataclass(frozen=True)
class Read:
    """The ledger as it stands."""

    lines: tuple[Line, ...]
    problems: tuple[str, ...]  # what shows that it was changed; empty where nothing does
    head: str  # the last line's hash


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file, self.head_file = folder / "ledger.jsonl", folder / "ledger.sha256"

    def read(self) -> Read:
        """What is there; of a line that is just being written, nothing."""
        lines: list[Line] = []
        problems: list[str] = []
        head = NOTHING
        heads = self._heads()
        *whole, torn = self._bytes().split(b"\n")
        for number, text in enumerate(whole, start=1):
            where = f"{self.file.name}, line {number}"
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError
            except (ValueError, RecursionError):
                problems.append(f"{where}: is no JSON object")
                line = {}
            if line.get("previous") != head:
                problems.append(f"{where}: does not follow the line before it: one was changed, dropped or put in")
            if line.get("number") != number:
                problems.append(f"{where}: has the number {line.get('number')}")
            head = hashlib.sha256(text).hexdigest()
            lines.append(line)
        if torn and len(heads) != 2:
            problems.append(f"{self.file.name}: its last line is not whole")
        if head not in heads and (lines or heads):
            problems.append(f"{self.head_file.name}: is not of the last line: the last lines were changed or dropped")
        return Read(tuple(lines), tuple(problems), head)

    def intact(self) -> Read:
        """Raises PrerequisiteError: it was changed."""
        found = self.read()
        if found.problems:
            raise PrerequisiteError(
                f"{self.file}: was changed by somebody else, and nothing is added to it\n"
                + "\n".join(f"  {problem}" for problem in found.problems[:5])
                + f"\n  see 'eval-factory monitor verify {self.folder}'; put the file back from a copy"
            )
        return found

    def append(self, kind: str, **fields: Any) -> Line:
        """Write one line, and wait where somebody else writes one.

        Raises:
            PrerequisiteError: the ledger was changed, or cannot be written.
        """
        with self._locked(".ledger.lock"):
            before = self.intact()
            line: Line = {"number": len(before.lines) + 1, "kind": kind, "at": now(), "previous": before.head, **fields}
            text = json_line(line).encode()
            head = hashlib.sha256(text).hexdigest()
            self._write_heads(before.head, head)
            whole = self._bytes().rpartition(b"\n")
            with self.file.open("ab") as file:  # what was torn by a kill goes
                file.truncate(len(whole[0]) + len(whole[1]))
                file.write(text + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._write_heads(head)
        return line

    @contextmanager
    def looking(self, say: Callable[[str], object]) -> Iterator[None]:
        """Hold the panel for one look. Who comes second waits for the end of the first."""
        with self._locked(".look.lock", lambda: say(f"{self.folder}: another look is being made: waiting for its end")):
            yield

    @contextmanager
    def _locked(self, name: str, waits: Callable[[], object] = lambda: None) -> Iterator[None]:
        from filelock import FileLock, Timeout  # loads asyncio

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / name, mode=PRIVATE)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                waits()
                lock.acquire(poll_interval=0.2)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write to the panel's folder {self.folder}: {error.strerror or error}\n"
                "  choose another with monitor.output_dir"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _bytes(self) -> bytes:
        return _content(self.file)

    def _heads(self) -> list[str]:
        return _content(self.head_file).decode(errors="replace").split()

    def _write_heads(self, *heads: str) -> None:
        write_atomic(self.head_file, "".join(f"{head}\n" for head in heads))


def _content(path: Path) -> bytes:
    try:
        with open_regular(path, path.parent) as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error.strerror or error}") from error
