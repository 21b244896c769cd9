"""Who may send a request now: so many at once, so many a minute, fewer when the endpoint has too many.

A run of its own keeps its limits itself (`LocalAdmission`); runs of a suite have them together
(`eval_factory.endpoint.shared_limits`).

Rate limits of an endpoint: what its headers ask for, how long it is borne, and sending no more than is allowed.

Headers: RFC 9110 `Retry-After`; OpenAI's and Azure's `retry-after-ms` and `x-ratelimit-*`; Anthropic's
`anthropic-ratelimit-*`; LiteLLM repeats a provider's own under `llm_provider-`.

How many requests go on at once: fewer when the endpoint says that it has too many, more again when it answers.

Additive increase, multiplicative decrease (D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems 17:1-14, 1989).
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Any, Protocol

from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

from eval_factory.core.budget import BYTES_PER_TOKEN
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import EndpointSettings

WINDOW_S = 120.0
"""A limit a minute has passed by then; where nobody was answered for so long, waiting costs retries again."""
PATIENCE_S = 900.0
"""Of one request, however many others are answered: a prompt may be larger than the limit itself."""
PAUSE_MAX_S = 15.0
"""Between tries that cost no retry, where the endpoint does not say how long to wait."""

MINUTE_MS = 60_500
"""A little more than one: the first request of a minute may take longer to arrive (its connection is made, its process
is busy) than the first of the next, and the endpoint counts arrivals."""
GRAINS = 1000
"""Tokens are counted in so many parts of the limit: the limiter keeps a record of each."""
POLL_S = 0.05
"""Between two tries to be let through."""

_PREFIXES = ("", "llm_provider-")
_RESETS = {
    "x-ratelimit-reset-requests": "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-tokens": "x-ratelimit-remaining-tokens",
    "anthropic-ratelimit-requests-reset": "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-tokens-reset": "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset": "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset": "anthropic-ratelimit-output-tokens-remaining",
    "x-ratelimit-reset": "x-ratelimit-remaining",
    "ratelimit-reset": "ratelimit-remaining",
}
"""Header that says when a limit is over -> header that says what is left of it."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
"""OpenAI's: 1s, 6m0s, 1h2m3.5s, 120ms."""
_DURATION_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_LONGEST_VALUE = 64
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
"""From here on a number is a point in time (seconds, milliseconds since 1970); below, seconds from now."""


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that the headers of an error ask to wait; None where they say nothing that can be read."""
    given = {name.lower(): value for name, value in headers.items() if len(value) <= _LONGEST_VALUE}
    for prefix in _PREFIXES:
        milliseconds = _number(given.get(f"{prefix}retry-after-ms"))
        if milliseconds is not None:
            return milliseconds / 1000
        pause = _retry_after(given.get(f"{prefix}retry-after"))
        if pause is not None:
            return pause
    for prefix in _PREFIXES:
        resets = {name: pause for name in _RESETS if (pause := _until(given.get(prefix + name))) is not None}
        used_up = [pause for name, pause in resets.items() if _number(given.get(prefix + _RESETS[name])) == 0]
        if resets:
            return max(used_up or resets.values())
    return None


def _retry_after(value: str | None) -> float | None:
    """Seconds, or a date."""
    if value is None:
        return None
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        return float(Retry().parse_retry_after(value))
    except (InvalidHeader, ValueError, OverflowError):  # no date, or one after the last
        return None


def _until(value: str | None) -> float | None:
    """Seconds until the end of a limit: a number, a duration, or a point in time (RFC 3339)."""
    if not value:
        return None
    number = _number(value)
    if number is not None:
        if number >= _EPOCH_MS:
            return max(0.0, number / 1000 - time.time())
        return max(0.0, number - time.time()) if number >= _EPOCH_S else number
    found = _DURATION.match(value)
    if found:
        parts = zip(found.groups(), _DURATION_UNITS_S, strict=True)
        return sum(float(part) * unit for part, unit in parts if part is not None)
    try:
        end = datetime.fromisoformat(value.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        return None
    end = end if end.tzinfo else end.replace(tzinfo=timezone.utc)
    return max(0.0, end.timestamp() - time.time())


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


class Patience:
    """For how long too many requests cost no retry, as all threads that ask one endpoint know it together."""

    def __init__(self) -> None:
        self._since: float | None = None
        """Since when the endpoint says nothing but that."""

    def answered(self) -> None:
        self._since = None

    def bears(self, first: float) -> bool:
        """Whether one more refusal costs no retry. `first`: when this request was refused first (monotonic)."""
        now = time.monotonic()
        since = self._since
        if since is None:
            since = self._since = now
        return now - since < WINDOW_S and now - first < PATIENCE_S


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a request may use, as endpoints count them before they answer: its text, and all it is granted."""
    return prompt_size(body) // BYTES_PER_TOKEN + granted_tokens(body)


def prompt_size(body: Mapping[str, Any]) -> int:
    """Bytes of text of a request."""
    texts = [body.get("prompt") or ""]
    texts += [message.get("content") or "" for message in body.get("messages") or [] if isinstance(message, Mapping)]
    return sum(len(str(text).encode("utf-8", "replace")) for text in texts)


def granted_tokens(body: Mapping[str, Any]) -> int:
    """The most tokens that an answer to this body may have; 0 where it does not say."""
    granted = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
    copies = body.get("n")
    each = max((number for number in granted if type(number) is int and number > 0), default=0)
    return each * (copies if type(copies) is int and copies > 0 else 1)


