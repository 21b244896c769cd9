"""Counts of failures, which decide whether a request is sent again, and after which pause.

`Tries` counts the failures of one request, `OutageDetector` the silent attempts of all threads,
and `FirstRequests` the failures of the first requests. urllib3's `Retry` computes backoff and
jitter.

Words of this module:

- A silent attempt: no byte of an answer arrived.
- An unreachable server: no connection could be made. Such an attempt is silent too.
- A stray: an answer that may belong to another question, because its connection brought more
  answers than requests were sent (`http_wire.Doubt`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping

from urllib3.exceptions import MaxRetryError
from urllib3.util.retry import Retry

from eval_factory.endpoint.http_wire import (
    MAX_MALFORMED_ANSWERS,
    MalformedAnswerError,
    TransportError,
)
from eval_factory.endpoint.limits import RATE_LIMIT_STATUSES, asked_pause
from eval_factory.endpoint.servers import Server


class FirstRequests:
    """A counter of failures among the first requests to an endpoint, until a request is answered.

    If all first requests fail for good, later requests would most likely fail too.
    """

    def __init__(self, total: int) -> None:
        """Begin to count.

        `total` is the number of first requests; 0 means that any number may fail.
        """
        self.total = total
        self._is_over = total == 0
        self._started = itertools.count()
        self._causes = list[str]()
        self._lock = threading.Lock()

    def start(self) -> int:
        """Return the number of a request that begins now.

        Requests are numbered when they begin. Failures arrive sooner than answers: if requests
        were numbered when they end, failures of many parallel requests would look like the first
        requests. After an answer, the number is `total`, so that the request does not count.
        """
        if self._is_over:
            return self.total
        return next(self._started)

    def answered(self) -> None:
        """Stop counting: a request was answered."""
        self._is_over = True

    def failed(self, number: int, cause: str) -> tuple[str, ...] | None:
        """Count a request that failed for good.

        Args:
            number: the number of the request, as `start` returned it.
            cause: the reason of the failure.

        Returns:
            The causes of all first requests if all of them have failed now and none was answered,
            else None.
        """
        if number >= self.total:
            return None
        with self._lock:
            self._causes.append(cause)
            if len(self._causes) != self.total or self._is_over:
                return None
            return tuple(self._causes)


OUTAGE_S = 120.0
"""The seconds within which a restarting server is back; after more silence the server is gone."""
_MIN_EVIDENCE = 3
"""The minimum number of requests, and of attempts at each of them, that show an outage."""


class OutageDetector:
    """A counter of silent attempts in a row, of all threads together."""

    def __init__(self, *, max_retries: int, parallelism: int) -> None:
        threads = max(parallelism, _MIN_EVIDENCE)
        self._unreachable_for_outage = _MIN_EVIDENCE * threads
        """The number of silent attempts in a row that show an outage if no connection can be made.
        """
        self._silent_for_outage = max(max_retries + 1, _MIN_EVIDENCE) * threads
        """The number of silent attempts in a row that show an outage if connections can be made.

        Slow prompts cause silent attempts too. If each thread asks one slow prompt, only the last
        attempt at the last of these prompts reaches this number.
        """
        self._in_a_row = 0
        self._since = 0.0  # the time (monotonic clock) of the first of these attempts
        self._lock = threading.Lock()

    def received(self) -> None:
        """Reset the count: the endpoint sent an answer or an error."""
        # Do not wait for the lock: this method is called after almost every attempt.
        self._in_a_row = 0

    def nothing_received(self, *, unreachable: bool) -> bool:
        """Count a silent attempt; return True if the endpoint is gone.

        The endpoint is gone if there were enough silent attempts in a row, and the first of them
        was at least `OUTAGE_S` ago. `unreachable` says whether no connection could be made.
        """
        with self._lock:
            now = time.monotonic()
            if not self._in_a_row:
                self._since = now
            self._in_a_row += 1
            limit = self._silent_for_outage
            if unreachable:
                limit = self._unreachable_for_outage
            return self._in_a_row >= limit and now - self._since >= OUTAGE_S


MAX_STRAYS = 1
"""The number of times that a question is asked again because its answer is a stray.

