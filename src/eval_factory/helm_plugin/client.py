"""The client that HELM loads by class name: one endpoint, a keep-alive pool, retries, the response store.

A request that fails for good is reported as a non-fatal failure: HELM goes on with an empty completion, the journal
keeps the reason, and the collector takes the instance out of the score. What no request can mend (the key is wrong,
the model is unknown, nobody answers) stops the run at once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from helm.clients.client import Client, truncate_sequence
from helm.common.request import ErrorFlags, GeneratedOutput, Request, RequestResult, Thinking, Token
from helm.proxy.retry import NonRetriableException

from eval_factory.core import events
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.hosts import place_of
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import filled, first_secret, secret_in, variables_in
from eval_factory.demo.server import DemoServer
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.first_requests import FirstRequests
from eval_factory.endpoint.rate_limits import Patience, Turns
from eval_factory.endpoint.response_cache import Answer, Attempt, RequestChanges, read_changes
from eval_factory.endpoint.retrying_client import Asker, RequestFailed, StopAsking
from eval_factory.endpoint.sign_in import sign_in
from eval_factory.endpoint.stop_messages import messages_of
from eval_factory.endpoint.transport import Transport
from eval_factory.endpoint.unsupported_params import told
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.session import Session, session_for

OWN_TEXT_END = "<|endoftext|>"
"""Completions endpoints may send text past this mark; HELM's own client cuts there too."""

TOO_MANY_REQUESTS = 429
SAY_BUSY_EVERY_S = 10.0


class EndpointStopped(NonRetriableException):  # type: ignore[misc]
    """The run cannot go on; HELM does not retry this kind."""


@dataclass(frozen=True)
class _Reply:
    response: dict[str, Any]
    latency_s: float
    created: float
    cached: bool


class EndpointClient(Client):  # type: ignore[misc]
    """What HELM loads. Its threads may each make one at the start: all of one role share one endpoint."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are the `args` in model_deployments.yaml, the parameters of `Endpoint`."""
        clients = session_for(Path(settings["cache_db"]).parent).clients
        with _clients_lock:
            if settings["role"] not in clients:
                clients[settings["role"]] = Endpoint(**settings)
            self._endpoint: Endpoint = clients[settings["role"]]

    def make_request(self, request: Request) -> RequestResult:
        return self._endpoint.make_request(request)


