"""What an endpoint may be asked: so many requests at once, so many requests and tokens a minute, none during a pause.

`Limit` knows whose turn it is. A `Hub` holds limits and grants what its clients ask for; an `Admission` asks for one
endpoint. A run of its own has its own hub; runs of a suite share one (`eval_factory.endpoint.shared_limits`).

Headers: RFC 9110 `Retry-After`; OpenAI's and Azure's `retry-after-ms` and `x-ratelimit-*`; Anthropic's
`anthropic-ratelimit-*`; LiteLLM repeats a provider's own under `llm_provider-`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

from eval_factory.core.budget import BYTES_PER_TOKEN, AnyPurse
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import LimitOf

MINUTE_S = 60.5
"""A little more than one: the first request of a minute may take longer to arrive (its connection is made, its process
is busy) than the first of the next, and the endpoint counts arrivals."""
_Key = TypeVar("_Key", bound=Hashable)

_PREFIXES = ("", "llm_provider-")
_RESETS = (
    "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-reset", "x-ratelimit-reset", "ratelimit-reset",
)  # fmt: skip
"""Headers that say when a limit is over; with `remaining` for `reset`, what is left of it."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
"""OpenAI's: 1s, 6m0s, 1h2m3.5s, 120ms."""
_DURATION_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_MAX_LENGTH = 64
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
"""From here on a number is a point in time (seconds, milliseconds since 1970); below, seconds from now."""


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that the headers of an error ask to wait; None where they say nothing that can be read."""
    known = {name.lower(): value for name, value in headers.items() if len(value) <= _MAX_LENGTH}
    for prefix in _PREFIXES:
        milliseconds = _number(known.get(f"{prefix}retry-after-ms"))
        if milliseconds is not None:
            return milliseconds / 1000
        pause = _retry_after(known.get(f"{prefix}retry-after"))
        if pause is not None:
            return pause
    for prefix in _PREFIXES:
        resets = {name: pause for name in _RESETS if (pause := _until(known.get(prefix + name))) is not None}
        left = {name: _number(known.get(prefix + name.replace("reset", "remaining"))) for name in resets}
        if resets:
            return max([pause for name, pause in resets.items() if left[name] == 0] or resets.values())
    return None


def _retry_after(value: str | None) -> float | None:
    """Seconds, or a date."""
    seconds = _number(value)
    if seconds is not None or value is None:
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


DECREASE = 0.7


class AdaptiveLimit:
    """How many at once, as the endpoint's answers have it; whoever uses it keeps threads apart.

    Additive increase, multiplicative decrease: D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems 17, 1989.
    """

    def __init__(self, most: int) -> None:
        self._most, self.allowed, self._last_decrease = most, float(most), 0.0

    @property
    def slots(self) -> int:
        return max(1, int(self.allowed))

    def too_many(self, since: float, now: float) -> None:
        """A request that began at `since` was refused: go down, once for all that were under way together."""
        if since >= self._last_decrease:
            self.allowed = max(1.0, self.allowed * DECREASE)
            self._last_decrease = now

    def answered(self) -> None:
        """One slot more for each round of answers."""
        self.allowed = min(float(self._most), self.allowed + 1.0 / self.allowed)


class _Window:
    """So much in any interval of a minute."""

    def __init__(self, most: int | None) -> None:
        self._most, self._used = most, 0
        self._taken: deque[tuple[float, int]] = deque()

    def seconds_until(self, amount: int, now: float) -> float:
        """Until it fits; 0: it does. What is larger than the limit takes all of it."""
        while self._taken and self._taken[0][0] + MINUTE_S <= now:
            self._used -= self._taken.popleft()[1]
        if self._most is None:
            return 0.0
        missing = self._used + min(amount, self._most) - self._most
        for when, taken in self._taken if missing > 0 else ():
            missing -= taken
            if missing <= 0:
                return when + MINUTE_S - now
        return 0.0

    def take(self, amount: int, now: float) -> None:
        if self._most is not None:
            self._taken.append((now, min(amount, self._most)))
            self._used += self._taken[-1][1]


class Limit(Generic[_Key]):
    """The limit of one endpoint: who has a slot, who waits for one or for a minute, until when nobody gets one.

    No thread, no socket and no timer is in here: whoever uses it keeps threads apart, and asks again in time.
    """

    def __init__(self, most: LimitOf, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at_once = clock, AdaptiveLimit(most.parallelism)
        self._requests, self._tokens = _Window(most.requests_per_minute), _Window(most.tokens_per_minute)
        self._coming = itertools.count()
        self._queue: list[tuple[int, int, _Key]] = []
        """A heap of priority, number of its coming, key; those that wait no more may still be in it."""
        self._waiting: set[_Key] = set()
        self._since: dict[_Key, float] = {}
        """Key with a slot -> since when, by this process's clock: others may have another one."""
        self._minutes: dict[_Key, int] = {}
        """Key that waits for its minute -> its tokens; in the order of coming."""
        self._closed_until = -math.inf

    def acquire(self, key: _Key, priority: int = 0) -> None:
        """Wait for a slot. A lower priority goes first; within one, who came first."""
        self._waiting.add(key)
        heapq.heappush(self._queue, (priority, next(self._coming), key))

    def acquire_minute(self, key: _Key, tokens: int) -> None:
        """Wait until one more request, and its tokens, are within what is allowed a minute."""
        self._minutes[key] = tokens

    def release(self, key: _Key, *, answered: bool = False) -> None:
        """Give back the slot, or wait no more. `answered`: the endpoint did."""
        self._waiting.discard(key)
        self._minutes.pop(key, None)
        if self._since.pop(key, None) is not None and answered:
            self._at_once.answered()

    def too_many(self, key: _Key, pause: float | None) -> None:
        """The endpoint refused a request; where it asks to wait for so many seconds, nobody gets a slot meanwhile."""
        since = self._since.get(key)
        if since is None:
            return
        now = self._clock()
        self._at_once.too_many(since, now)
        if pause is not None:
            self._closed_until = max(self._closed_until, now + pause)

    def granted(self) -> Iterator[_Key]:
        """Those whose turn it is now."""
        now = self._clock()
        while self._waiting and len(self._since) < self._at_once.slots and now >= self._closed_until:
            *_, key = heapq.heappop(self._queue)
            if key in self._waiting:
                self._waiting.remove(key)
                self._since[key] = now
                yield key
        while self._minutes:
            key, tokens = next(iter(self._minutes.items()))  # nobody passes whoever came first
            if self._seconds_to_minute(tokens, now):
                return
            self._requests.take(1, now)
            self._tokens.take(tokens, now)
            del self._minutes[key]
            yield key

    def seconds_to_next(self) -> float | None:
        """Until the next turn though nothing happens meanwhile; None: there is none."""
        if not self._minutes and not self._waiting:
            return None
        now = self._clock()
        turns = [self._seconds_to_minute(tokens, now) for tokens in list(self._minutes.values())[:1]]
        if self._waiting and now < self._closed_until:
            turns.append(self._closed_until - now)
        return min(turns, default=None)

    def _seconds_to_minute(self, tokens: int, now: float) -> float:
        return max(self._requests.seconds_until(1, now), self._tokens.seconds_until(tokens, now))


