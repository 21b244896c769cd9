"""Whether an endpoint is still there, as all threads that ask it know it together."""

from __future__ import annotations

import threading
import time

OUTAGE_S = 120.0
"""A server that restarts is back by then; one that sends nothing for longer is gone."""

LEAST = 3
"""So few requests, or tries of one, say nothing of the endpoint."""


class OutageDetector:
    """Counts attempts in a row that brought not a byte, whoever made them."""

    def __init__(self, *, max_retries: int, parallelism: int) -> None:
        threads = max(parallelism, LEAST)
        self._most_unreachable = LEAST * threads
        self._most_without_answer = max(max_retries + 1, LEAST) * threads
        """More than prompts that take too long use up while they are asked at the same time."""
        self._in_a_row = 0
        self._since = 0.0
        self._lock = threading.Lock()

    def received(self) -> None:
        """Something came, whatever it says."""
        self._in_a_row = 0  # without the lock: the usual case costs nothing

    def nothing_received(self, *, unreachable: bool) -> bool:
        """One more attempt was in vain. Whether the endpoint is gone: often enough in a row, and for long enough."""
        with self._lock:
            now = time.monotonic()
            if self._in_a_row == 0:
                self._since = now
            self._in_a_row += 1
            most = self._most_unreachable if unreachable else self._most_without_answer
            return self._in_a_row >= most and now - self._since >= OUTAGE_S
