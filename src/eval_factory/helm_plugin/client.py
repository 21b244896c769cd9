"""Defines the client that HELM loads by its class name, which sends HELM's requests to an endpoint.

The client reads answers from the response cache, sends the other requests, and retries requests
that fail. If a request fails for good, HELM goes on with an empty completion, and the journal (the
table of all attempts in cache.db) holds the reason. A cause that affects every request (the key is
wrong, the model is unknown, no server answers) stops the run at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from helm.clients.client import Client
from helm.common.request import Request, RequestResult
from helm.proxy.retry import NonRetriableException

from eval_factory.core import logs
from eval_factory.core.enums import AttemptState
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import secret_in
from eval_factory.core.urls import host_and_port_of
from eval_factory.demo.server import DemoServer
from eval_factory.endpoint import bridge, made_pictures, openai_answers, openai_api
from eval_factory.endpoint.batched_requests import BatchedRole, WaitsForBatch
from eval_factory.endpoint.endpoint_settings import BATCH_OR_SINGLE, EndpointSettings
from eval_factory.endpoint.in_flight import Flight
from eval_factory.endpoint.limits import Admission
from eval_factory.endpoint.media import UnusableMedium
from eval_factory.endpoint.refused_parameters import Changes
from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    LimitReached,
    RequestFailed,
)
from eval_factory.endpoint.response_cache import Answer, Attempt, read_changes
from eval_factory.endpoint.retrying_client import Answered, RetryingClient
from eval_factory.endpoint.servers import Servers, make_servers
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.endpoint_messages import EndpointMessages, print_to_stderr
from eval_factory.helm_plugin.error_causes import raised_at
from eval_factory.helm_plugin.helm_results import Reply, ResultMaker, failed_result
from eval_factory.helm_plugin.keyed_requests import KeyedRequest, RequestMaker
from eval_factory.helm_plugin.session import Session, session_for
from eval_factory.tasks.oauth_services import oauth_services_in

_UNUSABLE = "unusable"  # the journal's outcome for a stored answer that was archived
_UNSCORABLE = "unscorable"  # the journal's outcome for an answer that HELM cannot score
_FAULT_OF_ERROR = {EndpointGone: logs.UNREACHABLE, EndpointUnusable: logs.REFUSED_BY_ENDPOINT}
"""The fault that a fatal event names, by the class of the error. A class is missing here if the
benchmark's own requests may have caused the error.
"""


class EndpointStopped(NonRetriableException):  # type: ignore[misc]
    """An error that ends all requests of a role; HELM does not retry such a request."""


class EndpointClient(Client):  # type: ignore[misc]
    """The client that HELM loads.

    Several of HELM's threads may each make a client at the start. All clients of one role share one
    `Endpoint`.
    """

    def __init__(self, *, cache_db: str, **settings: Any) -> None:
        """Make the client from the `args` in model_deployments.yaml.

        Args:
            cache_db: the path of the response cache.
            settings: the fields of `EndpointSettings`.
        """
        session = session_for(Path(cache_db).parent)
        role = settings["role"]
        with session.lock:
            if role not in session.clients:
                session.clients[role] = Endpoint(EndpointSettings.from_args(settings), session)
            self._endpoint: Endpoint = session.clients[role]

    def make_request(self, request: Request) -> RequestResult:
        return self._endpoint.make_request(request)


class Endpoint:
    """One OpenAI-compatible endpoint in one role: the evaluated model or a judge.

    An endpoint answers HELM's requests, from the cache or by asking its servers.
    """

    def __init__(self, settings: EndpointSettings, session: Session) -> None:
        self._settings = settings
        self._session = session
        self._role = settings.role
        self._events = session.events
        self._cache = session.cache
        for name in settings.secret_variables:
            secret = secret_in(os.environ, name)
            if secret is not None:
                session.redactor.learn(secret)
        # False if this run only scores stored answers of the model.
        self._is_asked = session.asks_model or settings.role != MODEL_ROLE
        self._stored_failures: dict[str, str] = {}
        """The key of a request -> the reason why the request failed in an earlier run."""
        self._secret_fields: dict[str, Any] = {}
        """Fields that are sent in every request, and never stored."""
        if self._is_asked:
            served_url = _demo_url() if settings.is_demo else None
            self._secret_fields = settings.secret_fields(os.environ)
        else:
            # No request is sent, so use a URL that does not exist: the model's server may have
            # ended, and the secret of its URL may be unset.
            served_url = "http://nobody.invalid"
            self._stored_failures = self._cache.failures()
        self._picture_folder = RunDir(self._cache.path.parent).made_pictures
        self._messages = EndpointMessages(settings, session.events)
        self._requests = RequestMaker(settings, self._stop)
        self._results = ResultMaker(settings, self._picture_folder, self._messages.warn_once)
        self._known_changes: list[Changes] = list(
            read_changes(self._cache.path, settings.url, settings.model_id)
        )
        """The changes with which the endpoint answered requests that it had refused unchanged."""
        servers = self._make_servers(served_url)
        # The run stops if this number of first requests all fail; 0 switches this check off. The
        # check is not needed if there are cached answers, which show that the endpoint works.
        first_requests = settings.stop_after_failures
        if self._cache.has_answers(settings.role, settings.model_id):
            first_requests = 0
        self._batch = self._batched_role()
        if self._batch is not None:
            # With batches, an answer 429 (Too Many Requests) always uses up a retry. A time limit
            # would not end the retries: the run consists of several passes of helm-run, and each
            # pass replays the stored replies within seconds.
            for server in servers.all:
                server.is_patient = False
        self._keys_of_earlier_passes: set[str] = set()  # see `_was_got_in_earlier_pass`
        if RunDir(self._cache.path.parent).batches.is_file():
            self._keys_of_earlier_passes = self._cache.answered_in_this_run(self._role)
        self._client = RetryingClient(
            settings, servers, first_requests=first_requests, budget=session.spending
        )
        self._has_several_servers = len(servers.all) > 1
        self._lock = threading.Lock()
        self._pending_replies: dict[str, Future[Reply]] = {}
        """A cache key -> the reply that one thread is getting; threads with equal requests wait."""
        self._stopped: str | None = None
        """The reason why no further request can succeed; None as long as requests can succeed."""

    def _make_servers(self, served_url: str | None) -> Servers:
        """Make the endpoint's servers.

        `served_url` is the URL to use instead of the settings' URL; None: use the settings'.
        """
        limits = self._session.limits

        def shared_admission(limit_name: str) -> Admission | None:
            """Return the admission for requests under a limit that several runs share, if any."""
            return None if limits is None else limits.admission(limit_name)

        roles_that_answered = HelmRunSettings.from_environment(os.environ).probed or frozenset()
        return make_servers(
            self._settings,
            env=os.environ,
            redactor=self._session.redactor,
            say=print_to_stderr,
            served_url=served_url,
            shared_admission=shared_admission,
            has_answered=self._role in roles_that_answered,
            services=oauth_services_in(os.environ),
        )

    def make_request(self, request: Request) -> RequestResult:
        """Answer one HELM request from the cache or the endpoint."""
        try:
            keyed = self._requests.keyed(request)
        except UnusableMedium as error:  # The request is never sent, so the journal has no entry.
            return self._failed(str(error))
        try:
            reply = self._reply_to(keyed)
            result = self._results.result(request, reply)
        except EndpointStopped:
            raise
        except WaitsForBatch:  # The request has not failed, so it is not counted.
            return failed_result("it waits for a batch")
        except RequestFailed as error:
            return self._failed(str(error))
        except sqlite3.Error as error:
            self._stop(
                f"cannot write {self._cache.path}: {error}\n"
                "  check the disk; the stored answers are not lost"
            )
        # Only a defect of eval-factory gets here. If the error reached HELM, HELM would send the
        # paid request five times and then give up.
        except Exception as error:
            message = f"unexpected {type(error).__name__} in {raised_at(error)}"
            self._events.emit(logs.WARNING, role=self._role, message=f"a request failed: {message}")
            self._cache.journal(
                self._instant_attempt(keyed.key, AttemptState.FAILED, message, number=1)
            )
            return self._failed(message)
        self._session.count(self._role, cached=reply.cached, tokens=reply.completion.tokens)
        return result

    def _failed(self, message: str) -> RequestResult:
        """Count a failed request, and return HELM's result for it."""
        self._session.count(self._role, failed=True)
        return failed_result(message)

    def _batched_role(self) -> BatchedRole | None:
        """Return the role whose requests are batched; None if each request is sent on its own."""
        settings = self._settings
        if not settings.batch or not self._is_asked:
            return None
        sends_singly = (
            settings.batch == BATCH_OR_SINGLE
            and HelmRunSettings.from_environment(os.environ).sends_singly
        )

        def note_waiting(key: str, fields: Mapping[str, Any]) -> None:
            """Note that the request with this cache key waits, with its further fields."""
            self._session.wait_for_batch({"key": key, "role": self._role, **fields})

        return BatchedRole(settings, self._session.batches, note_waiting, sends_singly=sends_singly)

    @property
    def settling_s(self) -> float:
        """The seconds after the last answer during which an answer may still become doubted.

        A doubted answer may belong to another question, because its connection brought more answers
        than questions were sent.
        """
        return self._client.settling_s

    def archive(self, key: str, reason: str) -> None:
        """Archive the answer that is stored under the key, if any, so that no run uses it."""
        if self._cache.holds(key):
            self._cache.archive_answer(key, self._instant_attempt(key, _UNUSABLE, reason))

    def forget(self, request: Request, reason: str) -> None:
        """Archive the answer to a request, because the answer could not be used.

        The next run sends the same request again.
        """
        for keyed in self._variants_of(self._requests.keyed(request)):
            self.archive(keyed.key, reason)

    def note_unscorable(self, request: Request, reason: str) -> None:
        """Note in the journal that HELM cannot score the answer to this request.

        The answer stays cached, so the next run does not send the request again.
        """
        self._cache.journal(
            self._instant_attempt(self._requests.keyed(request).key, _UNSCORABLE, reason)
        )

    def _instant_attempt(
        self, key: str, outcome: str, reason: str | None = None, *, number: int = 0
    ) -> Attempt:
        """Return a journal entry for an event that took no time.

        `number` is the number of the attempt; 0 if no request was sent.
        """
        return Attempt(
            key,
            self._role,
            number,
            outcome,
            status=None,
            error=reason,
            started=time.time(),
            latency_s=0.0,
        )

    def _cache_hit(self, key: str, completion: openai_answers.Completion) -> Attempt:
        """Return a journal entry for an answer that was read from the cache."""
        prompt_tokens, completion_tokens = completion.tokens
        return replace(
            self._instant_attempt(key, AttemptState.CACHED),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )

    def _variants_of(self, keyed: KeyedRequest) -> Iterator[KeyedRequest]:
        """Yield each form of the request under which its answer may be cached.

        The first form is the unchanged request. The others have the changes with which the endpoint
        answered earlier requests.
        """
        yield keyed
        with self._lock:
            known_changes = list(self._known_changes)
        for changes in known_changes:
            has_all_parameters = changes.keys() <= keyed.body.keys()
            if has_all_parameters:
                yield keyed.with_changes(changes)

    def _reply_to(self, keyed: KeyedRequest) -> Reply:
        """Return the reply to a request, from the cache or from the endpoint.

        If two threads make the same request at the same time, the request is sent once, and both
        threads get the same answer.
        """
        with self._lock:
            if self._stopped is not None:
                raise EndpointStopped(self._stopped)
            equal_request = self._pending_replies.get(keyed.key)
            own_request: Future[Reply] = Future()
            if equal_request is None:
                self._pending_replies[keyed.key] = own_request
        if equal_request is not None:
            # Another thread asks already.
            reply = replace(bridge.wait_for(equal_request), cached=True)
            self._cache.journal(self._cache_hit(reply.key, reply.completion))
            return reply
        try:
            reply = self._from_cache(keyed) or self._ask(keyed)
            own_request.set_result(reply)
            return reply
        except BaseException as error:
            own_request.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._pending_replies[keyed.key]

    def _from_cache(self, keyed: KeyedRequest) -> Reply | None:
        """Return the cached reply to a request; None if the cache has no usable answer."""
        for variant in self._variants_of(keyed):
            reply = self._cached_reply(variant.key)
            if reply is not None:
                return reply
        return None

    def _cached_reply(self, key: str) -> Reply | None:
        """Return the reply that is cached under a key; None if it is missing or unusable."""
        try:
            stored = self._cache.get(key)
            if stored is None:
                return None
            response, latency, created = stored
            completion = openai_answers.completion_of(response, self._settings.endpoint_type)
            if self._settings.endpoint_type == openai_api.IMAGES:
                for choice in completion.choices:
                    made_pictures.check_picture(self._picture_folder, choice.text)
        except openai_answers.UnusableAnswer as error:
            # An older version cached the answer, or the answer's pictures were deleted.
            self._cache.archive_answer(key, self._instant_attempt(key, _UNUSABLE, str(error)))
            return None
        is_cached = not self._was_got_in_earlier_pass(key)
        if is_cached:
            self._cache.journal(self._cache_hit(key, completion))
        return Reply(key, completion, latency, created, cached=is_cached)

    def _was_got_in_earlier_pass(self, key: str) -> bool:
        """Return True if an earlier pass of this run got the answer of the key.

        A run with batches consists of several passes of helm-run. The answer of an earlier pass is
        not reported as cached, because this run asked for it. Only the first call for a key returns
        True; at further calls the answer counts as cached.
        """
        with self._lock:
            was_got = key in self._keys_of_earlier_passes
            self._keys_of_earlier_passes.discard(key)
        return was_got

    def _ask(self, keyed: KeyedRequest) -> Reply:
        """Return the endpoint's reply to a request without a cached answer.

        Raises:
            RequestFailed: the request failed, or this run does not ask the model.
        """
        if not self._is_asked:
            if keyed.key in self._stored_failures:
                raise RequestFailed(self._stored_failures[keyed.key])
            self._session.not_stored.add(keyed.key)
            raise RequestFailed("not asked: the model's stored answers are scored")
        # A flight is the time between sending a request and storing its answer. It is noted in a
        # file, so that the next run finds a request that was interrupted.
        with self._cache.in_flight.flight(keyed.key, self._role) as flight:
            return self._answer_of(keyed, flight)

    def _answer_of(self, keyed: KeyedRequest, flight: Flight) -> Reply:
        """Send a request to the endpoint, store the answer, and return the reply."""
        batched = None if self._batch is None else self._batch.request(keyed.random)

        def note(
            number: int, outcome: str, error: RequestFailed, started: float, latency: float
        ) -> None:
            """Note a failed attempt in the journal."""
            # `consume` returns False if the journal already has this failure.
            if batched is not None and not batched.consume():
                return
            self._messages.report_busy(error)
            self._cache.journal(
                Attempt(
                    keyed.key,
                    self._role,
                    number,
                    outcome,
                    status=error.status,
                    error=str(error),
                    started=started,
                    latency_s=latency,
                )
            )
            flight.landed()  # The journal now has the attempt, so the file need not note it.

        try:
            body = {**keyed.body, **self._secret_fields}
            answered = self._client.ask(body, note, sending=flight.sent, batched=batched)
        except LimitReached as reached:
            self._session.stop_at_limit(str(reached))
            raise EndpointStopped(str(reached)) from reached
        except EndpointUnusable as error:
            self._stop(str(error), fault=_FAULT_OF_ERROR.get(type(error)))
        sent = keyed
        if answered.changes:
            sent = keyed.with_changes(answered.changes)
        # The latency of a batch's reply is the time that the batch took.
        if batched is not None and batched.waited_s is not None:
            answered = replace(answered, latency_s=batched.waited_s)
        self._store(sent, answered)
        if batched is not None:
            batched.consume()  # The journal now has the reply of the batch.
        return Reply(
            sent.key,
            answered.completion,
            latency_s=answered.latency_s,
            created=answered.started,
            cached=False,
        )

    def _store(self, sent: KeyedRequest, answered: Answered) -> None:
        """Store an answer together with the request that was answered.

        `sent` has the changes that the endpoint asked for.
        """
        changes = answered.changes
        completion = answered.completion
        adjustments = self._messages.adjustments(answered)
        for adjustment in adjustments:
            self._messages.warn_once(adjustment)
        self._store_pictures(completion)
        self._messages.warn_of_path_as_model(completion.body.get("model"))
        prompt_tokens, completion_tokens = completion.tokens
        answer = Answer(
            sent.key,
            self._role,
            self._settings.model_id,
            request=sent.body,
            response=completion.body,
            created=answered.started,
            latency_s=answered.latency_s,
        )
        attempt = Attempt(
            sent.key,
            self._role,
            answered.attempt,
            AttemptState.ANSWERED,
            status=200,
            # An answer has no error, so this column of the journal holds the adjustments.
            error="; ".join(adjustments) if adjustments else None,
            started=answered.started,
            latency_s=answered.latency_s,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )
        url_and_changes = (self._settings.url, changes) if changes else None
        server = answered.server if self._has_several_servers else None
        self._cache.save(answer, attempt, url_and_changes, server)
        # If the answer becomes doubted later (`settling_s`), the session notes its key, so that
        # the runner archives the answer.
        answered.doubt.when_raised(partial(self._session.doubt, self._role, sent.key))
        self._session.spending.count_answer(self._role, sent.body, completion)
        with self._lock:
            if changes and changes not in self._known_changes:
                self._known_changes.append(dict(changes))

    def _store_pictures(self, completion: openai_answers.Completion) -> None:
        """Store the pictures that the model made, if there are any."""
        if not completion.pictures:
            return
        try:
            made_pictures.store_pictures(self._picture_folder, completion.pictures)
        except OSError as error:
            self._stop(
                f"cannot write {self._picture_folder}: {error}\n"
                "  check the disk; the stored answers are not lost"
            )

    def _stop(self, message: str, *, fault: str | None = None) -> NoReturn:
        """Report the message once, and raise EndpointStopped: no further request can succeed.

        The message is fatal for the evaluated model, and the run ends. It is a warning for a judge,
        and only that judge is no longer asked.

        Args:
            message: the reason.
            fault: the kind of fault that the fatal event names, if it is known.
        """
        with self._lock:
            is_reported = self._stopped is not None
            self._stopped = message
        if is_reported:
            raise EndpointStopped(message)
        self._messages.report_stop(message, fault=fault)
        raise EndpointStopped(message)

    def ask_no_more(self, limit: str) -> None:
        """Send no more requests, because the run has reached this limit.

        Cached answers are still used.
        """
        self._client.stop(LimitReached(limit))


@cache
def _demo_url() -> str:
    """Start the embedded endpoint at the first call, and return its URL.

    The embedded endpoint ends with the process, so its context is entered and never left. If the
    guard refuses connections of this process, the guard then allows this endpoint.
    """
    url = DemoServer().__enter__().base_url
    guard = network_guard.current_guard()
    address = host_and_port_of(url)
    if guard is not None and address is not None:
        guard.allow(*address)
    return url
