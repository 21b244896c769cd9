"""Stores batches.db: the requests that wait for a batch, the sent batches, and their replies.

Each step is on disk before the next step begins, so that nothing is paid twice, even if a process
is killed at any time. An intent (a note that a batch is about to be sent) is written before the
batch's file is uploaded. The file's id is written before a batch is made from the file. A batch
counts as sent when its id is written. Replies stay until the response cache has them.

An invocation is one start of eval-factory in the output folder. It starts helm-run once, and again
each time that batches have brought replies.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.enums import TextEnum


class BatchState(TextEnum):
    """The state of a batch in the ledger. The last three states are final."""

    INTENDED = "intended"  # nothing was sent yet
    UPLOADED = "uploaded"  # the provider has the batch's file
    CREATING = "creating"  # the batch was requested; the provider may or may not have made it
    SENT = "sent"  # the provider has made the batch
    ENDED = "ended"  # the replies are in the ledger
    RESENT = "resent"  # the requests of the batch without a reply go into a new batch
    # the provider refused the batch for its size; the requests go into smaller batches
    SPLIT = "split"


OPEN_STATES = (BatchState.INTENDED, BatchState.UPLOADED, BatchState.CREATING, BatchState.SENT)


@dataclass(frozen=True)
class BatchLine:
    """A request that goes by batch, as one line of the batch's file.

    The fields are columns of the table `lines`.
    """

    id: int
    key: str
    """The key of the request's answer in the response cache."""
    role: str
    body: str
    """The JSON of the request, with pictures, but without values of the user's secret variables."""
    prompt_tokens: int
    """The estimated number of tokens of the prompt."""
    output_tokens: int
    """The maximum number of tokens of the answer."""


@dataclass(frozen=True)
class StoredReply:
    """The reply that a batch brought to a request."""

    line_id: int
    """The `id` of the request's `BatchLine`."""
    status: int | None
    """The HTTP status of the answer; None if the batch ended without an answer."""
    data: str
    """The body of the answer, or the reason why there is no answer."""
    waited_s: float
    """The seconds from the intent of the batch to the end of the batch."""
    is_consumed: bool
    """True if this invocation has already written the reply to journal and response cache."""


@dataclass(frozen=True)
class Batch:
    """A batch; the fields are the columns of the table `batches`."""

    intent: str
    """eval-factory's own name of the batch, which the provider stores in the batch's metadata."""
    number: int
    """The number of the batch in this folder, from 1."""
    run_identity: str
    role: str
    state: BatchState
    requests: int
    """The number of requests in the batch."""
    sha256: str
    """The hash of the batch's file."""
    file_id: str | None
    batch_id: str | None
    created: float
    """The time when the intent was written, in seconds since the epoch."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    intent TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    run_identity TEXT NOT NULL,
    role TEXT NOT NULL,
    state TEXT NOT NULL,
    requests INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    file_id TEXT,
    batch_id TEXT,
    created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS lines (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    role TEXT NOT NULL,
    body TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    intent TEXT,                -- null: the request waits for a batch
    -- the time of the reply, in seconds since the epoch; null: the batch has not ended yet
    came REAL,
    waited_s REAL,
    status INTEGER,
    data TEXT,
    -- 0: not consumed; 1: consumed by this invocation; 2: consumed by an earlier invocation
    consumed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS lines_by_key ON lines (key);
CREATE INDEX IF NOT EXISTS lines_by_intent ON lines (intent);
"""
# the columns in the order of the fields of `BatchLine` and of `Batch`
_LINE = "id, key, role, body, prompt_tokens, output_tokens"
_BATCH = "intent, number, run_identity, role, state, requests, sha256, file_id, batch_id, created"


