"""Reads and writes the ledger of a panel: a file with a line for each baseline, look and change.

Each line is a JSON object with the SHA-256 of the previous line, so that a changed line is
detected. `ledger.sha256` contains the hash of the last line, so that the removal of the last line
is detected. While a line is being written, `ledger.sha256` also contains the hash of that line: if
the program is killed then, the ledger is valid with or without the line. A person who can write to
the folder could write the complete ledger again; only a copy of the last hash in another folder
shows this.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import UTC_FORMAT
from eval_factory.core.rundir import PRIVATE, keep_from_git
from eval_factory.core.safe_files import json_line, open_regular, parse_json, write_atomic

NO_HASH = "0" * 64  # the value of `previous` in the first line
# The kinds of lines: the values of `kind`.
BASELINE = "baseline"
BEGUN = "begun"  # the start of a look
LOOK = "look"  # the end of a look with its results
NOT_MADE = "not_made"  # the end of a look without results
NOTE = "note"
CHANGE = "change"  # the decision about a new model

# The names of the folders with the runs of a change.
WATCHED_MODEL = "approved"
NEW_MODEL = "candidate"

READER_FIELD = "reader"
"""Key of a baseline or a look: the version of `reading` that read the answers; 1 by default."""
BASELINE_AGAIN_FIELD = "baseline_again"
"""Key of a look whose answers another version of `reading` read than the baseline's answers.

The value is the baseline's `limits`, computed with the version of the look.
"""
Line = Mapping[str, Any]  # the JSON object of a line


def reader_version_of(line: Line) -> int:
    """Return the version of `reading` that read the answers of a baseline or a look."""
    return int(line.get(READER_FIELD, 1))


def baseline_as_read_again(baseline: Line, looks: Sequence[Line]) -> Line:
    """Return the baseline with its `limits` as the version of the last look reads the answers."""
    if not looks or BASELINE_AGAIN_FIELD not in looks[-1]:
        return baseline
    return {**baseline, "limits": looks[-1][BASELINE_AGAIN_FIELD]}


@dataclass(frozen=True)
class History:
    """The complete lines of a ledger, and the state of the panel that follows from the lines."""

    lines: Sequence[Line]
    problems: Sequence[str] = ()  # evidence that the ledger was changed; empty if there is none
    head: str = NO_HASH  # the hash of the last line

    @property
    def baseline(self) -> Line | None:
        """The current baseline; None if there is no baseline yet."""
        return next((line for line in reversed(self.lines) if line["kind"] == BASELINE), None)

    def of_kind(self, kind: str) -> list[Line]:
        """Return all lines of this kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def epoch(self) -> int:
        """The number of the current baseline, from 1; 0 before the first baseline."""
        if self.baseline is None:
            return 0
        return int(self.baseline["epoch"])

    @property
    def looks(self) -> list[Line]:
        """The looks made since the current baseline."""
        return self.looks_after(self.baseline)

    def looks_after(self, baseline: Line | None) -> list[Line]:
        """Return the looks between a baseline and the next baseline."""
        if baseline is None:
            return []
        later = self.lines[int(baseline["number"]) :]  # numbers of lines begin at 1
        until_next_baseline = takewhile(lambda line: line["kind"] != BASELINE, later)
        return [line for line in until_next_baseline if line["kind"] == LOOK]

    @property
    def begun(self) -> Line | None:
        """The line of a look that was started and has not ended; None if there is no such look."""
        for line in reversed(self.lines):
            if line["kind"] == BEGUN:
                return line
            if line["kind"] in (LOOK, NOT_MADE):
                return None
        return None

    @property
    def next_look(self) -> int:
        """The number of the next look. Looks are numbered from 1 over all baselines."""
        return 1 + max((int(line["look"]) for line in self.of_kind(BEGUN)), default=0)

    @property
    def alarm(self) -> Mapping[str, Any] | None:
        """The alarm of the last look since the current baseline; None if there is no alarm."""
        if not self.looks:
            return None
        alarm: Mapping[str, Any] | None = self.looks[-1]["alarm"]
        return alarm


def is_older_than(line: Line, *, hours: float) -> bool:
    """Return True if the line was written more than this number of hours ago."""
    written = datetime.strptime(line["at"], UTC_FORMAT).replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - written > timedelta(hours=hours)


