"""Reads and writes cache.db: the answer to every request, and the journal of attempts.

The file is an SQLite database in WAL mode. It stores requests and answers as JSON, and nothing that
Python would unpickle.

A caller that saves an answer waits until the answer is committed: every answer that a caller has
seen is on disk. One commit writes everything that waits, so a hundred callers share a transaction.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.endpoint import bridge, in_flight, openai_answers, openai_api
from eval_factory.endpoint.in_flight import RequestsInFlight

Statement = tuple[str, tuple[Any, ...]]  # an SQL statement, and the values of its placeholders
ChangesOfEndpoint = tuple[str, Mapping[str, openai_api.Change]]
"""The URL of an endpoint, and the change of each parameter that the endpoint refuses unchanged."""


class _Job:
    """The statements of one caller, and the outcome of writing them."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.statements = statements
        self.is_done = False
        self.error: Exception | None = sqlite3.OperationalError(
            "the thread that was to write this answer was interrupted"
        )
        """The error of a job that was never written; writing replaces the error."""


class GroupCommit:
    """A writer that puts the statements of many threads into one transaction; thread-safe."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting = deque[_Job]()
        self._writing = threading.Lock()

    def commit(self, statements: Sequence[Statement]) -> None:
        """Write statements, and return when they are committed.

        The thread that holds the lock also writes the statements of the threads that wait for the
        lock. These threads then get the lock one after another.

        Raises:
            Exception: SQLite's error if these statements cannot be written.
        """
        job = _Job(statements)
        self._waiting.append(job)
        # Other requests of the loop may add their statements first: one transaction writes them.
        bridge.give_way()
        with self._writing:
            if not job.is_done:
                self._write_waiting_jobs()
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Close the connection, after the current transaction."""
        with self._writing:
            self._connection.close()

    def _write_waiting_jobs(self) -> None:
        """Write all waiting jobs in one transaction.

        If the transaction fails, write each job in its own transaction: a job that cannot be
        written must not prevent the others.
        """
        # Count first: other threads may append further jobs now, which wait for the next commit.
        jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._write(jobs)
        except Exception as error:
            # Do not try each job if another program has locked the file: each try would wait for
            # the timeout of 30 seconds.
            is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            for job in jobs:
                job.is_done = True
                job.error = error
                if not is_locked:
                    try:
                        self._write([job])
                    except Exception as job_error:
                        job.error = job_error

    def _write(self, jobs: list[_Job]) -> None:
        """Write jobs in one transaction, and mark the jobs as done."""
        try:
            with self._connection:
                for statement, values in chain.from_iterable(job.statements for job in jobs):
                    self._connection.execute(statement, values)
        except BaseException:
            # Python 3.10 leaves the transaction open if the commit fails.
            self._connection.rollback()
            raise
        for job in jobs:
            job.is_done = True
            job.error = None


APPLICATION_ID = 0x45464143  # 'EFAC' in ASCII: marks the database as one of eval-factory
_SCHEMA_VERSION = 1

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
CREATE TABLE IF NOT EXISTS responses (
    key TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    model_id TEXT NOT NULL,
    request TEXT NOT NULL,      -- JSON body
    response TEXT NOT NULL,     -- JSON body
    created REAL NOT NULL,      -- seconds since the epoch
    latency_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    role TEXT NOT NULL,
    attempt INTEGER NOT NULL,   -- 0: answered from the cache; 1: first try
    -- answered, cached, retried, failed, refused, interrupted: see `AttemptState`
    -- unusable, unscorable: the reason why a stored answer was archived
    outcome TEXT NOT NULL,
    status INTEGER,             -- HTTP status, where there was one
    error TEXT,                 -- if the outcome is `answered`: how the request was changed
    started REAL NOT NULL,
    latency_s REAL NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER
);
CREATE TABLE IF NOT EXISTS request_changes (  -- without them, requests were refused
    url TEXT NOT NULL,
    model_id TEXT NOT NULL,
    changes TEXT NOT NULL,      -- JSON: see `_changes_as_json`
    PRIMARY KEY (url, model_id, changes)
);
"""

_CREATE_SERVERS_TABLE = (
    "CREATE TABLE IF NOT EXISTS answered_at (key TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL)"
)
"""The table of the server that gave each answer; only runs that ask several servers have it."""

_CREATE_ORIGIN_TABLE = """
CREATE TABLE IF NOT EXISTS answers_of (
    run_identity TEXT NOT NULL,
    started_at TEXT NOT NULL,
    attempts INTEGER NOT NULL
)
"""
"""The table that names the run whose answers were copied; only a run with copied answers has it.

