"""A client that sends a request again until it is answered or fails for good.

The client decides which failures lead to another attempt. The counts in `failure_counts` decide
how often, and after which pause.

Words of this module (`failure_counts` explains: silent, unreachable, stray):

- A slot: allows one request to be in flight. A server's `admission` grants the slots.
- A turn: the server that one attempt may ask, with the attempt's slot there.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

from urllib3.util.retry import Retry

from eval_factory.core import foreign_text
from eval_factory.core.budget import SpendingLimit
from eval_factory.core.enums import AttemptState
from eval_factory.endpoint import (
    bridge,
    media,
    openai_answers,
    openai_api,
    refused_parameters,
    replies,
    stated_errors,
)
from eval_factory.endpoint.batched_requests import BatchedRequest
from eval_factory.endpoint.connections import PROXY_LOGIN_STATUS, Transport
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.failure_counts import (
    FirstRequests,
    OutageDetector,
    Tries,
    capped_pause,
)
from eval_factory.endpoint.http_wire import (
    Doubt,
    MalformedAnswerError,
    Reply,
    TransportError,
)
from eval_factory.endpoint.limits import RATE_LIMIT_STATUSES, asked_pause
from eval_factory.endpoint.refused_parameters import Changes
from eval_factory.endpoint.replies import EndpointUnusable, RequestFailed
from eval_factory.endpoint.servers import LONG_PAUSE_S, Server, Servers, Turn
from eval_factory.endpoint.sign_in import SignInError

RETRIED_STATUSES = (frozenset({408, 409, 425, *range(500, 600)}) | RATE_LIMIT_STATUSES) - {501, 505}
"""The HTTP statuses after which a request is sent again.

