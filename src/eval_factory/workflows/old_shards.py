"""Answers of an earlier version, which had several processes ask one evaluation: put into its cache.db.

Each kept its own in `shards/<k>-of-<n>/cache.db` of the output folder.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.paid_answers import PRICES_TABLE
from eval_factory.endpoint.response_cache import DamagedCacheError, create_or_check

_ATTEMPT = "run_id, key, role, attempt, outcome, status, error, started, latency_s, prompt_tokens, completion_tokens"
_ONE_ATTEMPT = "run_id, key, role, attempt, outcome, started"
"""By which an attempt is known again where a copy that was killed is done once more: ids differ."""
_COPIES = (
    "INSERT OR IGNORE INTO main.responses SELECT * FROM part.responses ORDER BY rowid",
    f"""
    INSERT INTO main.attempts ({_ATTEMPT}) SELECT {_ATTEMPT} FROM part.attempts
    WHERE ({_ONE_ATTEMPT}) NOT IN (SELECT {_ONE_ATTEMPT} FROM main.attempts) ORDER BY id
    """,  # noqa: S608 - of constants
    "INSERT OR IGNORE INTO main.request_changes SELECT * FROM part.request_changes ORDER BY rowid",
    "INSERT OR IGNORE INTO main.prices SELECT run_id, role, price FROM part.prices",
)


def take_in(rundir: RunDir, log: logging.Logger) -> None:
    """Put what shards answered into cache.db and delete their folders; one that is damaged is left, and said so.

    Raises:
        BusyError: the earlier version is still at work there.
        PrerequisiteError: cache.db cannot be written.
    """
    shards = rundir.stores()[1:]
    for shard in shards:
        with shard.locked():
            try:
                if shard.cache_db.is_file():
                    create_or_check(shard.cache_db)
                    copy_store(shard.cache_db, rundir.cache_db)
            except DamagedCacheError as error:
                log.warning("%s: %s; it is not used", shard.cache_db, error)
                continue
            except sqlite3.Error as error:
                raise PrerequisiteError(
                    f"cannot put {shard.cache_db} into {rundir.cache_db}: {error}\n"
                    "  check the disk and run the same command again; the answers stay where they are"
                ) from error
        shutil.rmtree(shard.root)
        log.info("%s, of an earlier version, was put into cache.db", shard.root.relative_to(rundir.root))
    if shards and not any(rundir.shards.iterdir()):
        rundir.shards.rmdir()


def copy_store(source: Path, target: Path) -> None:
    """In one transaction, and as often as one likes: what is there already is left alone.

    Raises:
        sqlite3.Error: it cannot be written; nothing was changed.
    """
    with closing(sqlite3.connect(target, timeout=30)) as connection:
        connection.execute("PRAGMA synchronous = FULL")  # the source is deleted afterwards
        connection.execute("ATTACH DATABASE ? AS part", (str(source),))
        for schema in ("main", "part"):
            connection.execute(PRICES_TABLE.replace("prices", f"{schema}.prices", 1))
        with connection:
            for statement in _COPIES:
                connection.execute(statement)
