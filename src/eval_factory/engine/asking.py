"""One request, asked until it is answered or given up: which failures are worth another try, when, and how often.

Retry arithmetic (backoff, jitter, Retry-After in seconds and dates) is urllib3's `Retry`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from urllib3.exceptions import InvalidHeader, MaxRetryError
from urllib3.response import HTTPResponse
from urllib3.util.retry import Retry

from eval_factory import foreign_text
from eval_factory.engine import wire
from eval_factory.engine.auth import SignIn, SignInError
from eval_factory.engine.limit import AdaptiveLimit
from eval_factory.engine.pulse import OUTAGE_S, Pulse
from eval_factory.engine.refusals import Refusals
from eval_factory.engine.transport import PROXY_LOGIN, Reply, Transport, TransportError, proxy_variable
from eval_factory.secrets import Redactor

RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)}) - {501, 505}
"""Gateways have 5xx of their own (520 to 527, 529); only "not implemented" and "no such HTTP" stay as they are."""
STOPPING_STATUSES = frozenset({401, 403, 404})
OF_A_PROMPT = frozenset({403, 404})
"""Moderation and gateways say these of single prompts; before any answer, they speak of the key or the model."""
REFUSALS_IN_A_ROW = 20
"""So many without an answer between speak of the key or the model again. A refusal costs nothing but its instance,
and one prompt in two may be moderated: that is twenty in a row once in a million."""
TOO_MANY = frozenset({429, 503, 529})
BACKOFF_FACTOR_S = 0.5
BACKOFF_MAX_S = 60.0
SILENCE_FACTOR = 4
"""Where not a byte came: with five retries, the pauses are a minute together, and a server may restart in it."""
OUTAGE_PAUSE_MAX_S = 10.0
RETRY_AFTER_MAX_S = 120.0
TRIES_TO_REACH = 3
"""Where nobody ever answered, more tries than these only keep the user waiting."""
ERROR_TEXT_LIMIT = foreign_text.LONGEST
MINUTE_MS = 60_000

NVCF_LONGEST_HOLD_S = 300
NVCF_FIRST_PAUSE_S = 0.25
NVCF_LONGEST_PAUSE_S = 5.0
NVCF_STATUS_URL_VARIABLE = "NVCF_STATUS_URL"
NVCF_STATUS_URL = "https://api.nvcf.nvidia.com/v2/nvcf/pexec/status"

HELD_BACK = "HTTP 202: the answer is to come later; only that of a cloud function is fetched (use_nvcf)"


class RequestFailed(Exception):
    """This request failed for good; others may not."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class StopAsking(Exception):
    """No request can succeed: the key, the model or the address is wrong, or nobody is there."""