_Asked: TypeAlias = "tuple[HubClient, int]"
"""A request at a hub: who asks, and the number of it there."""


class HubClient(Protocol):
    """Who asks a hub: one process."""

    priority: int
    """A lower one has its slots first."""
    limits: dict[int, Limit[_Asked]]
    """Of each of its requests that waits or has a slot, by number."""

    def send(self, message: Mapping[str, Any]) -> None: ...


class Hub:
    """Limits by the name of the group that shares them, and the budget of all; safe among threads.

    Takes messages as `eval_factory.endpoint.shared_limits` lists them.
    """

    def __init__(self, limits: Mapping[str, LimitOf], budget: AnyPurse | None = None) -> None:
        self._limits: dict[str, Limit[_Asked]] = {name: Limit(most) for name, most in limits.items()}
        self._budget, self._lock = budget, threading.Lock()
        self._due: dict[Limit[_Asked], float] = {}
        """When time alone brings the next turn."""

    def take(self, client: HubClient, message: Mapping[str, Any]) -> None:
        """Raises ValueError, TypeError or KeyError where it is no message of ours."""
        with self._lock:
            what = message["do"]
            if what == "begin":
                reached = None if self._budget is None else self._budget.begin()
                client.send({"id": message["id"], "reached": reached})
            elif what == "spend" and self._budget is not None:
                self._budget.spend(tokens=message["tokens"], cost=message["cost"])
            elif what in ("slot", "rate"):
                limit = client.limits[message["id"]] = self._limits[message["group"]]
                if what == "slot":
                    limit.acquire((client, message["id"]), client.priority)
                else:
                    limit.acquire_minute((client, message["id"]), message["tokens"])
                self._grant(limit)
            elif what == "too_many" and (known := client.limits.get(message["id"])) is not None:
                known.too_many((client, message["id"]), message["pause"])
            elif what == "leave" and (known := client.limits.pop(message["id"], None)) is not None:
                known.release((client, message["id"]), answered=message["answered"])
                self._grant(known)
            elif what not in ("spend", "too_many", "leave"):
                raise ValueError(what)

    def forget(self, client: HubClient) -> None:
        """It is gone, or has all it wanted."""
        with self._lock:
            for number, limit in client.limits.items():
                limit.release((client, number))
            for limit in set(client.limits.values()):
                self._grant(limit)
            client.limits.clear()

    def _grant(self, limit: Limit[_Asked]) -> None:
        """Tell whoever has a turn, and look again when time alone brings the next."""
        for client, number in limit.granted():
            client.send({"id": number})
        seconds = limit.seconds_to_next()
        if seconds is not None and (due := time.monotonic() + seconds) < self._due.get(limit, math.inf):
            self._due[limit] = due
            loop = bridge.the_loop()
            loop.call_soon_threadsafe(loop.call_later, seconds, self._look, limit)

    def _look(self, limit: Limit[_Asked]) -> None:
        with self._lock:
            self._due.pop(limit, None)
            self._grant(limit)


