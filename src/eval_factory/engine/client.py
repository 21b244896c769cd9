"""The client that HELM loads by class name: one endpoint, a keep-alive pool, retries, the response store.

A request that fails for good is reported as a non-fatal failure: HELM goes on with an empty completion, the journal
keeps the reason, and the collector takes the instance out of the score. What no request can mend (the key is wrong,
the model is unknown, nobody answers) stops the run at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from helm.clients.client import Client, truncate_sequence
from helm.common.request import ErrorFlags, GeneratedOutput, Request, RequestResult, Thinking, Token
from helm.proxy.retry import NonRetriableException
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError
from urllib3.util.retry import Retry

from eval_factory.demo.server import DemoServer
from eval_factory.engine import events, wire
from eval_factory.engine.session import Session, session_for
from eval_factory.engine.store import Answer, Attempt
from eval_factory.results import MODEL_ROLE
from eval_factory.secrets import Redactor

RETRIED_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504})
STOPPING_STATUSES = frozenset({401, 403, 404})
BACKOFF_FACTOR_S = 0.5
BACKOFF_MAX_S = 60.0
CONNECT_TIMEOUT_S = 10.0
ERROR_TEXT_LIMIT = 500
OWN_TEXT_END = "<|endoftext|>"
"""Completions endpoints may send text past this mark; HELM's own client cuts there too."""

NVCF_POLL_SECONDS = 300
NVCF_STATUS_URL_VARIABLE = "NVCF_STATUS_URL"
NVCF_STATUS_URL = "https://api.nvcf.nvidia.com/v2/nvcf/pexec/status"


class EndpointStopped(NonRetriableException):  # type: ignore[misc]
    """The run cannot go on; HELM does not retry this kind."""