Its column `attempts` is the id of the last journal row that was copied.
"""
_ORIGIN_IF_ALL_COPIED = """
SELECT * FROM answers_of
WHERE NOT EXISTS (
    SELECT 1 FROM attempts
    WHERE id > answers_of.attempts AND role = :role AND outcome = 'answered'
)
"""

_PRAGMAS = ("application_id", "user_version")
_TABLES = frozenset({"responses", "attempts", "request_changes"})


@dataclass(frozen=True)
class Attempt:
    """A row of the journal; the fields are the columns of `attempts` after `run_id`, in order."""

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
    """A request and its answer; the fields are the columns of `responses`, in their order."""

    key: str
    role: str
    model_id: str
    request: Any
    """The parsed JSON body, or its text if Python cannot parse the body: a body may be nested too
    deeply, or hold numbers that are too long.
    """
    response: Any
    """The parsed JSON body, or its text, as for `request`."""
    created: float
    latency_s: float

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """(Tokens of the prompt, tokens of the completion) by the endpoint; None: not counted."""
        return openai_answers.token_counts_of(self.response)


class StoredResponse(NamedTuple):
    """The response to a request, as `ResponseCache.get` returns it."""

    response: dict[str, Any]  # the parsed JSON body
    latency_s: float
    created: float  # in seconds since the epoch


@dataclass(frozen=True)
class Origin:
    """The run whose answers were copied; the fields are the columns of `answers_of`, in order."""

    run_identity: str
    started_at: str
    attempts: int  # the id of the last journal row that was copied


class DamagedCacheError(Exception):
    """The file was not written by this version of eval-factory, or is damaged."""


class ResponseCache:
    """The cache of a run: answers by the keys of their requests, and the journal of attempts.

    Any thread may read and write. The lock of the run's folder keeps other processes out.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        """Open the database, create it if necessary, and note interrupted requests.

        Args:
            path: the run's cache.db.
            run_id: the id of the helm-run, for the journal's new rows.

        Raises:
            DamagedCacheError: the file is damaged, or was not written by this version.
        """
        self.path = path
        self._run_id = run_id
        self._readers = threading.local()
        create_or_check(path)
        note_interrupted(path)
        self.in_flight = RequestsInFlight(path, run_id)
        writer = _connect(path, check_same_thread=False)
        self._keys = {row[0] for row in writer.execute("SELECT key FROM responses")}
        self._writer = GroupCommit(writer)

    def holds(self, key: str) -> bool:
        """Return True if the answer to the request with this key is stored."""
        return key in self._keys

    def get(self, key: str) -> StoredResponse | None:
        """Return the response that is stored under this key; None if there is none.

        Raises:
            UnusableAnswer: the stored response is not JSON; older versions stored such responses.
        """
        if key not in self._keys:
            return None
        query = "SELECT response, latency_s, created FROM responses WHERE key = ?"
        row = self._reader().execute(query, (key,)).fetchone()
        if row is None:  # another thread has just archived the answer
            return None
        response, latency_s, created = row
        return StoredResponse(openai_answers.parse_strictly(response), latency_s, created)

    def failures(self) -> dict[str, str]:
        """Return the last error of each request that ever failed, by the request's key."""
        return dict(
            self._reader().execute(
                "SELECT key, error FROM attempts WHERE outcome = 'failed' ORDER BY id"
            )
        )

    def has_answers(self, role: str, model_id: str) -> bool:
        """Return True if an answer of this model in this role is stored."""
        row = self._reader().execute(
            "SELECT 1 FROM responses WHERE role = ? AND model_id = ?", (role, model_id)
        )
        return row.fetchone() is not None

    def answered_in_this_run(self, role: str) -> set[str]:
        """Return the keys of the requests that were answered so far in this run."""
        rows = self._reader().execute(
            "SELECT key FROM attempts WHERE run_id = ? AND role = ? AND outcome = 'answered'",
            (self._run_id, role),
        )
        return {key for (key,) in rows}

    def save(
        self,
        answer: Answer,
        attempt: Attempt,
        changes: ChangesOfEndpoint | None = None,
        server: str | None = None,
    ) -> None:
        """Store an answer, and return when it is committed.

        Args:
            answer: the answer, with its request.
            attempt: the journal row of the attempt that brought the answer.
            changes: the changes with which the request was answered; None: it was not changed.
            server: the URL of the server that answered; None if the endpoint has a single server.
        """
        columns = {
            **vars(answer),
            "request": _as_json(answer.request, openai_api.json_text),
            "response": _as_json(answer.response, _spaced_json),
        }
        insert = "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)"
        statements = [(insert, tuple(columns.values())), self._journal_statement(attempt)]
        if changes is not None:
            url, changes_by_parameter = changes
            row = (url, answer.model_id, _changes_as_json(changes_by_parameter))
            statements.append(("INSERT OR IGNORE INTO request_changes VALUES (?, ?, ?)", row))
        if server is not None:
            statements += [
                (_CREATE_SERVERS_TABLE, ()),
                ("INSERT OR REPLACE INTO answered_at VALUES (?, ?)", (answer.key, server)),
            ]
        self._writer.commit(statements)
        self._keys.add(answer.key)

    def journal(self, attempt: Attempt) -> None:
        """Write the journal row of an attempt that brought no new answer."""
        self._writer.commit([self._journal_statement(attempt)])

    def archive_answer(self, key: str, attempt: Attempt) -> None:
        """Move an answer to a key that no request has, so that the request is sent again.

        `attempt` is the journal row with the reason.
        """
        rename = ("UPDATE responses SET key = key || '#' || created WHERE key = ?", (key,))
        self._writer.commit([rename, self._journal_statement(attempt)])
        self._keys.discard(key)

    def close(self) -> None:
        """Close the connection that writes."""
        self._writer.close()

    def _journal_statement(self, attempt: Attempt) -> Statement:
        """Return the statement that writes a journal row."""
        values = (self._run_id, *vars(attempt).values())
        return "INSERT INTO attempts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's own connection for reading."""
        if not hasattr(self._readers, "connection"):
            self._readers.connection = _connect(self.path)
        connection: sqlite3.Connection = self._readers.connection
        return connection


