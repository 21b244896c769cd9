"""Enforces an endpoint's limits: requests at once, and requests and tokens per minute.

`Limit` decides which request may be sent next; `LiveLimit` wakes the waiting requests. A client
waits for its slot through an `Admission`; a slot allows one request to be in flight. The limits may
be the client's own (`LocalAdmission`), or several processes may share the limits
(`eval_factory.endpoint.shared_limits`).

An endpoint asks for a pause by headers, which `asked_pause` reads: RFC 9110 `Retry-After`;
OpenAI's and Azure's `retry-after-ms` and `x-ratelimit-*`; Anthropic's `anthropic-ratelimit-*`.
LiteLLM repeats a provider's headers with the prefix `llm_provider-`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Generic, Protocol, TypeVar

from eval_factory.core.budget import BYTES_PER_TOKEN
from eval_factory.endpoint import bridge, media
from eval_factory.endpoint.endpoint_settings import EndpointLimits

MINUTE_S = 60.5
"""The length of the minute in which requests are counted, in seconds.

The minute is a little longer than 60 s, because the endpoint counts arrivals, and the first request
of a minute may take longer to arrive than the first request of the next minute.
"""
RATE_LIMIT_STATUSES = frozenset({429, 498})
"""The HTTP statuses that mean that a limit was reached.

- 429 Too Many Requests.
- 498: Groq's status for requests beyond the capacity of its flex tier.
"""
_Key = TypeVar("_Key", bound=Hashable)
"""The type of the keys that name the requests of a `Limit`."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
"""Matches durations as OpenAI writes them: 1s, 6m0s, 1h2m3.5s, 120ms.

`(?!s)`: the m of 120ms does not stand for minutes.
"""
_EPOCH_S = 1e9
"""A number of at least this value is a time in seconds since 1970; a smaller number is a pause in
seconds.
"""
_EPOCH_MS = 1e12
"""A number of at least this value is a time in milliseconds since 1970."""


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the headers of an error ask to wait.

    Return None if the headers ask for no pause, or cannot be read.
    """
    values = {}
    for name, value in headers.items():
        if len(value) <= 64:  # no number, duration or date is longer
            values[name.lower()] = value
    for prefix in ("", "llm_provider-"):
        milliseconds = _number(values.get(f"{prefix}retry-after-ms"))
        if milliseconds is None:
            pause = _pause_in(values.get(f"{prefix}retry-after"))
        else:
            pause = milliseconds / 1000
        if pause is not None:
            return pause
    return _pause_until_reset(values)


def _pause_until_reset(values: Mapping[str, str]) -> float | None:
    """Return the seconds until all limits that are used up are reset; None if there are none.

    If no limit is stated to be used up, the limits without a stated remaining amount count.

    Args:
        values: a dict from the name of each header, in lower case, to its value.
    """
    used_up = []  # the pauses of limits that are used up
    unknown = []  # the pauses of limits whose remaining amount the headers do not state
    for name, value in values.items():
        # such as `x-ratelimit-reset-tokens`, next to `x-ratelimit-remaining-tokens`
        is_reset = "ratelimit" in name and "reset" in name
        pause = _pause_in(value) if is_reset else None
        if pause is not None:
            remaining = _number(values.get(name.replace("reset", "remaining")))
            # A limit that is not used up asks for no pause, even if it is reset in many hours.
            if remaining == 0:
                used_up.append(pause)
            elif remaining is None:
                unknown.append(pause)
    return max(used_up or unknown, default=None)


def _pause_in(value: str | None) -> float | None:
    """Return the seconds from now to the end of a pause; None if the value cannot be read.

    The value is a number (of seconds, or a time since 1970), a duration, or a date (RFC 3339, RFC
    9110).
    """
    if not value:
        return None
    number = _number(value)
    if number is not None:
        seconds = number
        if number >= _EPOCH_MS:
            seconds = number / 1000
        if seconds >= _EPOCH_S:  # the end of the pause
            return max(0.0, seconds - time.time())
        return seconds
    duration = _DURATION.match(value)
    if duration is not None:
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in duration.groups())
        return 3600 * hours + 60 * minutes + seconds + 0.001 * milliseconds
    for parse_date in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, OverflowError):
            # `fromisoformat` of Python 3.10 does not read the letter Z.
            end = parse_date(re.sub("[zZ]$", "+00:00", value))
            if not end.tzinfo:
                end = end.replace(tzinfo=timezone.utc)
            return max(0.0, end.timestamp() - time.time())
    return None


def _number(value: str | None) -> float | None:
    """Return the number in a header's value; None if it is not a finite number of 0 or more."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not (math.isfinite(number) and number >= 0):
        return None
    return number


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Return the tokens that a request may use, as endpoints estimate them before they answer.

    The estimate is the sum of the prompt's text, the media and all granted output tokens.
    """
    return (
        prompt_size_in_bytes(body) // BYTES_PER_TOKEN
        + media.tokens_in(body.get("messages"))
        + max_answer_tokens(body)
    )


def prompt_size_in_bytes(body: Mapping[str, Any]) -> int:
    """Return the number of bytes of a request's text."""
    texts = [body.get("prompt") or ""]
    for message in body.get("messages") or []:
        if isinstance(message, Mapping):
            texts.append(message.get("content") or "")
    # With files, the content of a message is a list of parts. The text of this list is a little
    # longer than the texts of its parts, which is good enough for an estimate.
    return sum(len(str(text).encode("utf-8", "replace")) for text in texts)