class BatchLedger:
    """The ledger of an output folder; thread-safe. The folder's lock keeps other runs out.

    A block `with self._lock, self._connection:` is one transaction.
    """

    def __init__(self, path: Path) -> None:
        """Open the database, and create it first if the file does not exist."""
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        path.chmod(0o600)
        self._connection.execute("PRAGMA journal_mode = DELETE")
        # A transaction that has ended is on the disk, even after a loss of power.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def add_waiting(self, requests: Iterable[Mapping[str, Any]]) -> None:
        """Write requests that wait for a batch.

        A request is not written again if it waits already, or if its batch has not ended yet.

        Args:
            requests: the requests, each with the `key`, `role`, `body`, `prompt_tokens` and
                `output_tokens` of a `BatchLine`.
        """
        insert = (
            "INSERT INTO lines (key, role, body, prompt_tokens, output_tokens) "
            "SELECT :key, :role, :body, :prompt_tokens, :output_tokens "
            "WHERE NOT EXISTS (SELECT 1 FROM lines WHERE key = :key AND came IS NULL)"
        )
        with self._lock, self._connection:
            self._connection.executemany(insert, list(requests))

    def replies(self, key: str) -> list[StoredReply]:
        """Return the replies to a request, in the order of its batches.

        A batch that ended without an answer counts as a reply. Replies that an earlier invocation
        consumed are left out.
        """
        query = (
            "SELECT id, status, data, waited_s, consumed FROM lines "
            "WHERE key = ? AND came IS NOT NULL AND consumed < 2 ORDER BY id"
        )
        replies: list[StoredReply] = []
        for line_id, status, data, waited_s, consumed in self._rows(query, key):
            # `consumed` is 0 or 1 here: the query leaves out 2.
            replies.append(StoredReply(line_id, status, data, waited_s, bool(consumed)))
        return replies

    def consume(self, line_id: int) -> None:
        """Note that the journal and the response cache now have the reply to a line."""
        self._write("UPDATE lines SET consumed = 1 WHERE id = ? AND consumed = 0", line_id)

    def begin_invocation(self) -> None:
        """Make `replies` leave out the replies that earlier invocations consumed.

        Requests that failed in an earlier invocation are then sent again.
        """
        self._write("UPDATE lines SET consumed = 2 WHERE consumed = 1")

    def waiting(self) -> list[BatchLine]:
        """Return the requests that wait for a batch, in the order in which they were written."""
        query = f"SELECT {_LINE} FROM lines WHERE intent IS NULL ORDER BY id"  # noqa: S608
        return [BatchLine(*row) for row in self._rows(query)]

    def lines_of(self, intent: str) -> list[BatchLine]:
        """Return the requests of a batch, in the order of its file."""
        query = f"SELECT {_LINE} FROM lines WHERE intent = ? ORDER BY id"  # noqa: S608
        return [BatchLine(*row) for row in self._rows(query, intent)]

    def forget_waiting(self) -> None:
        """Delete the requests that wait for a batch; helm-run makes them again if needed."""
        self._write("DELETE FROM lines WHERE intent IS NULL")

    def intend(
        self, role: str, lines: Sequence[BatchLine], sha256: str, *, run_identity: str = ""
    ) -> Batch:
        """Write the intent to send these requests as one batch, and return the batch.

        Args:
            role: the role of the requests.
            lines: the requests.
            sha256: the hash of the batch's file.
            run_identity: the identity of the run that sends the batch.
        """
        intent = uuid.uuid4().hex
        with self._lock, self._connection:
            (number,) = self._connection.execute("SELECT count(*) + 1 FROM batches").fetchone()
            batch = Batch(
                intent=intent,
                number=number,
                run_identity=run_identity,
                role=role,
                state=BatchState.INTENDED,
                requests=len(lines),
                sha256=sha256,
                file_id=None,
                batch_id=None,
                created=time.time(),
            )
            columns = {**vars(batch), "state": batch.state.value}
            names = ", ".join(f":{name}" for name in columns)
            self._connection.execute(f"INSERT INTO batches VALUES ({names})", columns)  # noqa: S608
            self._connection.executemany(
                "UPDATE lines SET intent = ? WHERE id = ?", [(intent, line.id) for line in lines]
            )
        return batch

    def uploaded(self, intent: str, file_id: str) -> None:
        """Write that the batch's file was uploaded."""
        self._set_state(intent, BatchState.UPLOADED, file_id=file_id)

    def creating(self, intent: str) -> None:
        """Write that the batch is about to be made from its file."""
        self._set_state(intent, BatchState.CREATING)

    def sent(self, intent: str, batch_id: str) -> None:
        """Write that the provider has made the batch."""
        self._set_state(intent, BatchState.SENT, batch_id=batch_id)

    def to_be_sent_again(self, intent: str, state: BatchState = BatchState.RESENT) -> None:
        """Put the batch into a final state; its unanswered requests wait for a new batch.

        Args:
            intent: the intent of the batch.
            state: `RESENT` or `SPLIT`.
        """
        with self._lock, self._connection:
            self._connection.execute(
                "UPDATE lines SET intent = NULL WHERE intent = ? AND came IS NULL", (intent,)
            )
            self._connection.execute(
                "UPDATE batches SET state = ? WHERE intent = ?", (state.value, intent)
            )

    def end(self, intent: str, replies: Mapping[str, tuple[int, str]], reason: str) -> None:
        """Store the replies of a batch, in one transaction.

        Args:
            intent: the intent of the batch.
            replies: a dict from the key of a request to the (HTTP status, body) of its answer.
            reason: the reason why the other requests of the batch have no answer.
        """
        now = time.time()
        update = (
            "UPDATE lines SET came = ?, waited_s = ?, status = ?, data = ? "
            "WHERE intent = ? AND key = ? AND came IS NULL"
        )
        with self._lock, self._connection:
            (created,) = self._connection.execute(
                "SELECT created FROM batches WHERE intent = ?", (intent,)
            ).fetchone()
            waited_s = max(0.0, now - created)  # the clock may have been set back
            for key, (status, data) in replies.items():
                self._connection.execute(update, (now, waited_s, status, data, intent, key))
            self._connection.execute(
                "UPDATE lines SET came = ?, waited_s = ?, data = ? "
                "WHERE intent = ? AND came IS NULL",
                (now, waited_s, reason, intent),
            )
            self._connection.execute(
                "UPDATE batches SET state = ? WHERE intent = ?", (BatchState.ENDED.value, intent)
            )

    def open_batches(self) -> list[Batch]:
        """Return the batches that are not in a final state, the oldest first."""
        query = f"SELECT {_BATCH} FROM batches ORDER BY number"  # noqa: S608
        batches = [_batch(row) for row in self._rows(query)]
        still_open: list[Batch] = []
        for batch in batches:
            if batch.state in OPEN_STATES:
                still_open.append(batch)
        return still_open

    def batch(self, intent: str) -> Batch:
        """Return the batch of an intent."""
        query = f"SELECT {_BATCH} FROM batches WHERE intent = ?"  # noqa: S608
        return _batch(self._rows(query, intent)[0])

    def _set_state(
        self,
        intent: str,
        state: BatchState,
        *,
        file_id: str | None = None,
        batch_id: str | None = None,
    ) -> None:
        """Write a new state of a batch; an id that is None stays as it was."""
        self._write(
            "UPDATE batches SET state = ?, file_id = coalesce(?, file_id), "
            "batch_id = coalesce(?, batch_id) WHERE intent = ?",
            state.value,
            file_id,
            batch_id,
            intent,
        )

    def _write(self, statement: str, *values: object) -> None:
        """Execute a statement in a transaction."""
        with self._lock, self._connection:
            self._connection.execute(statement, values)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._lock:
            return self._connection.execute(query, values).fetchall()


def _batch(row: Sequence[Any]) -> Batch:
    """Return the batch in a row of the table `batches`."""
    intent, number, run_identity, role, state, *rest = row
    return Batch(intent, number, run_identity, role, BatchState(state), *rest)


def has_open_batches(path: Path) -> bool:
    """Return True if a ledger has open batches that may still cost money.

    The provider may already have the files of these batches. If the ledger's file does not exist,
    return False and do not create the file.
    """
    if not path.is_file():
        return False
    ledger = BatchLedger(path)
    try:
        return any(batch.state is not BatchState.INTENDED for batch in ledger.open_batches())
    finally:
        ledger.close()


def line_of_file(line: BatchLine, address: str, secret_fields: Mapping[str, Any]) -> str:
    """Return a line of a batch's file, in the form of OpenAI's batch API.

    Args:
        line: the request.
        address: the path to which the provider sends the request, such as /v1/chat/completions.
        secret_fields: the secret fields of every request. They are sent, but never stored.
    """
    body = {**json.loads(line.body), **secret_fields}
    return json.dumps(
        {"custom_id": line.key, "method": "POST", "url": address, "body": body}, ensure_ascii=False
    )