class Endpoint:
    """One OpenAI-compatible endpoint in one role. The key is read from the first of `key_names` that is set."""

    def __init__(
        self,
        role: str,
        url: str,
        model_id: str,
        endpoint_type: str,
        key_names: list[str],
        request_timeout: float,
        max_retries: int,
        parallelism: int,
        cache_db: str,
        adapter: dict[str, Any],
        top_p: float | None = None,
        use_nvcf: bool = False,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        stop_after_failures: int = 0,
        oauth: dict[str, str | None] | None = None,
    ) -> None:
        self._session: Session = session_for(Path(cache_db).parent)
        self._role = role
        self._model_id = model_id
        self._type = endpoint_type
        self._top_p = top_p
        self._identity_url = url
        self._adapter = openai_api.Adapter(**adapter)
        redactor = self._session.redactor
        for name in variables_in([url, self._adapter.params_to_add]):
            redactor.learn(secret_in(os.environ, name) or "")
        key = first_secret(os.environ, key_names)
        served = _served_url(filled(url, os.environ))
        self._secret_fields = {
            name: filled(value, os.environ)
            for name, value in self._adapter.params_to_add.items()
            if variables_in(value)
        }
        """Sent in every request, and kept nowhere."""
        asked_url = openai_api.request_url(served, endpoint_type, use_nvcf=use_nvcf)
        answered = self._session.store.has_answers(role, model_id)
        self._variants = read_changes(self._session.store.path, url, model_id)
        """The changes with which requests were answered that the endpoint refused as they were."""
        self._asker = Asker(
            Transport(served, timeout_s=request_timeout, connections=parallelism),
            url=asked_url,
            endpoint_type=endpoint_type,
            max_retries=max_retries,
            parallelism=parallelism,
            use_nvcf=use_nvcf,
            redactor=redactor,
            sign_in=sign_in(key=key, oauth=oauth, env=os.environ, redactor=redactor, say=_say),
            messages=messages_of(role, redactor.text(asked_url), model_id, key_names, oauth, os.environ),
            turns=Turns(requests_per_minute, tokens_per_minute),
            first=FirstRequests(stop_after_failures, answered=answered),
            patience=Patience(),
            has_answered=role in (HelmRunSettings.from_environment(os.environ).probed or ()),
        )
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[_Reply]] = {}
        self._stopped: str | None = None
        self._warned = False
        self._told: set[str] = set()
        self._said_busy = -SAY_BUSY_EVERY_S

    def make_request(self, request: Request) -> RequestResult:
        """Answer one HELM request from the store or the endpoint."""
        key, body = self._key_and_body(request)
        try:
            reply = self._once(key, body, request.random)
            result = self._result(request, reply)
        except EndpointStopped:
            raise
        except RequestFailed as error:
            return self._failed(str(error))
        except sqlite3.Error as error:
            self._stop(f"cannot write {self._session.store.path}: {error}\n  check the disk; what was kept stays")
        except Exception as error:  # whatever an answer sets off here: HELM would pay for it five times, and give up
            return self._failed(self._unexpected(key, error))
        self._session.count(self._role, cached=reply.cached, tokens=openai_api.usage_of(reply.response))
        return result

    def _failed(self, message: str) -> RequestResult:
        self._session.count(self._role, failed=True)
        return _failure(message)

    def _unexpected(self, key: str, error: Exception) -> str:
        """Tell of a defect of ours by its type and place; its own text may hold a prompt."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"unexpected {type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
        self._session.events.emit(events.WARNING, role=self._role, message=f"a request failed: {message}")
        self._session.store.journal(Attempt(key, self._role, 1, "failed", None, message, time.time(), 0.0))
        return message

    def forget(self, request: Request, reason: str) -> None:
        """The answer could not be used: it is kept, but the same request is asked anew in the next run."""
        _, body = self._key_and_body(request)
        for key in self._keys(body, request.random):
            if self._session.store.holds(key):
                self._set_aside(key, reason)

    def note_unscorable(self, request: Request, reason: str) -> None:
        """The answer came, and HELM cannot score it: it is kept, and not asked for again."""
        key, _ = self._key_and_body(request)
        self._session.store.journal(Attempt(key, self._role, 0, "unscorable", None, reason, time.time(), 0.0))

    def _set_aside(self, key: str, reason: str) -> None:
        attempt = Attempt(key, self._role, 0, "unusable", None, reason, time.time(), 0.0)
        self._session.store.set_answer_aside(key, attempt)

    def _key_and_body(self, request: Request) -> tuple[str, dict[str, Any]]:
        fields = {name: getattr(request, name) for name in _REQUEST_FIELDS}
        body = openai_api.request_body(
            fields, model_id=self._model_id, endpoint_type=self._type, top_p=self._top_p, adapter=self._adapter
        )
        return openai_api.request_key(self._identity_url, body, request.random), body

    def _keys(self, body: dict[str, Any], random: str | None) -> Iterator[str]:
        with self._lock:
            variants = list(self._variants)
        return openai_api.request_keys(self._identity_url, body, random, variants)

    def _once(self, key: str, body: dict[str, Any], random: str | None) -> _Reply:
        """The same request asked twice at the same time is sent once; both get the one answer."""
        with self._lock:
            if self._stopped is not None:
                raise EndpointStopped(self._stopped)
            future = self._in_flight.get(key)
            mine = future is None
            if future is None:
                future = self._in_flight[key] = Future()
        if not mine:
            return future.result()
        try:
            reply = self._from_store(key)
            if reply is None and self._variants:
                found = map(self._from_store, self._keys(body, random))
                reply = next((kept for kept in found if kept is not None), None)
            reply = reply or self._ask(key, body, random)
            future.set_result(reply)
            return reply
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._in_flight[key]

    def _from_store(self, key: str) -> _Reply | None:
        try:
            found = self._session.store.get(key)
            if found is None:
                return None
            response, latency, created = found
            openai_api.read_answer(response, self._type)
        except openai_api.UnusableAnswer as error:  # kept by an older version
            self._set_aside(key, str(error))
            return None
        tokens = openai_api.usage_of(response)
        self._session.store.journal(Attempt(key, self._role, 0, "cached", None, None, time.time(), 0.0, *tokens))
        return _Reply(response, latency, created, cached=True)

    def _ask(self, key: str, body: dict[str, Any], random: str | None) -> _Reply:
        def note(number: int, outcome: str, error: RequestFailed, started: float, latency: float) -> None:
            if error.status in (TOO_MANY_REQUESTS, None):
                self._say_busy(str(error))
            self._session.store.journal(
                Attempt(key, self._role, number, outcome, error.status, str(error), started, latency)
            )

        try:
            answered = self._asker.ask({**body, **self._secret_fields}, note)
        except StopAsking as error:
            self._stop(str(error))
        changes, adjustments, changed = answered.changes, told(answered.changes), None
        if changes:
            body = openai_api.changed(body, changes)
            key = openai_api.request_key(self._identity_url, body, random)
            changed = RequestChanges(self._identity_url, self._model_id, changes)
            self._tell_once(adjustments)
        tokens = openai_api.usage_of(answered.body)
        self._session.store.save(
            Answer(key, self._role, self._model_id, body, answered.body, answered.started, answered.latency_s),
            Attempt(
                key,
                self._role,
                answered.attempt,
                "answered",
                200,
                "; ".join(adjustments) or None,
                answered.started,
                answered.latency_s,
                *tokens,
            ),
            changed,
        )
        with self._lock:
            if changes and changes not in self._variants:
                self._variants.append(dict(changes))
        return _Reply(answered.body, answered.latency_s, answered.started, cached=False)

    def _tell_once(self, adjustments: Sequence[str]) -> None:
        with self._lock:
            new = [adjustment for adjustment in adjustments if adjustment not in self._told]
            self._told.update(new)
        for adjustment in new:
            self._session.events.emit(events.WARNING, role=self._role, message=adjustment)

    def _say_busy(self, message: str) -> None:
        """One line for a while of rate limits, or of silence; the journal has them all."""
        with self._lock:
            now = time.monotonic()
            say = now - self._said_busy > SAY_BUSY_EVERY_S
            if say:
                self._said_busy = now
        if say:
            _say(f"{self._role}: {message}")

    def _stop(self, message: str) -> NoReturn:
        """End the run: what cannot be mended by asking on. A judge that cannot be asked ends itself only."""
        with self._lock:
            first, self._stopped = self._stopped is None, message
        if first:
            fatal = self._role == MODEL_ROLE
            _say(events.last_words(message, os.environ) if fatal else f"warning: {message}")
            self._session.events.emit(events.FATAL if fatal else events.WARNING, role=self._role, message=message)
        raise EndpointStopped(message)

    def _result(self, request: Request, reply: _Reply) -> RequestResult:
        choices = openai_api.read_answer(reply.response, self._type)
        if any(choice.finish_reason == openai_api.FILTERED for choice in choices):
            return _failure(openai_api.FILTERED_MESSAGE)
        completions = [self._completion(request, choice) for choice in choices]
        return RequestResult(
            success=True,
            cached=reply.cached,
            request_time=reply.latency_s,
            request_datetime=int(reply.created),
            completions=completions,
            embedding=[],
        )

    def _warn_of_too_few_tokens(self, granted: int) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            message = openai_api.TOO_FEW_TOKENS.format(granted=granted)
            self._session.events.emit(events.WARNING, role=self._role, message=message)

    def _completion(self, request: Request, choice: openai_api.Choice) -> GeneratedOutput:
        text, thought = self._adapter.without_reasoning(choice.text)
        if choice.finish_reason == openai_api.CUT_OFF and not text and self._role == MODEL_ROLE:
            self._warn_of_too_few_tokens(request.max_tokens)
        reasoning = choice.reasoning if thought is None else thought
        if request.echo_prompt and self._type == openai_api.CHAT:
            text = request.prompt + text
        output = GeneratedOutput(
            text=text,
            logprob=sum(value for _, value in choice.tokens),
            tokens=[Token(text=token, logprob=value) for token, value in choice.tokens],
            finish_reason={"reason": choice.finish_reason},
            thinking=Thinking(text=reasoning) if reasoning is not None else None,
        )
        end = None if self._type == openai_api.CHAT else OWN_TEXT_END
        return truncate_sequence(output, request, end_of_text_token=end, print_warning=False)


_REQUEST_FIELDS = (
    "prompt", "messages", "temperature", "num_completions", "max_tokens", "stop_sequences", "echo_prompt", "top_p",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip


def _say(line: str) -> None:
    print(own_lines(line), file=sys.stderr, flush=True)


def _failure(message: str) -> RequestResult:
    return RequestResult(
        success=False,
        cached=False,
        error=message,
        completions=[],
        embedding=[],
        error_flags=ErrorFlags(is_retriable=False, is_fatal=False),
    )


_clients_lock = threading.Lock()
_demo_lock = threading.Lock()
_demo_server: DemoServer | None = None


def _served_url(url: str) -> str:
    """The URL itself, or the address of the embedded endpoint, started at first use and ended with the process."""
    global _demo_server
    if not url.startswith("demo:"):
        return url
    with _demo_lock:
        if _demo_server is None:
            _demo_server = DemoServer().__enter__()
            guard, place = network_guard.guard(), place_of(_demo_server.base_url)
            if guard is not None and place is not None:
                guard.allow(*place)
        return _demo_server.base_url
