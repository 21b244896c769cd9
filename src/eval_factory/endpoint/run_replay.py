"""What the shards of a run were told, told again to the process that scores: it is one run, and its result says so.

The shards write the journal under the id of the run that scores. An answer that one of them paid for is no answer from
the cache, a request that failed for good is not sent again, and neither is noted twice. Where a run has no shards, the
journal has nothing under its id when it begins.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.endpoint import openai_api
from eval_factory.endpoint.endpoint_errors import RequestFailed

_TOLD = """
SELECT key, outcome, error, started FROM attempts
WHERE run_id = ? AND outcome IN ('answered', 'cached', 'failed') ORDER BY id
"""
# An answer that turned out to be unusable lies under another key (`ResponseCache.archive_answer`).
_ANSWER = """
SELECT response, latency_s, created FROM responses
WHERE key = :key OR (key = :key || '#' || :started AND created = :started) ORDER BY created = :started DESC LIMIT 1
"""
_SPANS = """
SELECT run_id, MAX(started + COALESCE(latency_s, 0)) - MIN(started) FROM attempts GROUP BY run_id
"""


@dataclass(frozen=True)
class Told:
    """How a request ended in a shard."""

    outcome: str
    error: str | None
    started: float

    @property
    def was_kept(self) -> bool:
        """Whether an earlier run had paid for the answer."""
        return self.outcome == "cached"


class RunReplay:
    """Safe among threads."""

    def __init__(self, cache_db: Path | None = None, run_id: str = "") -> None:
        """Without a file: of a run without shards."""
        self._cache_db, self._run_id = cache_db, run_id
        self._lock, self._readers = threading.Lock(), threading.local()
        self._told: dict[str, deque[Told]] = {}
        if cache_db is not None:
            with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
                for key, *told in connection.execute(_TOLD, (run_id,)):
                    self._told.setdefault(key, deque()).append(Told(*told))

    def seconds_before(self) -> float:
        """How long the earlier runs in this folder asked, each from its first request to its last answer."""
        return sum(seconds for run_id, seconds in self._spans().items() if run_id != self._run_id)

    def seconds_asked(self) -> float:
        """The same of this run."""
        return self._spans().get(self._run_id, 0.0)

    def _spans(self) -> dict[str, float]:
        if self._cache_db is None:
            return {}
        with closing(sqlite3.connect(self._cache_db, timeout=30)) as connection:
            return dict(connection.execute(_SPANS))

    def next_of(self, key: str) -> Told | None:
        """How a request ended; one that was made more often than it was noted ended as it did the last time."""
        with self._lock:
            known = self._told.get(key)
            if known is None:
                return None
            return known.popleft() if len(known) > 1 else known[0]

    def answer(self, key: str, told: Told) -> tuple[dict[str, Any], float, float] | None:
        """(response, latency in seconds, time of creation); None where the answer is not there any more.

        Raises:
            RequestFailed: the request did.
            openai_api.UnusableAnswer: an older version kept what is no JSON.
        """
        if told.outcome == "failed":
            raise RequestFailed(told.error or "it failed")
        if self._cache_db is None:
            return None
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None:
            reader = self._readers.connection = sqlite3.connect(self._cache_db, timeout=30)
        row = reader.execute(_ANSWER, {"key": key, "started": told.started}).fetchone()
        return None if row is None else (openai_api.parse_kept(row[0]), row[1], row[2])