def max_answer_tokens(body: Mapping[str, Any]) -> int:
    """Return the maximum number of tokens of all choices that this body asks for.

    Return 0 if the body states no maximum.
    """
    per_choice = 0
    for name in ("max_tokens", "max_completion_tokens"):
        maximum = body.get(name)
        if type(maximum) is int:  # not `isinstance`: a boolean is an int too
            per_choice = max(per_choice, maximum)
    choices = body.get("n")
    if type(choices) is int and choices > 0:
        return per_choice * choices
    return per_choice


DECREASE = 0.7  # the factor by which a refusal for too many requests reduces the slots


class _Window:
    """The requests, or tokens, that were used within the last minute, and their limit."""

    def __init__(self, limit: int | None) -> None:
        """Begin with nothing used. `limit` is per minute; None: there is no limit."""
        self._limit = limit
        self._used = 0  # the sum of the amounts in `_uses`
        self._uses: deque[tuple[float, int]] = deque()
        """The (time, amount) of each use within the last minute, the oldest use first."""

    def seconds_until(self, amount: int, now: float) -> float:
        """Return the seconds until an amount is within the limit; 0 if it is within the limit now.

        An amount that is larger than the limit counts as the complete limit.
        """
        while self._uses:  # forget the uses that are older than a minute
            time_of_use, used = self._uses[0]
            if time_of_use + MINUTE_S > now:
                break
            self._uses.popleft()
            self._used -= used
        if self._limit is None:
            return 0.0
        missing = self._used + min(amount, self._limit) - self._limit
        if missing <= 0:
            return 0.0
        for time_of_use, used in self._uses:
            missing -= used
            if missing <= 0:
                return time_of_use + MINUTE_S - now
        return 0.0  # not reached, because `missing` is at most the sum of all uses

    def take(self, amount: int, now: float) -> None:
        """Count an amount that is used now."""
        if self._limit is not None:
            counted = min(amount, self._limit)
            self._uses.append((now, counted))
            self._used += counted


