"""Whether an endpoint answers at all: where its first requests all fail for good, the next would too."""

from __future__ import annotations

import threading


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

    def failed(self, number: int, cause: str) -> tuple[str, ...] | None:
        """A request failed for good. All their causes, where it was the last of the first and none was answered."""
        if number >= self.most:
            return None
        with self._lock:
            self._causes.append(cause)
            return tuple(self._causes) if len(self._causes) == self.most and not self._over else None