The question is then asked on a new connection, because the first answer on a connection certainly
belongs to its question.
"""
_FREE_BACKOFF_MAX_S = 10.0
"""The longest pause of the backoff before an attempt that costs no retry, in seconds."""
SILENCE_FACTOR = 4
"""The factor for the pause after a silent attempt.

With five retries, the pauses add up to a minute, in which a server may restart.
"""
RETRY_AFTER_MAX_S = 120.0
"""The maximum pause, in seconds, that is observed if an endpoint asks for a pause."""


class Tries:
    """The attempts that one request has left.

    The class stores no error: an error would keep the refused answer in memory.
    """

    def __init__(self, retries: Retry) -> None:
        self._retries = retries
        self._free_retries = retries.new(total=None, backoff_max=_FREE_BACKOFF_MAX_S)
        """Computes the pauses before the attempts that cost no retry (any number of attempts)."""
        self._silent_since: float | None = None
        """The time (monotonic clock) since which all attempts were silent; None: the last was not.
        """
        self._limited_since: float | None = None
        """The time (monotonic clock) since which all replies were 429s; None: the last was not."""
        self._malformed = 0  # the number of malformed answers
        self.strays = 0  # the number of answers that may belong to another question
        self.moves = 0  # the number of moves to another server after a lost connection

    def pause_after(
        self, error: TransportError, server: Server, *, has_answered: bool
    ) -> float | None:
        """Count a failed attempt; return the seconds to the next attempt, or None if none is left.

        Three kinds of failures cost no retry:
        - A stray: an answer that may belong to another question (`MAX_STRAYS`).
        - A limit per minute, as long as `Server.tolerates_limit` returns True.
        - A connection that cannot be made, as long as an endpoint that answered before may be
          restarting (`OUTAGE_S`). Nothing was sent, so nothing can be paid twice.

        Args:
            error: the failure of the last attempt.
            server: the server that was asked.
            has_answered: whether the endpoint answered before.
        """
        now = time.monotonic()
        if error.stray:
            self.strays += 1
            if self.strays <= MAX_STRAYS:
                return 0.0
            return None
        if isinstance(error, MalformedAnswerError):
            self._malformed += 1
        if self._malformed >= MAX_MALFORMED_ANSWERS:
            return None
        self._note_times(error, now)
        is_limited = self._limited_since is not None and server.tolerates_limit(self._limited_since)
        silent_for = 0.0
        if self._silent_since is not None:
            silent_for = now - self._silent_since
        may_restart = has_answered and error.unreachable and silent_for < OUTAGE_S
        if is_limited or may_restart:
            self._free_retries = self._free_retries.increment("POST")
            return _pause(self._free_retries, error.headers)
        try:
            self._retries = self._retries.increment("POST")
        except MaxRetryError:
            return None
        pause = _pause(self._retries, error.headers)
        if error.silent:
            pause *= SILENCE_FACTOR
        return pause

    def _note_times(self, error: TransportError, now: float) -> None:
        """Set `_limited_since` and `_silent_since` after a failure."""
        if error.status not in RATE_LIMIT_STATUSES:
            self._limited_since = None
        elif self._limited_since is None:
            self._limited_since = now
        if not error.silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now


def _pause(retries: Retry, headers: Mapping[str, str]) -> float:
    """Return the pause that the endpoint asks for, or else the pause of the backoff, in seconds."""
    return capped_pause(headers) or retries.get_backoff_time()


def capped_pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the endpoint asks to wait, at most `RETRY_AFTER_MAX_S`.

    Return None if the endpoint asks for no pause.
    """
    pause = asked_pause(headers)
    if not pause:  # None or 0
        return None
    return min(pause, RETRY_AFTER_MAX_S)