class Limit(Generic[_Key]):
    """The limit of one endpoint: the requests that have a slot, and the queue of waiting requests.

    The number of slots follows the answers by additive increase and multiplicative decrease: D.-M.
    Chiu and R. Jain, Computer Networks and ISDN Systems 17, 1989. The class uses no thread, socket
    or timer: its caller needs a lock, and has to call `granted` again after `seconds_to_next`.
    """

    def __init__(
        self, limits: EndpointLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._max_slots = float(limits.parallelism)
        self._slots = self._max_slots
        """The current number of slots, rounded down when it is compared (`seconds_to_next`)."""
        self._last_decrease = 0.0  # the time (of the clock) at which the slots were last reduced
        self._requests = _Window(limits.requests_per_minute)
        self._tokens = _Window(limits.tokens_per_minute)
        self._arrivals = itertools.count()
        self._waiting: dict[_Key, int | None] = {}
        """The tokens of each waiting request, by its key; None: the limits per minute do not apply
        to the request.
        """
        self._queue: list[tuple[int, int, _Key]] = []
        """A heap of (priority, number of arrival, key); requests that no longer wait may still be
        in the heap.
        """
        self._slot_since: dict[_Key, float] = {}
        """The time since which each request has its slot, by the request's key."""
        self._closed_until = -math.inf
        """The end of the pause in which no request gets a slot."""

    def acquire(self, key: _Key, tokens: int | None = None, priority: int = 0) -> None:
        """Put a request into the queue; `granted` yields its key when the request has a slot.

        The request with the lowest priority number is first; of several requests with the same
        number, the request that came first. No request overtakes the first request, even if the
        tokens per minute would allow the later request and not the first.

        Args:
            key: names the request until it is released.
            tokens: the tokens that count towards the limits per minute; None: the request only
                waits for a slot, not for the limits per minute.
            priority: a request with a lower number goes first.
        """
        self._waiting[key] = tokens
        heapq.heappush(self._queue, (priority, next(self._arrivals), key))

    def release(self, key: _Key, *, answered: bool = False) -> None:
        """Give back the slot of a request, or take the request out of the queue.

        `answered` says whether the endpoint answered the request.
        """
        self._waiting.pop(key, None)
        if self._slot_since.pop(key, None) is not None and answered:
            # Add a fraction of a slot, so that a round of answers (one for each slot) adds a slot.
            self._slots = min(self._max_slots, self._slots + 1.0 / self._slots)

    def too_many(self, key: _Key, pause: float | None) -> None:
        """Note that the endpoint refused a request because there were too many requests.

        `pause` is the number of seconds that the endpoint asks to wait, in which no request gets a
        slot; None if the endpoint asks for no pause.
        """
        if key in self._slot_since:
            now = self._clock()
            # Decrease only once for all requests that were in flight at the same time.
            if self._slot_since[key] >= self._last_decrease:
                self._slots = max(1.0, self._slots * DECREASE)
                self._last_decrease = now
            until = now if pause is None else now + pause
            self._closed_until = max(self._closed_until, until)

    def granted(self) -> Iterator[_Key]:
        """Give slots to the requests that may be sent now, and yield their keys.

        Each request gets its slot just before its key is yielded: consume the complete iterator.
        """
        while self.seconds_to_next() == 0.0:
            _, _, key = heapq.heappop(self._queue)
            now = self._clock()
            tokens = self._waiting.pop(key)
            if tokens is not None:
                self._requests.take(amount=1, now=now)
                self._tokens.take(amount=tokens, now=now)
            self._slot_since[key] = now
            yield key

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next request gets a slot; 0 if it gets the slot now.

        Return None if no request waits, or if no slot is free.
        """
        # Remove requests that no longer wait from the beginning of the heap; [2] is the key.
        while self._queue and self._queue[0][2] not in self._waiting:
            heapq.heappop(self._queue)
        if not self._queue or len(self._slot_since) >= int(self._slots):
            return None
        _, _, first = self._queue[0]
        tokens = self._waiting[first]
        now = self._clock()
        seconds = max(0.0, self._closed_until - now)
        if tokens is not None:
            seconds = max(
                seconds,
                self._requests.seconds_until(amount=1, now=now),
                self._tokens.seconds_until(amount=tokens, now=now),
            )
        return seconds


class Ticket(Future[Any]):
    """A future on which a request waits for its slot; done when the request may be sent.

    The first call of `give` or `fail` counts; later calls do nothing.
    """

    def give(self, value: Any = None) -> None:
        """Make the ticket done, with this value as its result."""
        with suppress(InvalidStateError):
            self.set_result(value)

    def fail(self, error: Exception) -> None:
        """Raise this error in the request that waits."""
        with suppress(InvalidStateError):
            self.set_exception(error)


class LiveLimit:
    """A limit that grants slots by itself as soon as they are free; thread-safe."""

    def __init__(self, limits: EndpointLimits) -> None:
        self._limit = Limit[Ticket](limits)
        self._lock = threading.Lock()
        self._due = math.inf
        """The time (monotonic clock) at which the timer grants slots next."""

    def acquire(self, ticket: Ticket, tokens: int | None, priority: int = 0) -> None:
        """Put a request into the queue, as `Limit.acquire` does; its ticket is done later."""
        with self._changed() as limit:
            limit.acquire(ticket, tokens, priority)

    def too_many(self, ticket: Ticket, pause: float | None) -> None:
        """Note that the endpoint refused a request, as `Limit.too_many` does."""
        with self._changed() as limit:
            limit.too_many(ticket, pause)

    def release(self, ticket: Ticket, *, answered: bool = False) -> None:
        """Give back the slot of a request, as `Limit.release` does."""
        with self._changed() as limit:
            limit.release(ticket, answered=answered)

    @contextmanager
    def _changed(self) -> Iterator[Limit[Ticket]]:
        """Yield the limit, which the block changes, and then grant the slots that are free.

        A slot that becomes free only by time is granted later, by a timer of the loop.
        """
        with self._lock:
            yield self._limit
            for ticket in self._limit.granted():
                ticket.give()
            seconds = self._limit.seconds_to_next()
            if seconds is None:
                return
            due = time.monotonic() + seconds
            if due < self._due:  # no timer is set, or a later one
                self._due = due
                loop = bridge.the_loop()
                # Only the loop's thread may call `call_later`.
                loop.call_soon_threadsafe(loop.call_later, seconds, self._grant_due)

    def _grant_due(self) -> None:
        """Grant the slots that have become free by time."""
        with self._changed():  # the end of the block grants the slots, and sets the next timer
            self._due = math.inf


class AnyLimit(Protocol):
    """The limit that an admission uses: a `LiveLimit` of this process or of another process."""

    def acquire(self, ticket: Ticket, tokens: int | None) -> None: ...
    def too_many(self, ticket: Ticket, pause: float | None) -> None: ...
    def release(self, ticket: Ticket, *, answered: bool) -> None: ...


class Admission:
    """The admission of requests to an endpoint: each request waits for a slot; thread-safe."""

    def __init__(self, limit: AnyLimit, limits: EndpointLimits) -> None:
        """Make the admission. `limits` are the numbers that `limit` enforces."""
        self._limit = limit
        self._counts_tokens = limits.tokens_per_minute is not None
        self._has_rate = self._counts_tokens or limits.requests_per_minute is not None
        self._is_stopped = False
        self._waiting = set[Ticket]()

    def too_many(self, ticket: Ticket, pause: float | None) -> None:
        """Note that the endpoint refused a request because there were too many requests.

        Args:
            ticket: the ticket of the refused request.
            pause: the seconds that the endpoint asks to wait; None if it asks for no pause.
        """
        self._limit.too_many(ticket, pause)

    def stop(self) -> None:
        """End all waiting; each request that waited then finds out that the run has stopped."""
        self._is_stopped = True
        for ticket in list(self._waiting):
            ticket.give()

    @contextmanager
    def slot(self, body: Mapping[str, Any] | None = None) -> Iterator[Ticket]:
        """Wait for a slot, and yield its ticket.

        If the caller passes the body of a request, also wait for the limits per minute. If the
        block ends without an exception, the endpoint counts as having answered. After `stop`, the
        ticket is yielded without a slot.
        """
        tokens = None
        if body is not None and self._has_rate:
            # 0, not None: the request still waits for the limit of requests per minute.
            tokens = estimated_tokens(body) if self._counts_tokens else 0
        ticket = Ticket()
        answered = False
        self._waiting.add(ticket)
        try:
            if not self._is_stopped:
                self._limit.acquire(ticket, tokens)
                bridge.wait_for(ticket)
            yield ticket
            answered = True
        finally:
            self._waiting.discard(ticket)
            self._limit.release(ticket, answered=answered)


class LocalAdmission(Admission):
    """An admission with limits that only one client uses."""

    def __init__(self, limits: EndpointLimits) -> None:
        super().__init__(LiveLimit(limits), limits)

    def too_many(self, ticket: Ticket, pause: float | None) -> None:  # noqa: ARG002 - ignored
        """Reduce the slots. The pause is ignored: the client itself pauses each refused request."""
        super().too_many(ticket, pause=None)
