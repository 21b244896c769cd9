"""Whether an endpoint answers at all: where its first requests all fail for good, the next would too."""

from __future__ import annotations

import re
import threading
from collections import Counter

_DIFFERS = re.compile(r"[0-9a-fA-F-]*\d[0-9a-fA-F-]*")
"""Ids, counts and times inside an error: two errors that differ in these only have one cause."""
SHOWN_CAUSES = 3
SHOWN_LENGTH = 200


class FirstRequests:
    """Counts the first requests to one endpoint until one is answered; safe among threads."""

    def __init__(self, most: int, *, answered: bool = False) -> None:
        """`most`: so many may fail; 0: any number. `answered`: the endpoint is known to answer requests like these."""
        self.most = most
        self._over = answered or most == 0
        self._begun = 0
        self._causes: list[str] = []
        self._lock = threading.Lock()

    def begin(self) -> int:
        """The number of one more request: only the first count, for of many at once those that fail end sooner."""
        if self._over:
            return self.most
        with self._lock:
            self._begun += 1
            return self._begun - 1

    def answered(self) -> None:
        self._over = True

    def failed(self, number: int, cause: str) -> str | None:
        """A request failed for good. The causes, where it was the last of the first and none was answered."""
        if number >= self.most:
            return None
        with self._lock:
            self._causes.append(cause)
            return grouped(self._causes) if len(self._causes) == self.most and not self._over else None


def grouped(causes: list[str]) -> str:
    """A line for each kind of cause, the most frequent first, each with how often it came."""
    first: dict[str, str] = {}
    for cause in causes:
        first.setdefault(_DIFFERS.sub("#", cause), cause)
    counts = Counter(_DIFFERS.sub("#", cause) for cause in causes).most_common()
    lines = [f"  {count} x {shortened(first[kind])}" for kind, count in counts[:SHOWN_CAUSES]]
    rest = sum(count for _, count in counts[SHOWN_CAUSES:])
    return "\n".join(lines + ([f"  {rest} x something else"] if rest else []))


def shortened(cause: str) -> str:
    return cause if len(cause) <= SHOWN_LENGTH else f"{cause[:SHOWN_LENGTH].rstrip()} ..."