class LimitClient:
    """What the threads of one process ask a hub, and what it answers."""

    is_shared = True
    """Whether other processes ask the same hub."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[threading.Event, Future[Mapping[str, Any] | None]]] = {}
        self._lock = threading.Lock()

    def number(self) -> int:
        """One that no other request of this process has."""
        return next(self._numbers)

    def ask(self, message: Mapping[str, Any], stop: threading.Event) -> Mapping[str, Any] | None:
        """The answer; None where `stop` was set first."""
        answer: Future[Mapping[str, Any] | None] = Future()
        self._waiting[message["id"]] = stop, answer
        try:
            if stop.is_set():  # nobody would wake this one
                return None
            self.tell(message)
            return bridge.wait_for(answer)
        finally:
            del self._waiting[message["id"]]

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say what is not answered at once."""
        raise NotImplementedError

    def received(self, message: Mapping[str, Any]) -> None:
        """The hub's answer."""
        waiting = self._waiting.get(message["id"])
        if waiting is not None:  # else it was interrupted meanwhile
            self._wake([waiting[1]], message)

    def let_go(self, stop: threading.Event | None = None) -> None:
        """Wake those whom this event stops; None: all."""
        self._wake([answer for event, answer in list(self._waiting.values()) if stop is None or event is stop], None)

    def _wake(self, answers: Sequence[Future[Mapping[str, Any] | None]], message: Mapping[str, Any] | None) -> None:
        with self._lock:  # the first answer counts
            for answer in answers:
                if not answer.done():
                    answer.set_result(message)


class Admission:
    """Lets the requests to one endpoint through; safe among threads."""

    def __init__(self, client: LimitClient, group: str, most: LimitOf) -> None:
        self._client, self._group, self._stop = client, group, threading.Event()
        self._counts_tokens = most.tokens_per_minute is not None
        self._has_rate = self._counts_tokens or most.requests_per_minute is not None

    def slot(self) -> AbstractContextManager[int]:
        """Waits for a slot among those that ask; gives what `too_many` wants to know of it.

        To leave it without an exception says that the endpoint answered.
        """
        return self._granted("slot")

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        """Waits until this request is within the limits a minute."""
        if self._has_rate:
            with self._granted("rate", tokens=estimated_tokens(body) if self._counts_tokens else 0):
                pass

    def too_many(self, slot: int, pause: float | None) -> None:
        """The endpoint refused the request of this slot: it has too many.

        `pause`: seconds that it asks to wait; None: it does not say. In a process alone each request waits its own.
        """
        self._client.tell({"do": "too_many", "id": slot, "pause": pause if self._client.is_shared else None})

    def stop(self) -> None:
        """No request will be sent any more: whoever waits is let go on, and finds out."""
        self._stop.set()
        self._client.let_go(self._stop)

    @contextmanager
    def _granted(self, what: str, **more: Any) -> Iterator[int]:
        number, answered = self._client.number(), False
        try:
            self._client.ask({"do": what, "id": number, "group": self._group, **more}, self._stop)
            yield number
            answered = True
        finally:
            self._client.tell({"do": "leave", "id": number, "answered": answered})


class _OwnHub(LimitClient):
    """A hub in this process, for this process alone."""

    is_shared, priority = False, 0

    def __init__(self, most: LimitOf) -> None:
        super().__init__()
        self.limits: dict[int, Limit[_Asked]] = {}
        self._hub, self.send = Hub({"": most}), self.received

    def tell(self, message: Mapping[str, Any]) -> None:
        self._hub.take(self, message)


class LocalAdmission(Admission):
    """Within limits of one client alone."""

    def __init__(self, most: LimitOf) -> None:
        super().__init__(_OwnHub(most), "", most)
