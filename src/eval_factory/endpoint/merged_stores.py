"""The store of a shard, put into the cache.db of its evaluation: in one transaction, and as often as one likes.

What is there already is left alone, so that a merge which was killed is simply done again.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from eval_factory.endpoint.paid_answers import PRICES_TABLE

_ATTEMPT = "run_id, key, role, attempt, outcome, status, error, started, latency_s, prompt_tokens, completion_tokens"
_ONE_ATTEMPT = "run_id, key, role, attempt, outcome, started"
"""What no two attempts have in common: none of these is ever null."""

# An answer that turned out to be unusable is kept under `key#created` (`ResponseCache.archive_answer`): under its old
# key it must neither stay nor come back.
_NO_LONGER_KEPT = "DELETE FROM main.responses WHERE key || '#' || created IN (SELECT key FROM shard.responses)"
_ANSWERS = """
INSERT OR IGNORE INTO main.responses SELECT * FROM shard.responses
WHERE key || '#' || created NOT IN (SELECT key FROM main.responses) ORDER BY rowid
"""
_JOURNAL = f"""
INSERT INTO main.attempts ({_ATTEMPT}) SELECT {_ATTEMPT} FROM shard.attempts
WHERE ({_ONE_ATTEMPT}) NOT IN (SELECT {_ONE_ATTEMPT} FROM main.attempts) ORDER BY id
"""  # noqa: S608 - of constants
_CHANGES_BACK = "INSERT OR IGNORE INTO main.request_changes SELECT * FROM shard.request_changes ORDER BY rowid"
_HAS_PRICES = "SELECT 1 FROM shard.sqlite_master WHERE type = 'table' AND name = 'prices'"
_MERGE_PRICES = "INSERT OR IGNORE INTO main.prices SELECT run_id, role, price FROM shard.prices"
_CHANGES = "INSERT OR IGNORE INTO shard.request_changes SELECT * FROM main.request_changes ORDER BY rowid"


def merge_store(cache_db: Path, store: Path) -> None:
    """Put everything that `store` has into `cache_db`; it is on disk when this returns.

    Raises:
        sqlite3.Error: it cannot be written; nothing was changed.
    """
    with closing(_both(cache_db, store)) as connection:
        prices = connection.execute(_HAS_PRICES).fetchone() is not None
        _write(
            connection,
            (_NO_LONGER_KEPT, _ANSWERS, _JOURNAL, _CHANGES_BACK, *((PRICES_TABLE, _MERGE_PRICES) if prices else ())),
        )


def copy_changes(cache_db: Path, store: Path) -> None:
    """Tell a new store how requests are changed that the endpoint refuses: their answers are kept under other keys."""
    with closing(_both(cache_db, store)) as connection:
        _write(connection, (_CHANGES,))


def _both(cache_db: Path, store: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(cache_db, timeout=30, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")  # the store is deleted afterwards
    connection.execute("ATTACH DATABASE ? AS shard", (str(store),))
    return connection


def _write(connection: sqlite3.Connection, statements: tuple[str, ...]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
