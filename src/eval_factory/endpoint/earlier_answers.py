"""The answers of another cache.db, to be read only: a shard asks nothing that the whole evaluation has already."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path


class EarlierAnswers:
    """Nobody writes to the file as long as this is used; any thread may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = threading.local()
        self._keys = {row[0] for row in self._reader().execute("SELECT key FROM responses")}

    def get(self, key: str) -> tuple[str, float, float] | None:
        """(response as JSON text, latency in seconds, time of creation)."""
        if key not in self._keys:
            return None
        query = "SELECT response, latency_s, created FROM responses WHERE key = ?"
        found: tuple[str, float, float] | None = self._reader().execute(query, (key,)).fetchone()
        return found

    def has(self, role: str, model_id: str) -> bool:
        """Whether this model answered in this role."""
        query = "SELECT 1 FROM responses WHERE role = ? AND model_id = ? LIMIT 1"
        return self._reader().execute(query, (role, model_id)).fetchone() is not None

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            address = f"{self._path.absolute().as_uri()}?mode=ro"
            connection = self._readers.connection = sqlite3.connect(address, uri=True, timeout=30)
        return connection