class _Transient(Exception):
    """This attempt failed; another may not."""

    def __init__(
        self,
        message: str,
        status: int | None,
        headers: Mapping[str, str],
        *,
        unreachable: bool = False,
        silent: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.headers, self.unreachable, self.silent = status, headers, unreachable, silent


class _Refused(Exception):
    """The endpoint refuses a field of the body; without it, it may answer."""


@dataclass(frozen=True)
class Answered:
    """A usable answer, and how it was had."""

    body: dict[str, Any]
    attempt: int
    started: float
    latency_s: float
    adjustments: tuple[str, ...]


class _Tries:
    """What one request may still try."""

    def __init__(self, retries: Retry) -> None:
        self._retries = retries
        self._waits = retries.new(total=None, backoff_max=OUTAGE_PAUSE_MAX_S)
        self._silent_since: float | None = None

    def pause_after(self, error: _Transient, *, bridge: bool) -> float | None:
        """Seconds to the next try; None where there is none.

        `bridge`: the endpoint was there before. While no connection can be made nothing is sent, so nothing can be
        paid twice: such tries cost no retry as long as it may be restarting.
        """
        now = time.monotonic()
        if not error.silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        if bridge and error.unreachable and now - (self._silent_since or now) < OUTAGE_S:
            self._waits = self._waits.increment("POST", error=error)
            return _pause(self._waits, {})
        try:
            self._retries = self._retries.increment("POST", error=error)
        except MaxRetryError:
            return None
        return _pause(self._retries, error.headers) * (SILENCE_FACTOR if error.silent else 1)


Note = Callable[[int, str, RequestFailed, float, float], None]
"""(attempt, outcome, error, started, latency): what the journal is told of an attempt without an answer."""


class Asker:
    """Asks one endpoint; safe among threads."""

    def __init__(
        self,
        transport: Transport,
        *,
        url: str,
        endpoint_type: str,
        model_id: str,
        max_retries: int,
        parallelism: int,
        use_nvcf: bool,
        redactor: Redactor,
        sign_in: SignIn,
        requests_per_minute: int | None = None,
        has_answered: bool = False,
    ) -> None:
        """`has_answered`: it is known to be there, and to take the key and the model."""
        self._transport = transport
        self._sign_in = sign_in
        self._wait_for_a_turn = _turns(requests_per_minute)
        self._url, self._type, self._model_id = url, endpoint_type, model_id
        self._use_nvcf, self._redactor = use_nvcf, redactor
        self._retries = Retry(
            total=max_retries,
            backoff_factor=BACKOFF_FACTOR_S,
            backoff_jitter=BACKOFF_FACTOR_S,
            backoff_max=BACKOFF_MAX_S,
            retry_after_max=int(RETRY_AFTER_MAX_S),
            allowed_methods=None,
        )
        self.limit = AdaptiveLimit(parallelism)
        self._has_answered = has_answered
        self._pulse = Pulse(max_retries=max_retries, parallelism=parallelism)
        self._refusals = 0
        self._most_refusals = max(REFUSALS_IN_A_ROW, 2 * parallelism)
        self._lock = threading.Lock()
        self._stopped: StopAsking | None = None
        self._stop = threading.Event()
        self._refused = Refusals()

    def ask(self, body: Mapping[str, Any], note: Note) -> Answered:
        """Ask until there is an answer.

        Raises:
            RequestFailed: this request cannot be answered.
            StopAsking: none can.
        """
        try:
            return self._ask(body, note)
        except StopAsking as stop:
            with self._lock:
                self._stopped = self._stopped or stop
            self._stop.set()
            raise

    def _ask(self, body: Mapping[str, Any], note: Note) -> Answered:
        tries, attempt = _Tries(self._retries), 1
        while True:
            started, clock = time.time(), time.perf_counter()
            adjustments: tuple[str, ...] = ()
            try:
                with self.limit.slot() as since:
                    if self._stopped is not None:
                        raise StopAsking(str(self._stopped))
                    clock = time.perf_counter()
                    answer, adjustments = self._attempt(body, since)
            except _Transient as error:
                failed = RequestFailed(self._redactor.text(str(error)), error.status)
                latency = time.perf_counter() - clock
                pause = tries.pause_after(error, bridge=self._has_answered)
                gone = self._is_gone(error, last=pause is None or attempt >= TRIES_TO_REACH)
                note(attempt, "failed" if gone or pause is None else "retried", failed, started, latency)
                if gone:
                    raise StopAsking(self._nobody_there(failed)) from None
                if pause is None:
                    raise failed from None
                self._stop.wait(pause)
                attempt += 1
                continue
            except RequestFailed as failed:
                note(attempt, "failed", failed, started, time.perf_counter() - clock)
                raise
            latency = time.perf_counter() - clock
            self._has_answered, self._refusals = True, 0
            self.limit.answered()
            return Answered(answer, attempt, started, latency, adjustments)

    def _is_gone(self, error: _Transient, *, last: bool) -> bool:
        """Whether it makes no sense to ask anything else. `last`: of the tries to reach what never answered."""
        if error.unreachable and not self._has_answered:
            return last
        return error.silent and self._pulse.silence(unreachable=error.unreachable)

    def _attempt(self, body: Mapping[str, Any], since: float) -> tuple[dict[str, Any], tuple[str, ...]]:
        """One attempt; more than one request only where the endpoint refuses a field and is asked without it."""
        while True:
            sent, adjustments = self._refused.heeded(body)
            try:
                return self._usable(self._send(sent), sent, since), adjustments
            except _Refused:
                continue

    def _send(self, body: Mapping[str, Any]) -> Reply:
        try:
            authorization = self._sign_in.header()
            reply = self._signed(body, authorization)
            if reply.status == 401 and self._sign_in.renew(authorization):
                reply = self._signed(body, self._sign_in.header())
            self._pulse.heard()
            return reply
        except SignInError as error:
            raise StopAsking(str(error)) from error
        except TransportError as error:
            if not error.silent:
                self._pulse.heard()
            raise _Transient(str(error), None, {}, unreachable=error.unreachable, silent=error.silent) from error

    def _signed(self, body: Mapping[str, Any], authorization: str | None) -> Reply:
        headers = {"Authorization": authorization} if authorization else {}
        if self._use_nvcf:
            hold = min(NVCF_LONGEST_HOLD_S, self._transport.timeout_s / 2)  # it answers 202 before we hang up
            headers["NVCF-POLL-SECONDS"] = str(max(1, int(hold)))
        self._wait_for_a_turn()
        reply = self._transport.post(self._url, body, headers)
        return self._polled(reply, headers) if self._use_nvcf else reply

    def _polled(self, reply: Reply, headers: Mapping[str, str]) -> Reply:
        """A cloud function answers 202 while it works; its status address has the answer later.

        POST and polls together are one attempt, and have its time. A poll that fails is no new attempt: the function
        works on, and a new one would be paid for again.
        """
        status_url = (os.environ.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL).rstrip("/")
        deadline, pause = time.monotonic() + self._transport.timeout_s, NVCF_FIRST_PAUSE_S
        if reply.status != 202:
            return reply
        waiting = reply.headers.get("NVCF-REQID")
        if not waiting:
            raise _Transient("the cloud function answered 202 without NVCF-REQID", 202, {})
        while reply.status == 202 or reply.status in RETRIED_STATUSES:
            if self._stopped is not None:
                raise StopAsking(str(self._stopped))
            if time.monotonic() + pause > deadline:
                raise _Transient(f"the cloud function gave no answer within {self._transport.timeout_s:g} s", 202, {})
            self._stop.wait(pause)
            pause = min(2 * pause, NVCF_LONGEST_PAUSE_S)
            with contextlib.suppress(TransportError):
                reply = self._transport.get(f"{status_url}/{waiting}", headers)
        return reply

    def _usable(self, reply: Reply, sent: Mapping[str, Any], since: float) -> dict[str, Any]:
        if 200 <= reply.status < 300:
            try:
                return self._answer_in(reply)
            except wire.UnusableAnswer as error:
                if reply.status == 202:  # asked again, it would do the work again
                    raise RequestFailed(HELD_BACK, 202) from error
                told = foreign_text.one_line(self._redactor.text(str(error)), prompt=foreign_text.texts_in(sent))
                raise _Transient(told, reply.status, {}) from error
        text = self._said(reply, sent)
        if reply.status in RETRIED_STATUSES:
            if reply.status in TOO_MANY:
                self.limit.too_many(since)
            named = " (rate limit)" if reply.status == 429 else ""
            raise _Transient(f"HTTP {reply.status}{named}: {text}", reply.status, reply.headers)
        if reply.status == PROXY_LOGIN:
            raise StopAsking(
                f"the proxy on the way to {self._shown_url} answers {PROXY_LOGIN}: it wants a user name and password\n"
                f"  check the variable {proxy_variable(self._url)}"
            )
        if reply.status in STOPPING_STATUSES and not self._is_of_a_prompt(reply.status):
            raise StopAsking(self._refusal(reply, text))
        if 300 <= reply.status < 400:
            raise StopAsking(
                f"{self._shown_url} answers {reply.status}, it has moved\n  check target.api_endpoint.url"
            )
        if reply.status == 400 and self._refused.learn(self._shown(reply)[:ERROR_TEXT_LIMIT], sent):
            raise _Refused
        raise RequestFailed(f"HTTP {reply.status}: {text}", reply.status)

    def _shown(self, reply: Reply) -> str:
        """The body of an error, redacted whole: who cuts a key, or reads it with JSON's escapes, does not know it."""
        with contextlib.suppress(wire.UnusableAnswer, RecursionError):
            said = wire.parse_answer(reply.data)
            safe = self._redactor.tree(said)
            if safe != said:
                return json.dumps(safe, ensure_ascii=False)
        return self._redactor.text(reply.text())

    def _answer_in(self, reply: Reply) -> dict[str, Any]:
        try:
            # An endpoint may echo what it was asked with; a key is not kept in any file. Nothing else is changed:
            # what looks like a key may be the model's answer.
            answer: Any = self._redactor.tree(wire.parse_answer(reply.data), known_only=True)
            wire.read_answer(answer, self._type)
        except RecursionError as error:
            raise wire.UnusableAnswer("the answer is nested too deeply") from error
        return dict(answer)

    def _is_of_a_prompt(self, status: int) -> bool:
        """Whether a refusal costs its instance only."""
        if status not in OF_A_PROMPT or not self._has_answered:
            return False
        with self._lock:
            self._refusals += 1
            return self._refusals < self._most_refusals

    def _refusal(self, reply: Reply, text: str) -> str:
        said = f"\n  it says: {text}" if text else ""
        if reply.status == 404:
            return (
                f"{self._shown_url} answers 404: there is no such address, or no model {self._model_id!r}{said}\n"
                "  check target.api_endpoint.url and model_id"
            )
        return (
            f"Authentication error detected: {self._shown_url} answers {reply.status}{said}\n"
            "  check the variable that target.api_endpoint.api_key names, and that its key may use this model"
        )

    def _said(self, reply: Reply, sent: Mapping[str, Any]) -> str:
        """What an error says, fit to be shown. Of an error object the message alone: the rest may hold prompts."""
        said = None
        with contextlib.suppress(wire.UnusableAnswer, RecursionError):
            said = foreign_text.said_in(self._redactor.tree(wire.parse_answer(reply.data)))
        if said is None:
            said = foreign_text.plain(self._redactor.text(reply.text()))
        return foreign_text.one_line(said, ERROR_TEXT_LIMIT, prompt=foreign_text.texts_in(sent))

    def _nobody_there(self, failed: RequestFailed) -> str:
        if self._has_answered:
            kept = "what was answered is kept: the same command goes on"
            return f"{self._shown_url} no longer answers: {failed}\n  {kept}"
        return f"cannot reach {self._shown_url}: {failed}\n  check target.api_endpoint.url and the network"

    @property
    def _shown_url(self) -> str:
        return self._redactor.text(self._url)


def _turns(requests: int | None, per_ms: int = MINUTE_MS) -> Callable[[], object]:
    """What waits until another request may be sent: so many in any such interval."""
    if requests is None:
        return lambda: None
    from pyrate_limiter import Limiter, Rate  # imported here: few endpoints have such a limit

    limiter = Limiter(Rate(requests, per_ms))
    return lambda: limiter.try_acquire("request", blocking=True)


def _pause(retries: Retry, headers: Mapping[str, str]) -> float:
    """Seconds: as many as the endpoint asks for (Retry-After, capped), or the backoff says."""
    try:
        asked = retries.get_retry_after(HTTPResponse(headers=headers, status=429))
    except (InvalidHeader, ValueError, OverflowError):  # thousands of digits, or a date after the last one
        asked = None
    return asked or retries.get_backoff_time()