class RateLimiter:
    """Lets requests through at the rate that the user allows; safe among threads."""

    def __init__(self, requests: int | None, tokens: int | None, *, per_ms: int = MINUTE_MS) -> None:
        """`requests`, `tokens`: so many in any interval of `per_ms`."""
        self._limits: list[tuple[Any, Callable[[int], int]]] = []
        self._door = asyncio.Lock()
        self._counts_tokens = tokens is not None
        if requests is None and tokens is None:
            return
        from pyrate_limiter import Limiter, Rate  # imported here: it takes 150 ms, and few endpoints have such a limit

        if requests is not None:
            self._limits.append((Limiter(Rate(requests, per_ms)), lambda _tokens: 1))
        if tokens is not None:
            grain = math.ceil(tokens / GRAINS)
            most = tokens // grain

            def grains(estimated: int) -> int:
                """A request that is larger than the limit takes it whole."""
                return min(most, max(1, math.ceil(estimated / grain)))

            self._limits.append((Limiter(Rate(most, per_ms)), grains))

    def wait(self, body: Mapping[str, Any], stop: threading.Event) -> None:
        """Return when the request may be sent, or when `stop` is set. In the order of coming: nobody starves."""
        if self._limits:
            bridge.wait_for(self._wait(estimated_tokens(body) if self._counts_tokens else 0, stop))

    async def _wait(self, tokens: int, stop: threading.Event) -> None:
        async with self._door:
            for _ in self.tries(tokens):
                if stop.is_set():
                    return
                await asyncio.sleep(POLL_S)

    def tries(self, tokens: int) -> Iterator[None]:
        """Ends when a request of so many tokens may be sent; where it may not yet, each step asks once more.

        One at a time: whoever came first is let through before the next one tries.
        """
        for limiter, weight in self._limits:
            while not limiter.try_acquire("request", weight(tokens), blocking=False):
                yield


DECREASE = 0.7


class AdaptiveLimit:
    """How many at once, as the endpoint's answers have it; whoever uses it keeps threads apart."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = float(most)
        self._last_decrease = 0.0

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._allowed

    @property
    def places(self) -> int:
        return max(1, int(self._allowed))

    @property
    def is_whole(self) -> bool:
        """Whether as many are allowed as ever are."""
        return self._allowed >= self._most

    def too_many(self, since: float, now: float) -> None:
        """A request that began at `since` was refused: go down, once for all that were under way together."""
        if since >= self._last_decrease:
            self._allowed = max(1.0, self._allowed * DECREASE)
            self._last_decrease = now

    def answered(self) -> None:
        """One place more for each round of answers."""
        self._allowed = min(float(self._most), self._allowed + 1.0 / self._allowed)


class AdaptiveConcurrency:
    """Admits up to `most` requests of one process at once, and adapts."""

    def __init__(self, most: int) -> None:
        self._limit = AdaptiveLimit(most)
        self._inside = 0
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @property
    def allowed(self) -> float:
        """So many at once; only whole ones are let in."""
        return self._limit.allowed

    def enter(self) -> float:
        """Waits for a place; the time at which it was given."""
        with self._lock:
            turn = None if self._inside < self._limit.places else Future[None]()
            if turn is None:
                self._inside += 1
            else:
                self._waiting.append(turn)
        if turn is not None:
            try:
                bridge.result_of(turn)
            except BaseException:
                if not turn.cancel():
                    self.leave()
                raise
        return time.monotonic()

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._inside < self._limit.places:
            turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                self._inside += 1
                turn.set_result(None)

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a place; yields the time at which it was given."""
        since = self.enter()
        try:
            yield since
        finally:
            self.leave()

    def too_many(self, since: float) -> None:
        """The endpoint refused a request that began at `since`."""
        with self._lock:
            self._limit.too_many(since, time.monotonic())

    def answered(self) -> None:
        """The endpoint answered a request."""
        if self._limit.is_whole:  # read without the lock: the usual case costs nothing
            return
        with self._lock:
            self._limit.answered()
            self._let_in()


class Admission(Protocol):
    """Lets the requests to one endpoint through; safe among threads."""

    def slot(self) -> AbstractContextManager[float]:
        """Waits for a place among those that ask; gives what `too_many` wants to know of it.

        To leave it without an exception says that the endpoint answered.
        """

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        """Waits until this request is within the limits a minute."""

    def too_many(self, slot: float, pause: float | None) -> None:
        """The endpoint refused the request of this slot: it has too many.

        `pause`: seconds that it asks to wait; None: it does not say.
        """

    def stop(self) -> None:
        """No request will be sent any more: whoever waits is let go on, and finds out."""


class _Slot(AbstractContextManager[float]):
    """A place; written out, for a generator takes three times as long, and every request has one."""

    def __init__(self, concurrency: AdaptiveConcurrency) -> None:
        self._concurrency = concurrency

    def __enter__(self) -> float:
        return self._concurrency.enter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._concurrency.leave()
        if kind is None:
            self._concurrency.answered()


class LocalAdmission:
    """Of one client alone. What an endpoint asks to wait, the refused request waits itself."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._concurrency = AdaptiveConcurrency(settings.parallelism)
        self._rate_limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)
        self._stop = threading.Event()

    def slot(self) -> AbstractContextManager[float]:
        return _Slot(self._concurrency)

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        self._rate_limiter.wait(body, self._stop)

    def too_many(self, slot: float, pause: float | None) -> None:  # noqa: ARG002 - each thread waits its own
        self._concurrency.too_many(slot)

    def stop(self) -> None:
        self._stop.set()
