"""A model's SQL, executed where it can do no harm: on a copy that is thrown away, read-only, for a limited time.

Takes the place of HELM's EhrSqlAnnotator, which executes and commits on the benchmark's own database.
"""

from __future__ import annotations

import atexit
import re
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.annotation import ehr_sql_annotator
from helm.benchmark.annotation.ehr_sql_annotator import EhrSqlAnnotator

TIME_LIMIT_S = 10.0
MOST_ROWS = 100_000
LARGEST_VALUE = 10_000_000
"""Bytes of one text or blob."""
INSTRUCTIONS_BETWEEN_LOOKS = 10_000

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zeroblob"})
_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)<\/?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)

Rows = list[tuple[Any, ...]]


class QueryFailed(Exception):
    """The query gave no rows: it is no SQL, may not be executed, or took too long."""


def execute(database: Path, query: str) -> Rows:
    """The rows of one query that only reads.

    Raises:
        QueryFailed: the message says why, as SQLite says it.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.set_authorizer(_authorized)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, INSTRUCTIONS_BETWEEN_LOOKS)
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
        try:
            rows = connection.execute(query).fetchmany(MOST_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            late = time.monotonic() > deadline
            raise QueryFailed(f"no end within {TIME_LIMIT_S:g} s" if late else str(error)) from error
    if len(rows) > MOST_ROWS:
        raise QueryFailed(f"more than {MOST_ROWS} rows")
    return rows


def _authorized(action: int, _first: str | None, name: str | None, *_: object) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (name or "").lower() in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


_copies: dict[Path, Path] = {}
_copies_lock = threading.Lock()


def throw_away_copy(database: Path) -> Path:
    """One copy for each helm-run, deleted with it."""
    with _copies_lock:
        if database not in _copies:
            folder = Path(tempfile.mkdtemp(prefix="eval-factory-sql-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            _copies[database] = Path(shutil.copy(database, folder))
        return _copies[database]


def execute_where_it_can_do_no_harm() -> None:
    EhrSqlAnnotator.annotate = annotate


def annotate(_self: Any, request_state: RequestState) -> dict[str, Any]:
    """HELM's annotation, and beside it the gold query's rows as they are (None where it failed)."""
    root = Path(ehr_sql_annotator.get_benchmark_output_path())
    database = throw_away_copy((root / "scenarios" / "ehr_sql" / "eicu.sqlite").absolute())
    gold = request_state.instance.references[0].output.text.strip()
    rows: Rows | None
    try:
        rows = execute(database, gold)
    except QueryFailed:
        rows = None
    predicted = _query_in(request_state.result.completions[0].text if request_state.result else "")
    found: Rows = []
    error: str | None = None
    if not predicted:
        error = "No query generated"
    else:
        try:
            found = execute(database, predicted)
        except QueryFailed as failed:
            error = str(failed)
    return {
        "predicted_result": found,
        "ground_truth_result": rows or _stated_values(request_state),
        "query_error": error,
        "ground_truth_rows": rows,
    }


def _query_in(text: str) -> str:
    """The SQL of an answer, as HELM finds it."""
    tagged = _SQL_TAG.search(text)
    query = (tagged[1] if tagged else text).strip()
    return _FENCE_NAME.sub("", query.replace("`", "").strip())


def _stated_values(request_state: RequestState) -> list[Any]:
    """What HELM takes for the gold result where the gold query gives no row."""
    extra = request_state.instance.extra_data or {}
    return list(extra["value"].values()) if "value" in extra else []
