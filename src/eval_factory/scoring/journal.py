"""What cache.db says of a run: its attempts, its answers, and which server gave them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eval_factory.endpoint.response_cache import Answer, read_rows


def read_attempts(path: Path) -> Iterator[dict[str, Any]]:
    """Every attempt in the order of the journal: column -> value."""
    return read_rows(path, "SELECT * FROM attempts ORDER BY id")


def read_answers(path: Path, role: str | None = None) -> Iterator[dict[str, Any]]:
    """Every answer (of one role), oldest first; `request` and `response` are JSON text.

    Their row ids are sorted, and each is read in its turn: SQLite would sort them with their texts, on disk if need be.
    """
    ids = "SELECT rowid FROM responses WHERE :role IS NULL OR role = :role ORDER BY created, key"
    return read_rows(path, ids, "SELECT * FROM responses WHERE rowid = ?", role=role)


def typed_answers(path: Path, role: str | None = None) -> Iterator[Answer]:
    """Every answer (of one role), oldest first; each is read once, whatever is then taken from it."""
    return map(_typed, read_answers(path, role))


def read_cached_answer(path: Path, key: str) -> Answer | None:
    rows = read_rows(path, "SELECT * FROM responses WHERE key = :key", key=key)
    return next(map(_typed, rows), None)


def _typed(row: Mapping[str, Any]) -> Answer:
    try:
        bodies = {name: json.loads(row[name]) for name in ("request", "response")}
    except (RecursionError, ValueError):
        bodies = {}
    return Answer(**{**row, **bodies})


def read_servers(path: Path) -> dict[str, str]:
    """Key of an answer -> URL of the server that gave it, where there were several."""
    if next(read_rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'answered_at'"), None) is None:
        return {}
    return {row["key"]: row["server"] for row in read_rows(path, "SELECT key, server FROM answered_at")}


def read_answers_by_role(path: Path) -> dict[str, Iterator[dict[str, Any]]]:
    """Role -> its answers, read as they are gone through, once."""
    return {role: read_answers(path, role) for role in read_roles(path)}


def finish_reasons(path: Path, role: str) -> dict[str, int]:
    """Why the answers of a role ended -> how many, the most frequent first. Some answers do not say it."""
    query = """
        SELECT reason, count(*) AS answers FROM (
            SELECT json_extract(response, '$.choices[0].finish_reason') AS reason
            FROM (SELECT CASE WHEN json_valid(response) THEN response END AS response FROM responses WHERE role = :role)
        ) WHERE typeof(reason) = 'text' GROUP BY reason ORDER BY answers DESC, reason
    """
    return {row["reason"]: row["answers"] for row in read_rows(path, query, role=role)}


def read_roles(path: Path) -> list[str]:
    """The roles that have answers."""
    return [row["role"] for row in read_rows(path, "SELECT DISTINCT role FROM responses ORDER BY role")]
