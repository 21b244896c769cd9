"""Executes SQL queries for `executed_queries.py`, in a process that can be killed.

This file is a program. For each line of JSON that it reads, it writes a line of JSON. A single
instruction of SQLite may take minutes, and cannot be interrupted. Queries therefore run in a
process of their own. The interpreter starts this file by its path. The file imports only the
standard library and `core/this_process.py`.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TextIO

TIME_LIMIT_S = 10.0  # the time limit of a query, in seconds
MAX_RESULT = 2_000_000
"""The maximum size of all rows together, in bytes of HELM's output file. HELM writes each value on
a line of its own.
"""
# The bytes of HELM's output file for each value and each row, in addition to the text of a value.
LINE_OVERHEAD = 32
MAX_VALUE = 10_000_000  # the maximum size of one text or blob, in bytes
MAX_PATTERN = 1_000  # the maximum size of a pattern of LIKE or GLOB, in bytes
MAX_MESSAGE = 500  # the maximum length of SQLite's error message, in characters
SQLITE_MEMORY = 512_000_000  # the maximum memory of SQLite, in bytes
PROCESS_MEMORY = 1_000_000_000  # the maximum address space of this process, in bytes

READY = b"ready\n"  # the line that this program writes before it reads the first query

ROWS = "rows"
FAILED = "failed"
BROKEN = "broken"
TOO_LARGE = "too_large"
"""The keys of a reply. `rows` holds the rows, or None if the text had no statement. `failed` holds
the reason why the query failed, and then `too_large` is true if the rows were too large. `broken`
holds the reason why no query can run.
"""

_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
# functions that load code, read or write files, open an editor, or make values of any size
_FORBIDDEN_FUNCTIONS = frozenset(
    {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zeroblob"}
)


class TooLarge(ValueError):
    """An error that is raised because the rows of a query are too large."""


def answer(uri: str, query: str, max_size: int = MAX_RESULT) -> dict[str, Any]:
    """Execute a query that may only read, and return the reply.

    Args:
        uri: the URI of the SQLite database.
        query: the query.
        max_size: the maximum size of the rows, in bytes.
    """
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error as error:
        return {BROKEN: str(error)}
    with closing(connection):
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit={SQLITE_MEMORY}")
            # This query raises an error if the file is not a readable database.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            return {BROKEN: str(error)}
        if sys.version_info >= (3, 11):  # Python 3.10 has no `setlimit`.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN)
        connection.set_authorizer(_authorized)
        try:
            cursor = connection.execute(query)
            return {ROWS: None if cursor.description is None else _rows(cursor, max_size)}
        except TooLarge as error:
            return {FAILED: str(error), TOO_LARGE: True}
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            # A MemoryError may have no text.
            return {FAILED: str(error)[:MAX_MESSAGE] or "out of memory"}


def _authorized(action: int, _first: str | None, second: str | None, *_: object) -> int:
    """Return SQLite's code that allows or denies one action of a query.

    For a call of a function, the second argument of the action is the name of the function.
    """
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _rows(cursor: sqlite3.Cursor, max_size: int) -> list[list[Any]]:
    """Return all rows of a query; raise TooLarge if they have more than `max_size` bytes."""
    rows = []
    size = 0
    for row in cursor:
        rows.append([_plain(value) for value in row])
        size += LINE_OVERHEAD * (1 + len(row)) + len(json.dumps(rows[-1]))
        if size > max_size:
            raise TooLarge(f"the result has more than {max_size // 1_000_000} MB")
    return rows


def _plain(value: Any) -> Any:
    """Return the value, or SQLite's text of a value that JSON cannot hold."""
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, float) and math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return value


def limit_process() -> None:
    """Forbid this process to write files (including a core dump), and limit its memory."""
    # Ctrl-C ends helm-run, and helm-run ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit(resource.RLIMIT_CORE, maximum=0)
    _limit(resource.RLIMIT_FSIZE, maximum=0)
    with suppress(ValueError, OSError):  # macOS does not support this limit.
        _limit(resource.RLIMIT_AS, maximum=PROCESS_MEMORY)


def _limit(kind: int, maximum: int) -> None:
    """Set a soft resource limit, but never above the hard limit."""
    hard = resource.getrlimit(kind)[1]
    soft = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(kind, (soft, hard))


def _serve(questions: TextIO, answers: TextIO) -> None:
    """Answer queries until helm-run closes the pipe or ends.

    A question is a list: the database's URI, the query, the time limit in seconds, and the maximum
    size of the rows in bytes.
    """
    for line in questions:
        uri, query, seconds, max_size = json.loads(line)
        # helm-run kills this process when the time is over. The CPU limit ends this process a
        # second later, if helm-run cannot kill it.
        cpu_seconds = math.ceil(time.process_time() + seconds) + 1
        _limit(resource.RLIMIT_CPU, maximum=cpu_seconds)
        answers.write(json.dumps(answer(uri, query, max_size), allow_nan=False) + "\n")
        answers.flush()


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # contains eval_factory/
    from eval_factory.core.this_process import end_with_parent

    limit_process()
    # This process notices a closed pipe only after the current query, which may take long.
    end_with_parent(os.getppid())
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    _serve(sys.stdin, sys.stdout)