class _RequestFailed(Exception):
    """This request failed for good, others may not."""

    def __init__(self, message: str, status: int | None, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.unreachable = unreachable


@dataclass(frozen=True)
class _Reply:
    response: dict[str, Any]
    latency_s: float
    created: float
    cached: bool


class EndpointClient(Client):  # type: ignore[misc]
    """One OpenAI-compatible endpoint in one role.

    The constructor's parameters are the `args` in model_deployments.yaml. The key is read from the first of
    `key_names` that is set in the environment.
    """

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
        top_p: float | None = None,
        use_nvcf: bool = False,
    ) -> None:
        self._role = role
        self._model_id = model_id
        self._type = endpoint_type
        self._top_p = top_p
        self._timeout = request_timeout
        self._use_nvcf = use_nvcf
        self._identity_url = url
        self._url = wire.request_url(_served_url(url), endpoint_type, use_nvcf=use_nvcf)
        key = next((os.environ[name] for name in key_names if os.environ.get(name)), None)
        self._redactor = Redactor([key] if key else [])
        self._http = _http_session(key, parallelism, use_nvcf=use_nvcf)
        self._retries = Retry(
            total=max_retries,
            backoff_factor=BACKOFF_FACTOR_S,
            backoff_jitter=BACKOFF_FACTOR_S,
            backoff_max=BACKOFF_MAX_S,
            status_forcelist=RETRIED_STATUSES,
            allowed_methods=None,
            raise_on_status=False,
        )
        self._session: Session = session_for(Path(cache_db).parent)
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[_Reply]] = {}
        self._stopped: str | None = None
        self._has_answered = False

    def make_request(self, request: Request) -> RequestResult:
        """Answer one HELM request from the store or the endpoint."""
        fields = {name: getattr(request, name) for name in _REQUEST_FIELDS}
        body = wire.request_body(fields, model_id=self._model_id, endpoint_type=self._type, top_p=self._top_p)
        key = wire.request_key(self._identity_url, body, request.random)
        try:
            reply = self._once(key, body)
        except _RequestFailed as error:
            self._session.count(self._role, failed=True)
            return _failure(str(error))
        self._session.count(self._role, cached=reply.cached, tokens=wire.usage_of(reply.response))
        return self._result(request, reply)

    def _once(self, key: str, body: dict[str, Any]) -> _Reply:
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
            reply = self._from_store(key) or self._ask(key, body)
            future.set_result(reply)
            return reply
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._in_flight[key]

    def _from_store(self, key: str) -> _Reply | None:
        found = self._session.store.get(key)
        if found is None:
            return None
        response, latency, created = found
        tokens = wire.usage_of(response)
        self._session.store.journal(
            Attempt(key, self._role, 0, "cached", None, None, time.time(), 0.0, *tokens)
        )
        return _Reply(response, latency, created, cached=True)

    def _ask(self, key: str, body: dict[str, Any]) -> _Reply:
        retries = self._retries
        attempt = 1
        while True:
            started = time.time()
            clock = time.perf_counter()
            raw = None
            try:
                http = self._post(body)
                raw = http.raw
                answer = self._read(http)
            except (requests.RequestException, wire.UnusableAnswer, _Transient) as error:
                latency = time.perf_counter() - clock
                failed = self._described(error)
                try:
                    retries = retries.increment("POST", self._url, error=Exception(str(failed)))
                except MaxRetryError:
                    self._note(key, attempt, "failed", failed, started, latency)
                    self._stop_if_nobody_answers(failed)
                    raise failed from error
                self._note(key, attempt, "retried", failed, started, latency)
                retries.sleep(raw)
                attempt += 1
                continue
            except _RequestFailed as error:
                self._note(key, attempt, "failed", error, started, time.perf_counter() - clock)
                raise
            latency = time.perf_counter() - clock
            self._has_answered = True
            self._session.store.save(
                Answer(key, self._role, self._model_id, body, answer, started, latency),
                Attempt(
                    key, self._role, attempt, "answered", 200, None, started, latency, *wire.usage_of(answer)
                ),
            )
            return _Reply(answer, latency, started, cached=False)

    def _post(self, body: Mapping[str, Any]) -> requests.Response:
        timeout = (min(CONNECT_TIMEOUT_S, self._timeout), self._timeout)
        response = self._http.post(self._url, json=body, timeout=timeout)
        deadline = time.monotonic() + self._timeout
        while self._use_nvcf and response.status_code == 202:
            waiting = response.headers.get("NVCF-REQID", "")
            if not waiting or time.monotonic() > deadline:
                raise _Transient(202, "the cloud function gave no answer in time")
            status_url = os.environ.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL
            response = self._http.get(f"{status_url.rstrip('/')}/{waiting}", timeout=timeout)
        return response

    def _read(self, response: requests.Response) -> dict[str, Any]:
        status = response.status_code
        if status == 200:
            try:
                answer = response.json()
            except ValueError:
                raise wire.UnusableAnswer("the answer is not JSON") from None
            wire.read_answer(answer, self._type)
            return dict(answer)
        text = self._redactor.text(response.text[:ERROR_TEXT_LIMIT])
        if status in RETRIED_STATUSES:
            raise _Transient(status, text)
        if status in STOPPING_STATUSES:
            self._stop(_stop_message(status, self._shown_url, self._model_id))
        raise _RequestFailed(f"HTTP {status}: {text}", status)

    def _stop_if_nobody_answers(self, failed: _RequestFailed) -> None:
        if failed.unreachable and not self._has_answered:
            self._stop(f"cannot reach {self._shown_url}: {failed}\n  check target.api_endpoint.url and the network")

    def _stop(self, message: str) -> None:
        message = self._redactor.text(message)
        with self._lock:
            first, self._stopped = self._stopped is None, message
        if first:
            kind = events.FATAL if self._role == MODEL_ROLE else events.WARNING
            self._session.events.emit(kind, role=self._role, message=message)
        raise EndpointStopped(message)

    @property
    def _shown_url(self) -> str:
        return self._redactor.text(self._url)

    def _described(self, error: Exception) -> _RequestFailed:
        if isinstance(error, _Transient):
            return _RequestFailed(f"HTTP {error.status}: {error.text}", error.status)
        if isinstance(error, requests.Timeout):
            return _RequestFailed(f"no answer within {self._timeout:g} s", None, unreachable=_in_connect(error))
        if isinstance(error, requests.ConnectionError):
            return _RequestFailed("the connection failed or was closed", None, unreachable=True)
        return _RequestFailed(self._redactor.text(str(error))[:ERROR_TEXT_LIMIT], None)

    def _note(
        self, key: str, attempt: int, outcome: str, error: _RequestFailed, started: float, latency: float
    ) -> None:
        self._session.store.journal(
            Attempt(key, self._role, attempt, outcome, error.status, str(error), started, latency)
        )

    def _result(self, request: Request, reply: _Reply) -> RequestResult:
        choices = wire.read_answer(reply.response, self._type)
        if any(choice.finish_reason == wire.FILTERED for choice in choices):
            return _failure(wire.FILTERED_MESSAGE)
        completions = [self._completion(request, choice) for choice in choices]
        return RequestResult(
            success=True,
            cached=reply.cached,
            request_time=reply.latency_s,
            request_datetime=int(reply.created),
            completions=completions,
            embedding=[],
        )

    def _completion(self, request: Request, choice: wire.Choice) -> GeneratedOutput:
        text = choice.text
        if request.echo_prompt and self._type == wire.CHAT:
            text = request.prompt + text
        output = GeneratedOutput(
            text=text,
            logprob=sum(value for _, value in choice.tokens),
            tokens=[Token(text=token, logprob=value) for token, value in choice.tokens],
            finish_reason={"reason": choice.finish_reason},
            thinking=Thinking(text=choice.reasoning) if choice.reasoning is not None else None,
        )
        end = None if self._type == wire.CHAT else OWN_TEXT_END
        return truncate_sequence(output, request, end_of_text_token=end, print_warning=False)


_REQUEST_FIELDS = (
    "prompt", "messages", "temperature", "num_completions", "max_tokens", "stop_sequences", "echo_prompt", "top_p",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip


class _Transient(Exception):
    """A status that is worth another try."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def _in_connect(error: requests.Timeout) -> bool:
    return isinstance(error, requests.ConnectTimeout)


def _failure(message: str) -> RequestResult:
    return RequestResult(
        success=False,
        cached=False,
        error=message,
        completions=[],
        embedding=[],
        error_flags=ErrorFlags(is_retriable=False, is_fatal=False),
    )


def _stop_message(status: int, url: str, model_id: str) -> str:
    if status == 404:
        return (
            f"{url} answers 404: there is no such address, or no model {model_id!r}\n"
            "  check target.api_endpoint.url and model_id"
        )
    return (
        f"Authentication error detected: {url} answers {status}\n"
        "  check the variable that target.api_endpoint.api_key names, and that its key may use this model"
    )


def _http_session(key: str | None, parallelism: int, *, use_nvcf: bool) -> requests.Session:
    session = requests.Session()
    adapter = HTTPAdapter(pool_connections=2, pool_maxsize=parallelism, pool_block=False, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.trust_env = True
    session.auth = _BearerAuth(key)
    if use_nvcf:
        session.headers["NVCF-POLL-SECONDS"] = str(NVCF_POLL_SECONDS)
    return session


class _BearerAuth(requests.auth.AuthBase):
    """Sets our header, and keeps requests from taking a password for the host out of ~/.netrc."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


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
        return _demo_server.base_url