- 408 Request Timeout, 409 Conflict, 425 Too Early: the server was not ready for the request.
- 429 Too Many Requests, 498 (Groq's own): a limit was reached.
- 5xx: the server or a gateway failed. Gateways have statuses of their own (520 to 527, 529).
- Not 501 Not Implemented and 505 HTTP Version Not Supported: another attempt gets the same answer.
"""
STOPPING_STATUSES = frozenset({401, 403, 404})
"""The HTTP statuses after which the run stops, unless the refusal is about a single prompt.

- 401 Unauthorized, 403 Forbidden: the key is wrong, or may not use the model.
- 404 Not Found: the URL or the model is wrong.
"""
PROMPT_STATUSES = frozenset({403, 404})
"""The HTTP statuses with which moderation and gateways also refuse single prompts.

Before the first answer, these statuses are about the key or the model.
"""
OVERLOAD_STATUSES = RATE_LIMIT_STATUSES | {503, 529}
"""The HTTP statuses after which fewer requests are sent at once.

- 429 Too Many Requests, 498 (Groq's own): a limit was reached.
- 503 Service Unavailable, 529 (a gateway's own): the server is overloaded.
"""
REFUSALS_IN_A_ROW = 20
"""The number of refusals in a row that shows that the key or the model is refused.

It is very unlikely that so many single prompts in a row are refused: less than once in a million,
even if a moderation refuses every second prompt.
"""
BACKOFF_FACTOR_S = 0.5
"""The factor of urllib3's backoff, and the maximum random part of a pause (jitter), in seconds."""
BACKOFF_MAX_S = 60.0
"""The longest pause of the backoff, in seconds."""
TRIES_TO_REACH = 3
"""The number of attempts to reach an endpoint that never answered.

More attempts would only let the user wait longer.
"""
# NVCF: NVIDIA Cloud Functions
NVCF_MAX_HOLD_S = 300
"""The maximum seconds for which a cloud function (NVCF) is asked to hold a request open."""
NVCF_FIRST_PAUSE_S = 0.25
NVCF_MAX_PAUSE_S = 5.0
"""The first and the longest pause between two polls of a cloud function, in seconds."""
NVCF_STATUS_URL_VARIABLE = "NVCF_STATUS_URL"
NVCF_STATUS_URL = "https://api.nvcf.nvidia.com/v2/nvcf/pexec/status"

# texts of messages
DOUBT_REASON = "its connection brought more answers than were asked for"
IN_A_200 = " (in an answer with status 200)"
HELD_BACK = (
    "HTTP 202: the answer is to come later; a later answer is only fetched from a cloud function "
    "(use_nvcf)"
)


@dataclass(frozen=True)
class Answered:
    """A usable answer, with facts about the attempt that brought the answer.

    Attributes:
        completion: the answer.
        attempt: the number of the attempt.
        started: the time at which the attempt began, in seconds since the epoch.
        latency_s: the seconds until the answer had arrived.
        changes: the changes of the request's parameters that the endpoint asked for.
        server: the URL of the server that answered, as the configuration has it.
        doubt: reports later if the answer may belong to another question.
    """

    completion: openai_answers.Completion
    attempt: int
    started: float
    latency_s: float
    changes: Changes
    server: str
    doubt: Doubt


@dataclass(frozen=True)
class _AttemptOptions:
    """The options with which one attempt is sent.

    Attributes:
        about_to_send: is called just before the attempt is sent.
        may_renew: whether a refused key or token may be renewed.
        is_alone: whether the attempt uses a new connection.
        batched: holds the replies to a request that goes by batch; None: the request is sent.
    """

    about_to_send: Callable[[], None]
    may_renew: bool
    is_alone: bool
    batched: BatchedRequest | None


_Note = Callable[[int, str, RequestFailed, float, float], None]
"""Notes an attempt without an answer: (attempt, state, error, started, latency in seconds)."""


class _Attempt:
    """An attempt at a request, with its times.

    Attributes:
        started: the time at which the attempt began, in seconds since the epoch.
    """

    def __init__(self, number: int, note: _Note) -> None:
        """Begin the attempt with this number; `note` is called if it ends without an answer."""
        self.started = time.time()
        self._number = number
        self._note = note
        self._clock = time.perf_counter()

    def got_slot(self) -> None:
        """Measure the latency from now on, without the time of waiting for the slot."""
        self._clock = time.perf_counter()

    def latency_s(self) -> float:
        """Return the seconds since the request got its slot, or else since the attempt began."""
        return time.perf_counter() - self._clock

    def ended(self, state: AttemptState, error: RequestFailed) -> None:
        """Note that the attempt ended now, without an answer."""
        self._note(self._number, state, error, self.started, self.latency_s())

    def was_refused(self, status: int | None) -> None:
        """Note that the attempt was refused with this status.

        Without a status, the request was not sent, and nothing is noted.
        """
        if status is not None:
            self.ended(AttemptState.REFUSED, RequestFailed(f"HTTP {status}", status))


Sending = Callable[[int, float], None]
"""A function that is called just before an attempt is sent: (number of the attempt, started)."""


def _ignore_sending(_attempt: int, _started: float) -> None:
    """Do nothing before an attempt is sent."""


class _RetryWithChanges(Exception):
    """The endpoint refused the request, but may accept a changed request at once.

    With `changes`, the next attempt has other parameters; without `changes`, another token.
    """

    def __init__(self, status: int, changes: Changes = MappingProxyType({})) -> None:
        super().__init__(status)
        self.status = status
        self.changes = changes


@dataclass(frozen=True)
class _Exchange:
    """A request that was sent, and its reply.

    Attributes:
        sent: the body of the request.
        reply: the reply.
        turn: the server that was asked, and the request's slot there.
    """

    sent: Mapping[str, Any]
    reply: Reply
    turn: Turn

    @property
    def searched_text(self) -> str:
        """The beginning of the reply's body, in which words of errors are searched."""
        beginning = self.reply.data[: refused_parameters.SEARCHED_LENGTH]
        return beginning.decode("utf-8", "replace")


class RetryingClient:
    """A client of an endpoint, which has one or several servers; threads may share the client."""

    def __init__(
        self,
        settings: EndpointSettings,
        servers: Servers,
        *,
        first_requests: int = 0,
        budget: SpendingLimit | None = None,
    ) -> None:
        """Make the client of one endpoint.

        Args:
            settings: the endpoint's settings.
            servers: the endpoint's servers.
            first_requests: the number of first requests; the run stops if all of them fail. 0: the
                run never stops for this reason.
            budget: has to allow each request before the request is sent; None: there is no budget.
        """
        self._servers = servers
        self._messages = servers.all[0].messages.with_all_urls(
            [server.messages.url for server in servers.all]
        )
        self._redactor = servers.redactor
        self._timeout_s = servers.all[0].transport.timeout_s
        self._status_url = (os.environ.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL).rstrip("/")
        self._nvcf: Transport | None = None
        """The connection to the address where a cloud function's later answers are polled."""
        if settings.use_nvcf:
            self._nvcf = Transport(self._status_url, timeout_s=self._timeout_s)
        self._reader = replies.ReplyReader(self._redactor, settings.endpoint_type)
        self._retries = Retry(
            total=settings.max_retries,
            backoff_factor=BACKOFF_FACTOR_S,
            backoff_jitter=BACKOFF_FACTOR_S,
            backoff_max=BACKOFF_MAX_S,
            allowed_methods=None,
        )
        self._outage = OutageDetector(
            max_retries=settings.max_retries, parallelism=settings.parallelism
        )
        self._first = FirstRequests(first_requests)
        self._budget = budget
        self._max_refusals = max(REFUSALS_IN_A_ROW, 2 * settings.parallelism)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._unusable: EndpointUnusable | None = None
        self._changes: dict[str, openai_api.Change] = {}
        """A dict from each parameter that the endpoint refuses to the change that helps."""

    def ask(
        self,
        body: Mapping[str, Any],
        note: _Note,
        sending: Sending = _ignore_sending,
        batched: BatchedRequest | None = None,
    ) -> Answered:
        """Send a request until it is answered or fails for good, and return the answer.

        Args:
            body: the body of the request.
            note: is called with each attempt without an answer.
            sending: is called with the number and time of each attempt before the attempt is sent.
            batched: holds the replies to a request that goes by batch; None: the request is sent.

        Raises:
            RequestFailed: this request failed for good.
            EndpointUnusable: no further request can be sent; the client has stopped.
            WaitsForBatch: no batch has brought the answer yet.
        """
        number = self._first.start()
        try:
            return self._ask(body, note, sending, batched)
        except RequestFailed as failed:
            causes = self._first.failed(number, failed.cause)
            if causes is None:
                raise
            kind: type[EndpointUnusable] = replies.NoneAnswered
            # No answer, or an error of the server itself: a later run may succeed.
            if failed.status is None or failed.status >= 500:
                kind = replies.EndpointGone
            unusable = kind(self._messages.none_answered(self._first.total, causes))
            self.stop(unusable)
            raise unusable from failed
        except EndpointUnusable as unusable:
            self.stop(unusable)
            raise

    @property
    def settling_s(self) -> float:
        """The seconds after the last answer within which an answer may still become doubtful."""
        return max(server.transport.settling_s for server in self._servers.all)

    def stop(self, unusable: EndpointUnusable) -> None:
        """Send no further request, and end all pauses; answers to sent requests are awaited."""
        # Set the error first: the requests that the next lines wake raise it.
        with self._lock:
            self._unusable = self._unusable or unusable
        self._stop.set()
        self._servers.stop()

    def _ask(
        self, body: Mapping[str, Any], note: _Note, sending: Sending, batched: BatchedRequest | None
    ) -> Answered:
        """Send a request until it is answered or fails for good, and note each attempt."""
        tries = Tries(self._retries)
        own_changes: dict[str, openai_api.Change] = {}  # those that this request's errors asked for
        avoided = set[Server]()  # servers that the next attempt asks only if there is no other
        refusing = set[Server]()  # servers that refused this request
        number = 1  # of the attempt; it only grows with each retry
        may_renew = True  # the token; it is renewed at most once
        while True:
            attempt = _Attempt(number, note)
            try:
                with self._servers.turn(body, avoided) as turn:
                    self._raise_if_stopped()
                    attempt.got_slot()
                    changes = {**self._known_changes(body), **own_changes}
                    options = _AttemptOptions(
                        about_to_send=partial(sending, number, attempt.started),
                        may_renew=may_renew,
                        is_alone=tries.strays > 0,
                        batched=batched,
                    )
                    answer, doubt = self._send_once(body, changes, turn, options)
            except EndpointUnusable as unusable:
                attempt.was_refused(unusable.status)
                raise
            except _RetryWithChanges as refused:
                attempt.was_refused(refused.status)
                own_changes = refused_parameters.merged_changes(own_changes, refused.changes)
                if not refused.changes:  # the token was renewed just now
                    may_renew = False
                continue
            except TransportError as error:
                failed = self._failure_of(error)
                pause = self._pause_after(error, tries, turn, attempt.latency_s())
                avoided = {*refusing, turn.server}
                is_last = pause is None or number >= TRIES_TO_REACH
                is_outage = self._is_outage(error, last=is_last)
                is_over = is_outage or pause is None
                attempt.ended(AttemptState.FAILED if is_over else AttemptState.RETRIED, failed)
            except RequestFailed as failure:
                is_over = self._is_refused_by_all(failure.status, turn.server, refusing)
                attempt.ended(AttemptState.FAILED if is_over else AttemptState.REFUSED, failure)
                if is_over:
                    raise
                avoided = set(refusing)
                continue  # at another server
            else:
                url = turn.server.name
                latency_s = attempt.latency_s()
                self._count_answer(own_changes, turn.server)
                return Answered(answer, number, attempt.started, latency_s, changes, url, doubt)
            # Continue outside the `except` blocks: inside, the error keeps its answer in memory.
            if is_outage:
                raise self._gone(failed)
            if pause is None:
                raise failed
            number += 1
            self._wait(pause, batched)

    def _send_once(
        self, body: Mapping[str, Any], changes: Changes, turn: Turn, options: _AttemptOptions
    ) -> tuple[openai_answers.Completion, Doubt]:
        """Send a request once, with these changes, and return the answer and its doubt."""
        sent = openai_api.with_changes(body, changes)
        reply = self._send(sent, turn.server, options)
        return self._usable(_Exchange(sent, reply, turn)), reply.doubt

    def _failure_of(self, error: TransportError) -> RequestFailed:
        """Return the failure of the request after this error, without secrets."""
        return RequestFailed(self._redactor.redact_text(str(error)), error.status, error.error_text)

    def _wait(self, pause: float, batched: BatchedRequest | None) -> None:
        """Pause before the next attempt, unless the last reply came from a batch."""
        if batched is None or not batched.is_replayed:
            bridge.pause(self._stop, pause)

    def _count_answer(self, changes: Mapping[str, openai_api.Change], server: Server) -> None:
        """Note an answer, and remember the changes with which the request was answered."""
        self._changes.update(changes)
        self._servers.answered(server)
        self._first.answered()

    def _is_refused_by_all(self, status: int | None, server: Server, refusing: set[Server]) -> bool:
        """Return True if no other server may answer the request that this server refused.

        Only a refusal with one of `PROMPT_STATUSES` may come from this server alone: it may have
        lost the model. The server is then added to `refusing`, the servers that refused the
        request.
        """
        if status not in PROMPT_STATUSES:
            return True
        refusing.add(server)
        return not self._servers.has_another_well(refusing)

    def _known_changes(self, body: Mapping[str, Any]) -> dict[str, openai_api.Change]:
        """Return the changes of the body's parameters with which a request was answered.

        A change that has not led to an answer is only used for its own request: an error may name
        a parameter only because the prompt names the parameter.
        """
        applicable: dict[str, openai_api.Change] = {}
        for name, change in list(self._changes.items()):  # a copy: other threads add changes
            if name in body:
                applicable[name] = change
        return applicable

    def _gone(self, failed: RequestFailed) -> replies.EndpointGone:
        """Return the error for an endpoint that no longer answers, or never did."""
        if self._servers.has_answered:
            return replies.EndpointGone(self._messages.outage(str(failed)))
        return replies.EndpointGone(self._messages.unreachable(str(failed)))

    def _pause_after(
        self, error: TransportError, tries: Tries, turn: Turn, latency: float
    ) -> float | None:
        """Note a failed attempt, and return the seconds to the next attempt.

        Return None if no attempt is left. The pause is 0 if another server is well.
        """
        has_other_server = False
        if not error.stray:
            # `failed` notes the failure, and returns True if another server is well.
            has_other_server = self._servers.failed(turn.server, capped_pause(error.headers))
        # A silent attempt that ended before the timeout has lost its connection.
        was_lost = error.silent and latency < self._timeout_s
        if has_other_server and was_lost:
            tries.moves += 1
            # One move to each of the other servers costs no retry.
            if tries.moves < len(self._servers.all):
                return 0.0
        pause = tries.pause_after(error, turn.server, has_answered=self._servers.has_answered)
        if has_other_server and pause is not None:
            return 0.0
        return pause

    def _raise_if_stopped(self) -> None:
        """Raise the error that stopped the client; do nothing if the client was not stopped."""
        if self._unusable is not None:
            # Make a new error: several threads may raise it, and each has its own traceback.
            raise type(self._unusable)(str(self._unusable))

    def _is_outage(self, error: TransportError, *, last: bool) -> bool:
        """Count a silent attempt; return True if the endpoint is gone, so that the run stops.

        `last` says whether this was the last attempt to reach an endpoint that never answered.
        """
        if error.unreachable and not self._servers.has_answered:
            return last
        return error.silent and self._outage.nothing_received(unreachable=error.unreachable)

    def _send(self, body: Mapping[str, Any], server: Server, options: _AttemptOptions) -> Reply:
        """Return the reply of a batch, or else send the request and return its reply.

        Raises:
            _RetryWithChanges: the token was refused, and another token is available.
        """
        if options.batched is not None:
            batch_reply = options.batched.reply(body)
            if batch_reply is not None:
                return batch_reply
        sign_in = self._servers.sign_in
        try:
            authorization = sign_in.header()
            reply = self._send_signed(body, server, authorization, options)
            self._outage.received()
            may_renew = reply.status == 401 and options.may_renew
            if may_renew and sign_in.renew(authorization):
                raise _RetryWithChanges(reply.status)
            return reply
        except SignInError as error:
            raise EndpointUnusable(self._messages.with_judge(str(error))) from error
        except TransportError as error:
            if not error.silent:
                self._outage.received()
            raise

    def _send_signed(
        self,
        body: Mapping[str, Any],
        server: Server,
        authorization: str | None,
        options: _AttemptOptions,
    ) -> Reply:
        """Send the request with its credentials and files, if the budget allows the request.

        Raises:
            LimitReached: the budget does not allow the request.
        """
        headers = dict(self._servers.headers)
        if authorization:
            headers["Authorization"] = authorization
        if self._nvcf is not None:
            # Ask for half of the timeout, so that the function answers 202 before the timeout.
            hold_s = int(min(NVCF_MAX_HOLD_S, self._timeout_s / 2))
            headers["NVCF-POLL-SECONDS"] = str(max(1, hold_s))
        # Here again, because the client may have stopped while this request got its token.
        self._raise_if_stopped()
        sent = _with_media(body)
        if self._budget is not None:
            reached_limit = self._budget.begin()
            if reached_limit is not None:
                raise replies.LimitReached(reached_limit)
        post = server.transport.post
        if options.is_alone:
            post = server.transport.post_alone
        options.about_to_send()
        reply = post(server.url, sent, headers)
        if self._nvcf is None:
            return reply
        return self._polled(reply, headers, self._nvcf)

    def _polled(self, reply: Reply, headers: Mapping[str, str], transport: Transport) -> Reply:
        """Return the answer of a cloud function; poll the function while it is working.

        A working function answers 202, and gives its answer at the status URL later. The POST and
        the polls together are one attempt, with the timeout of one attempt. A failed poll is not a
        failed attempt: the function continues its work, and another POST would be paid for again.
        """
        if reply.status != 202:
            return reply
        request_id = reply.headers.get("nvcf-reqid")
        if not request_id:
            raise TransportError("the cloud function answered 202 without NVCF-REQID", status=202)
        deadline = time.monotonic() + self._timeout_s
        pause = NVCF_FIRST_PAUSE_S
        while reply.status == 202 or reply.status in RETRIED_STATUSES:
            self._raise_if_stopped()
            if time.monotonic() + pause > deadline:
                raise TransportError(
                    f"the cloud function gave no answer within {self._timeout_s:g} s", status=202
                )
            bridge.pause(self._stop, pause)
            pause = min(2 * pause, NVCF_MAX_PAUSE_S)
            with contextlib.suppress(TransportError):
                reply = transport.get(f"{self._status_url}/{request_id}", headers)
        return reply

    def _usable(self, exchange: _Exchange) -> openai_answers.Completion:
        """Return the answer in a reply; raise an error if it is a stray, or cannot be used."""
        reply = exchange.reply
        try:
            if reply.doubt.is_raised:
                raise TransportError(DOUBT_REASON, stray=True)
            return self._completion(exchange)
        finally:
            reply.body_slot.release()  # another large body may now be read into memory

    def _completion(self, exchange: _Exchange) -> openai_answers.Completion:
        """Return the answer in a reply; if it holds no answer, raise the error that it means."""
        reply = exchange.reply
        if not 200 <= reply.status < 300:
            text = self._reader.error_text(reply, exchange.sent)
            self._raise_refusal(exchange, reply.status, text)
        try:
            return self._reader.answer(reply)
        except openai_answers.UnusableAnswer as error:
            message = foreign_text.one_line(
                self._redactor.redact_text(str(error)), prompt=foreign_text.texts_in(exchange.sent)
            )
            self._raise_unusable(exchange, error, message)

    def _raise_unusable(
        self, exchange: _Exchange, error: openai_answers.UnusableAnswer, message: str
    ) -> NoReturn:
        """Raise the error for a reply with a status of 2xx that holds no usable answer.

        SECURITY.md states when such a request is sent, and paid, again.

        Args:
            exchange: the request and its reply.
            error: the reason why the answer cannot be used.
            message: the text of `error`, without secrets and without the prompt.
        """
        status = exchange.reply.status
        if isinstance(error, openai_answers.StatedError):
            self._raise_refusal(exchange, error.status, message, where=IN_A_200)
        if status == 202:
            # Do not ask again: the server would do the work twice.
            raise RequestFailed(HELD_BACK, status=202) from error
        if isinstance(error, openai_answers.FinalAnswer):
            raise RequestFailed(message, status) from error
        if isinstance(error, openai_answers.InterruptedAnswer):
            raise TransportError(message, status=status) from error
        raise MalformedAnswerError(message, status=status) from error

    def _raise_refusal(
        self, exchange: _Exchange, status: int, text: str, *, where: str = ""
    ) -> NoReturn:
        """Raise the error that a refusal with this status means.

        The error is about this attempt (`TransportError`, `_RetryWithChanges`), this request
        (`RequestFailed`) or all requests (`EndpointUnusable`).

        Args:
            exchange: the request and its reply.
            status: the status of the reply, or the status that an error within the reply states.
            text: the error text of the reply.
            where: `IN_A_200` if an answer with status 200 holds the error, else an empty text.
        """
        turn = exchange.turn
        if status in refused_parameters.STATUSES:
            changes = refused_parameters.changes_asked_for(exchange.searched_text, exchange.sent)
            if changes:
                raise _RetryWithChanges(status, changes)
        messages = turn.server.messages
        headers = replies.headers_of(exchange.reply)
        self._raise_if_waiting_cannot_help(exchange, status, text, headers)
        if status in RETRIED_STATUSES:
            if status in OVERLOAD_STATUSES:
                # From now on, fewer requests are sent to this server at once.
                turn.server.admission.too_many(turn.slot, capped_pause(headers))
            meaning = ""
            if status in RATE_LIMIT_STATUSES:
                meaning = " (rate limit)"
            raise TransportError(
                f"HTTP {status}{meaning}{where}: {text}",
                status=status,
                headers=headers,
                error_text=text,
            )
        if status == PROXY_LOGIN_STATUS:
            raise EndpointUnusable(
                messages.proxy_login(PROXY_LOGIN_STATUS, turn.server.url), PROXY_LOGIN_STATUS
            )
        if status in STOPPING_STATUSES:
            is_about_a_prompt = self._count_refusal(status, turn.server)
            if not is_about_a_prompt:
                raise EndpointUnusable(messages.refused(status, text), status)
        if 300 <= status < 400:
            raise EndpointUnusable(messages.moved(status), status)
        raise RequestFailed(f"HTTP {status}{where}: {text}", status, text)

    def _raise_if_waiting_cannot_help(
        self, exchange: _Exchange, status: int, text: str, headers: Mapping[str, str]
    ) -> None:
        """Send this server no more requests if it has no credit, or a limit of hours or days.

        With a limit of hours or days, nothing is raised if another server is left: the caller then
        retries the request there.

        Raises:
            EndpointUnusable: no server is left.
            TransportError: this server has no credit left, but another server may have credit.
        """
        server = exchange.turn.server
        is_overloaded = status in OVERLOAD_STATUSES
        pause = asked_pause(headers)
        if pause is None and is_overloaded:  # the words of the error may state a pause
            pause = stated_errors.pause_in(text)
        has_long_limit = is_overloaded and pause is not None and pause > LONG_PAUSE_S
        # A server that asks for a short pause stays in use: it may answer after the pause.
        may_close = has_long_limit or not pause  # None or 0
        if may_close and stated_errors.means_no_credit(status, text, exchange.searched_text):
            is_last_server = self._servers.close(server, math.inf)
            if is_last_server:
                raise EndpointUnusable(server.messages.no_credit(status, text), status)
            raise TransportError(f"HTTP {status}: {text}", status=status, error_text=text)
        if pause is None and status in RATE_LIMIT_STATUSES:  # the words may name a limit per day
            has_long_limit = stated_errors.means_long_limit(text)
        if not has_long_limit:
            return
        closed_for_s = math.inf if pause is None else pause
        is_last_server = self._servers.close(server, closed_for_s)
        if is_last_server:
            raise EndpointUnusable(server.messages.long_limit(status, text, pause), status)

    def _count_refusal(self, status: int, server: Server) -> bool:
        """Count a refusal, and return True if the refusal is about a single prompt.

        A refusal of a single prompt only costs the prompt's instance; any other stops the run.
        """
        with self._lock:
            server.refusals += 1
            return (
                status in PROMPT_STATUSES
                and server.has_answered
                and server.refusals < self._max_refusals
            )


def _with_media(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body with the content of its files.

    The client calls this after all waiting, so that few files are in memory at once.

    Raises:
        RequestFailed: a file cannot be used.
    """
    if not media.has_media(body):
        return body
    try:
        filled: Mapping[str, Any] = bridge.run_in_thread(media.with_file_contents, body)
    except media.UnusableMedium as error:
        raise RequestFailed(str(error)) from None
    return filled
