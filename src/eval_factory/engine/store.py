"""cache.db: every answered request, and the journal of attempts. SQLite in WAL mode, JSON only, nothing unpickled.

One thread writes. Whoever saves waits for the commit, and a commit takes all that is waiting: an answer that a caller
has seen is on disk, and a hundred callers share one sync.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APPLICATION_ID = 0x45464143
"""Marks the file as ours ('EFAC')."""
SCHEMA_VERSION = 1

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE IF NOT EXISTS responses (
    key TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    model_id TEXT NOT NULL,
    request TEXT NOT NULL,      -- JSON body
    response TEXT NOT NULL,     -- JSON body
    created REAL NOT NULL,      -- seconds since the epoch
    latency_s REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    role TEXT NOT NULL,
    attempt INTEGER NOT NULL,   -- 0: answered from the cache; 1: first try
    outcome TEXT NOT NULL,      -- answered, cached, retried, failed
    status INTEGER,             -- HTTP status, where there was one
    error TEXT,                 -- of an answered attempt: how its request had to be changed
    started REAL NOT NULL,
    latency_s REAL NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER
);
CREATE INDEX IF NOT EXISTS attempts_by_key ON attempts (key);
"""


@dataclass(frozen=True)
class Attempt:
    """One line of the journal."""

    key: str
    role: str
    attempt: int
    outcome: str
    status: int | None
    error: str | None
    started: float
    latency_s: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Answer:
    """One answered request as it is kept."""

    key: str
    role: str
    model_id: str
    request: dict[str, Any]
    response: dict[str, Any]
    created: float
    latency_s: float


class DamagedStoreError(Exception):
    """The file is no cache of ours, or cannot be read as one."""


@dataclass
class _Job:
    statements: list[tuple[str, tuple[Any, ...]]]
    done: threading.Event
    error: BaseException | None = None


class ResponseStore:
    """Reads from any thread, writes through one."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self._run_id = run_id
        self._local = threading.local()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        create_or_check(path)
        self._writer = threading.Thread(target=self._write_forever, name="cache-writer", daemon=True)
        self._writer.start()

    def get(self, key: str) -> tuple[dict[str, Any], float, float] | None:
        """(response, latency in seconds, time of creation) of an answered request."""
        row = self._reader().execute(
            "SELECT response, latency_s, created FROM responses WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        return json.loads(row[0]), row[1], row[2]

    def save(self, answer: Answer, attempt: Attempt) -> None:
        """Keep an answer; returns when it is committed."""
        statement = (
            "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                answer.key,
                answer.role,
                answer.model_id,
                json.dumps(answer.request, ensure_ascii=False),
                json.dumps(answer.response, ensure_ascii=False),
                answer.created,
                answer.latency_s,
            ),
        )
        self._commit([statement, self._attempt(attempt)])

    def journal(self, attempt: Attempt) -> None:
        """Note an attempt that brought no new answer."""
        self._commit([self._attempt(attempt)])

    def close(self) -> None:
        self._jobs.put(None)
        self._writer.join()

    def _attempt(self, a: Attempt) -> tuple[str, tuple[Any, ...]]:
        values = (
            self._run_id, a.key, a.role, a.attempt, a.outcome, a.status, a.error, a.started, a.latency_s,
            a.prompt_tokens, a.completion_tokens,
        )  # fmt: skip
        return "INSERT INTO attempts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values

    def _commit(self, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        job = _Job(statements, threading.Event())
        self._jobs.put(job)
        job.done.wait()
        if job.error is not None:
            raise job.error

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _connect(self.path)
        return connection

    def _write_forever(self) -> None:
        connection = _connect(self.path)
        while True:
            batch = [self._jobs.get()]
            while not self._jobs.empty():
                batch.append(self._jobs.get())
            jobs = [job for job in batch if job is not None]
            try:
                with connection:
                    for job in jobs:
                        for statement, values in job.statements:
                            connection.execute(statement, values)
            except sqlite3.Error as error:
                for job in jobs:
                    job.error = error
            for job in jobs:
                job.done.set()
            if None in batch:
                connection.close()
                return


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def create_or_check(path: Path) -> None:
    """Make the file, or make sure that it is ours.

    Raises:
        DamagedStoreError: it is another program's database, another version's, or no database.
    """
    try:
        connection = sqlite3.connect(path, timeout=30)
        try:
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and (owner, version) != (APPLICATION_ID, SCHEMA_VERSION):
                raise DamagedStoreError("the file was not written by this version of eval-factory")
            if tables and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise DamagedStoreError("the file is damaged")
            connection.executescript(_SCHEMA)
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise DamagedStoreError("the file is not a database") from error
    path.chmod(0o600)


def set_aside(path: Path) -> Path:
    """Rename a file that is not our cache, so that it is neither used nor lost."""
    target = path.with_name(f"{path.name}.set-aside-{time.strftime('%Y%m%d-%H%M%S')}")
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(target.with_name(target.name + suffix))
    return target


def read_attempts(path: Path) -> list[dict[str, Any]]:
    """Every attempt in the order of the journal, as mappings of column to value."""
    return list(_rows(path, "SELECT * FROM attempts ORDER BY id"))


def read_answers(path: Path) -> Iterator[dict[str, Any]]:
    """Every kept answer, oldest first; `request` and `response` are JSON text."""
    return _rows(path, "SELECT * FROM responses ORDER BY created, key")


def _rows(path: Path, query: str) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    connection = _connect(path)
    connection.row_factory = sqlite3.Row
    try:
        for row in connection.execute(query):
            yield dict(row)
    finally:
        connection.close()