def _changes_as_json(changes: Mapping[str, openai_api.Change]) -> str:
    """Return the changes as a JSON object with an entry for each changed field.

    The entry is the field's new name, or an object with its new `value`, or null if the field was
    left out.
    """
    plain: dict[str, Any] = {}
    for name, change in changes.items():
        plain[name] = change
        if isinstance(change, openai_api.SetTo):
            plain[name] = vars(change)
    return json.dumps(plain, sort_keys=True)


def _changes_of(text: str) -> dict[str, openai_api.Change]:
    """Return the changes that `_changes_as_json` wrote."""
    changes: dict[str, openai_api.Change] = {}
    for name, plain in json.loads(text).items():
        changes[name] = plain
        if isinstance(plain, dict):
            changes[name] = openai_api.SetTo(**plain)
    return changes


# `json.dumps` would make an encoder for each call, which is slow.
_spaced_json = json.JSONEncoder(ensure_ascii=False).encode


def _as_json(value: Any, encode: Callable[[Any], str]) -> str:
    """Return the JSON of a value as `encode` writes it, or with escapes if UTF-8 cannot hold it."""
    text = encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # The text holds half a surrogate pair, which a file can only hold as an escape.
        return json.dumps(value)
    return text


def _connect(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a connection in WAL mode; `check_same_thread` as in `sqlite3.connect`."""
    connection = sqlite3.connect(path, timeout=30, check_same_thread=check_same_thread)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def create_or_check(path: Path) -> None:
    """Create the database, or check the existing database; let only the user read the file.

    Raises:
        DamagedCacheError: the file is damaged, is not a database, or was written by another
            program or another version.
    """
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            application, version = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS
            )
            tables = set()
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                tables.add(row[0])
            if tables and (application, version) != (APPLICATION_ID, _SCHEMA_VERSION):
                raise DamagedCacheError("the file was not written by this version of eval-factory")
            if tables and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise DamagedCacheError("the file is damaged")
            # A complete database must not change by a byte: its checksum is part of a result.
            if not tables >= _TABLES:
                connection.executescript(_SCHEMA)
            connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:  # such as a locked file; this does not mean damage
        raise
    except sqlite3.DatabaseError as error:
        raise DamagedCacheError("the file is not a database") from error
    path.chmod(0o600)


_INTERRUPTED = """
INSERT INTO attempts
SELECT NULL, :run_id, :key, :role, :attempt, 'interrupted', NULL, NULL, :started, 0.0, NULL, NULL
WHERE NOT EXISTS (SELECT 1 FROM attempts WHERE role = :role AND started = :started)
"""
"""The SQL that writes an interrupted request, unless the journal already has its attempt."""


def note_interrupted(path: Path) -> None:
    """Note in the journal the requests that an ended process had in flight.

    The caller holds the lock of the folder, so no other process sends requests from there.
    """
    interrupted = in_flight.interrupted_requests(path)
    if interrupted and path.is_file():
        # The second `connection` is a context manager that commits at the end of the block.
        with closing(_connect(path)) as connection, connection:
            connection.executemany(_INTERRUPTED, [vars(sent) for sent in interrupted])
    in_flight.file_of(path).unlink(missing_ok=True)


def read_changes(path: Path, url: str, model_id: str) -> list[dict[str, openai_api.Change]]:
    """Return each set of changes with which this endpoint and model answered a request."""
    query = (
        "SELECT changes FROM request_changes WHERE url = :url AND model_id = :model_id ORDER BY "
        "rowid"
    )
    changes: list[dict[str, openai_api.Change]] = []
    for row in read_rows(path, query, url=url, model_id=model_id):
        changes.append(_changes_of(row["changes"]))
    return changes


def attempts_after(path: Path, last_id: int, run_id: str, max_count: int) -> list[dict[str, Any]]:
    """Return further attempts of a run that may still be running in another process.

    Each row holds the columns of `attempts` and the `response` of a new answer. Answers from the
    cache are left out. The list is empty if the database cannot be read now.

    Args:
        path: the run's cache.db.
        last_id: the id of the last attempt that was read before; 0: no attempt was read.
        run_id: the id of the helm-run.
        max_count: the maximum number of attempts to return; the earliest are returned.
    """
    # The time of an answer (`created`) is the time of its attempt (`started`). The second key of
    # the join is the key of an archived answer.
    query = """
        SELECT attempts.*, response FROM attempts LEFT JOIN responses
        ON outcome = 'answered' AND created = started
        AND responses.key IN (attempts.key, attempts.key || '#' || started)
        WHERE id > ? AND run_id = ? AND attempt > 0 ORDER BY id LIMIT ?
    """
    # Open the file for reading only: a connection that can write would disturb the process that
    # creates the file.
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=0.1)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, (last_id, run_id, max_count))]
    except sqlite3.Error:
        return []


def read_rows(
    path: Path, query: str, second_query: str | None = None, **values: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query; yield nothing if the file does not exist.

    Args:
        path: the run's cache.db.
        query: the SQL, with a placeholder `:name` for each of the values.
        second_query: is run with each row of the first query as its values. Its first row is
            yielded instead of the row of the first query. Both queries see the same state of the
            database.
        **values: the value of each placeholder.
    """
    if not path.is_file():
        return
    with closing(_connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        for row in connection.execute(query, values):
            if second_query is not None:
                row = connection.execute(second_query, row).fetchone()
            yield dict(row)


def read_origin(path: Path) -> Origin | None:
    """Return the origin of copied answers.

    Return None if the answers were not copied, or if the model has answered more requests since.
    """
    if not _has_origin_table(path):
        return None
    rows = read_rows(path, _ORIGIN_IF_ALL_COPIED, role=MODEL_ROLE)
    return next((Origin(**row) for row in rows), None)


def last_copied_attempt(path: Path) -> int:
    """Return the id of the last journal row that was copied from another run; 0 if none was."""
    if not _has_origin_table(path):
        return 0
    rows = read_rows(path, "SELECT attempts FROM answers_of")
    return next((int(row["attempts"]) for row in rows), 0)


def _has_origin_table(path: Path) -> bool:
    """Return True if answers were ever copied into this cache.db."""
    tables = read_rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'answers_of'")
    return next(tables, None) is not None


def write_origin(path: Path, run_identity: str, started_at: str) -> None:
    """Write into a copied cache.db which run its answers are from.

    Args:
        path: the copied cache.db.
        run_identity: the identity of the run whose answers were copied.
        started_at: the time at which that run was started, in ISO 8601, UTC.
    """
    with closing(_connect(path)) as connection, connection:  # commits, then closes
        connection.execute(_CREATE_ORIGIN_TABLE)
        connection.execute("DELETE FROM answers_of")
        insert = "INSERT INTO answers_of SELECT ?, ?, COALESCE(MAX(id), 0) FROM attempts"
        connection.execute(insert, (run_identity, started_at))
