"""The servers that serve one model: which of them is asked next, and what is known of each.

Limits, pauses and failures are a server's own. One that fails is left out, for longer each time, and then asked by one
request; its answer brings it back. The rest go on meanwhile. Where none is left, all are asked as one alone would be.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from eval_factory.endpoint.connection import Connection
from eval_factory.endpoint.endpoint_settings import EndpointSettings, limit_names
from eval_factory.endpoint.limits import AdaptiveLimit, Admission, LocalAdmission, Patience

FIRST_ABSENCE_S, LONGEST_ABSENCE_S = 0.5, 10.0
"""For how long a server that failed is asked nothing."""


class Server:
    """One of them; `Servers` changes it."""

    def __init__(
        self,
        connection: Connection,
        admission: Admission,
        *,
        parallelism: int,
        patience: Patience | None = None,
        has_answered: bool = False,
    ) -> None:
        """
        Args:
            patience: for how long a 429 costs no retry; None: for no time.
            has_answered: it is known to be there, and to take the key and the model.
        """
        self.connection, self.admission, self.patience = connection, admission, patience
        self.has_answered = has_answered
        self.refusals = 0
        """Without an answer between."""
        self.under_way = 0
        self.failures = 0
        """Without an answer between; those of requests that were under way together are one."""
        self.limit = AdaptiveLimit(parallelism)
        self.failed_at = self.absent_until = self.paused_until = 0.0
        """By the monotonic clock. The pause is one that it asked for: an answer does not end it."""

    def is_well(self, now: float) -> bool:
        return self.failures == 0 and self.paused_until <= now

    def may_be_asked(self, now: float) -> bool:
        """Also by the one request that finds out whether it is back."""
        is_due = self.failures and not self.under_way and max(self.absent_until, self.paused_until) <= now
        return bool(is_due) or self.is_well(now)

    @property
    def load(self) -> float:
        return self.under_way / self.limit.places


class Servers:
    """All of them; safe among threads."""

    def __init__(self, servers: Sequence[Server], together: Admission | None = None) -> None:
        """`together`: how many requests go on at once, at all of them; None: there is one, whose own limit that is."""
        self.all = tuple(servers)
        self._together = together
        self._turns = itertools.count()
        self._lock = threading.Lock()

    @property
    def has_answered(self) -> bool:
        return any(server.has_answered for server in self.all)

    @property
    def most_moves(self) -> int:
        """So often a request may be taken elsewhere without a retry: once from each server that is lost."""
        return len(self.all) - 1

    def turn(self, avoid: Server | None = None) -> Turn:
        """A place at one of them; not at `avoid` where another may be asked."""
        return Turn(self, self._together, avoid)

    def begin(self, avoid: Server | None) -> Server:
        """The server with the fewest requests under way; in turn where several have as few."""
        if len(self.all) == 1:
            return self.all[0]
        with self._lock:
            now, turn, number = time.monotonic(), next(self._turns), len(self.all)
            ready = [server for server in self.all if server.may_be_asked(now)]
            ready = [server for server in ready if server is not avoid] or ready or list(self.all)
            order = {server: (place - turn) % number for place, server in enumerate(self.all)}
            chosen = min(ready, key=lambda server: (server.load, order[server]))
            chosen.under_way += 1
            return chosen

    def end(self, server: Server) -> None:
        if len(self.all) > 1:
            with self._lock:
                server.under_way -= 1

    def answered(self, server: Server) -> None:
        server.has_answered, server.refusals, server.failures = True, 0, 0
        if server.patience is not None:
            server.patience.answered()
        if not server.limit.is_whole:
            with self._lock:
                server.limit.answered()

    def failed(self, server: Server, since: float, pause: float | None) -> bool:
        """An attempt that began at `since` (monotonic) failed. Whether another server is well.

        Args:
            pause: seconds that the server asks to wait.
        """
        with self._lock:
            now = time.monotonic()
            if since >= server.failed_at:
                server.failures, server.failed_at = server.failures + 1, now
                absence = min(FIRST_ABSENCE_S * 2 ** (server.failures - 1), LONGEST_ABSENCE_S)
                server.absent_until = now + absence
            if pause is not None:
                server.paused_until = max(server.paused_until, now + pause)
            return any(other.is_well(now) for other in self.all if other is not server)

    def too_many(self, turn: Turn, pause: float | None) -> None:
        """The server refused the request of this turn: it has too many."""
        turn.server.admission.too_many(turn.place, pause)
        with self._lock:
            turn.server.limit.too_many(turn.since, time.monotonic())

    def stop(self) -> None:
        """No request will be sent any more."""
        for admission in (self._together, *(server.admission for server in self.all)):
            if admission is not None:
                admission.stop()


def servers_at(
    connections: Sequence[Connection],
    settings: EndpointSettings,
    *,
    shared: Callable[[str], Admission | None] | None = None,
    has_answered: bool = False,
) -> Servers:
    """The servers of an endpoint, each with limits of its own.

    Args:
        shared: the name of limits (`limit_names`) -> these limits, as several runs have them together.
        has_answered: each is known to be there, and to take the key and the model.
    """

    def admission(name: str) -> Admission:
        return (shared(name) if shared else None) or LocalAdmission(settings)

    together, *names = limit_names(settings.role, len(connections))
    made = [
        Server(one, admission(name), parallelism=settings.parallelism, patience=Patience(), has_answered=has_answered)
        for one, name in zip(connections, names or [together], strict=True)
    ]
    return Servers(made, admission(together) if names else None)


class Turn:
    """The place of one attempt at one server. To leave it without an exception says that the server answered."""

    server: Server
    place: float
    """What the server's admission wants to know of it."""
    since: float

    def __init__(self, servers: Servers, together: Admission | None, avoid: Server | None) -> None:
        self._servers, self._avoid = servers, avoid
        self._together = None if together is None else together.slot()
        self._slot: AbstractContextManager[float]

    def __enter__(self) -> Turn:
        if self._together is not None:
            self._together.__enter__()
        try:
            self.server = self._servers.begin(self._avoid)
            try:
                self._slot = self.server.admission.slot()
                self.place = self._slot.__enter__()
            except BaseException:
                self._servers.end(self.server)
                raise
        except BaseException:
            if self._together is not None:
                self._together.__exit__(None, None, None)
            raise
        self.since = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slot.__exit__(kind, error, trace)
        self._servers.end(self.server)
        if self._together is not None:
            self._together.__exit__(kind, error, trace)