class Ledger:
    """The ledger file in a panel's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ledger.jsonl"
        self.head_file = folder / "ledger.sha256"

    def read(self) -> History:
        """Return the complete lines with all problems; a line that is being written is left out."""
        lines: list[dict[str, Any]] = []
        problems: list[str] = []
        head = NO_HASH
        # the hash of the last line; while a line is being written, also the hash of that line
        heads = _content(self.head_file).decode(errors="replace").split()
        # The last element is the text after the last line break: empty if every line is complete.
        *complete_lines, incomplete_line = _content(self.file).split(b"\n")
        for number, text in enumerate(complete_lines, start=1):
            label = f"{self.file.name}, line {number}"
            try:
                line = parse_json(text)
                if not isinstance(line, dict):
                    raise ValueError("is not an object")
            except (ValueError, RecursionError):
                problems.append(f"{label}: is not a JSON object")
                line = {}  # so that the later lines have the expected numbers
            if line.get("previous") != head:
                problems.append(
                    f"{label}: does not follow the line before it: "
                    "a line was changed, removed or inserted"
                )
            if line.get("number") != number:
                problems.append(f"{label}: states {line.get('number')} as its number")
            head = hashlib.sha256(text).hexdigest()
            lines.append(line)
        is_being_written = len(heads) == 2  # of the last line and of the line being written
        if incomplete_line and not is_being_written:
            problems.append(f"{self.file.name}: its last line is cut off")
        is_new = not lines and not heads
        if head not in heads and not is_new:
            problems.append(
                f"{self.head_file.name}: does not contain the hash of the last line: "
                "the last lines were changed or removed"
            )
        return History(tuple(lines), tuple(problems), head)

    def intact_history(self) -> History:
        """Return the history of an intact ledger.

        Raises PrerequisiteError if the ledger was changed or cannot be read.
        """
        history = self.read()
        if history.problems:
            raise PrerequisiteError(
                f"{self.file}: was changed outside of eval-factory; no line can be added\n"
                + "\n".join(f"  {problem}" for problem in history.problems[:5])
                + f"\n  see 'eval-factory monitor verify {self.folder}'; "
                "restore the file from a copy"
            )
        return history

    def append(self, kind: str, **fields: Any) -> Line:
        """Append a line and return it; wait if another process is writing a line.

        Raises:
            PrerequisiteError: The ledger was changed, or it cannot be written.
        """
        with self._locked(".ledger.lock"):
            history = self.intact_history()
            now = datetime.now(timezone.utc).strftime(UTC_FORMAT)
            line = {
                "number": len(history.lines) + 1,
                "kind": kind,
                "at": now,
                "previous": history.head,
                **fields,
            }
            text = json_line(line).encode()
            head = hashlib.sha256(text).hexdigest()
            self._write_heads(history.head, head)
            complete, newline, _ = _content(self.file).rpartition(b"\n")
            with self.file.open("ab") as file:
                # Remove an incomplete line, which a killed process may have left.
                file.truncate(len(complete) + len(newline))
                file.write(text + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._write_heads(head)
        return line

    def record_not_made(self, begun: Line, reason: str) -> None:
        """Write a line which says that a started look was not made."""
        self.append(
            NOT_MADE, epoch=begun["epoch"], panel=begun["panel"], look=begun["look"], reason=reason
        )

    def lock_panel(self, say: Callable[[str], object]) -> AbstractContextManager[None]:
        """Lock the panel for one look or change; another look or change waits for its end.

        Args:
            say: prints a message if this process has to wait.
        """
        message = f"{self.folder}: another look is being made: waiting for its end"
        return self._locked(".look.lock", lambda: say(message))

    @contextmanager
    def _locked(self, name: str, on_wait: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Lock the file with this name; call `on_wait` if another process has locked the file.

        Raises PrerequisiteError if the panel's folder cannot be written.
        """
        from filelock import FileLock, Timeout  # imported here, because filelock loads asyncio

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            keep_from_git(self.folder, is_ours=self.file.exists())
            lock = FileLock(self.folder / name, mode=PRIVATE)
            try:
                lock.acquire(timeout=0)  # do not wait
            except Timeout:
                on_wait()
                lock.acquire(poll_interval=0.2)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write to the panel's folder {self.folder}: {error.strerror or error}\n"
                "  choose another folder with monitor.output_dir"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _write_heads(self, *heads: str) -> None:
        """Replace the content of `ledger.sha256` by these hashes."""
        write_atomic(self.head_file, "".join(f"{head}\n" for head in heads))


def _content(path: Path) -> bytes:
    """Return the content of a file; empty if the file does not exist.

    Raises PrerequisiteError if the file cannot be read.
    """
    try:
        with open_regular(path, path.parent) as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error.strerror or error}") from error
