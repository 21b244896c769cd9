"""Probes an endpoint with one cheap request before helm-run starts.

The probe shows whether the endpoint answers, accepts the key and knows the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import (
    EndpointRefusedError,
    EndpointUnreachableError,
    PrerequisiteError,
)
from eval_factory.core.failure_causes import short_cause
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.limits import Admission
from eval_factory.endpoint.openai_api import IMAGES
from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    RequestFailed,
    StopMessages,
)
from eval_factory.endpoint.retrying_client import RETRIED_STATUSES, RetryingClient
from eval_factory.endpoint.servers import Server, Servers, make_servers
from eval_factory.plan.batch_endpoints import check_batch_api
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.tasks.oauth_services import oauth_services_in

_TIMEOUT_S = 10.0  # the maximum wait for the answer to a probe, in seconds
FEW_TOKENS = 1
MORE_TOKENS = 512
"""Two limits of output tokens in a probe. `_Probe._token_limits` chooses which to try.

A limit of one token is cheapest. Reasoning models, and gateways that require a minimum, refuse such
a low limit. A second request therefore has a higher limit.
"""
PING = "ping"
GREY_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAGElEQVR42mNsYMAPmBhGFYwqGFUwQhUAAJe+AMD8WknZAAAAA"
    "ElFTkSuQmCC"
)
"""A grey square of 32 x 32 pixels. Several models refuse smaller pictures."""
NEEDS_PICTURES = (
    "it answers text, and refused a picture, which this benchmark shows: "
    "name a model that takes images"
)
OTHER_SERVERS_CONTINUE = "the other servers are asked until it answers"
STATUSES_OF_A_BODY = frozenset({400, 422})
"""The HTTP statuses that mean: the server does not accept the body of the request."""

_NO_STATUS = 0  # stands for the HTTP status if no reply came
# "max_tokens must be at least 16", "unsupported: max_completion_tokens", "Output limit reached"
_MENTIONS_TOKEN_LIMIT = re.compile(r"max_\w*tokens|output limit", re.IGNORECASE)


def probe(
    endpoint: EndpointSettings,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    admission: Admission | None = None,
) -> str | None:
    """Send a small request to each server of an endpoint. All servers are asked at the same time.

    An endpoint with batches gets a request that costs no tokens. An endpoint that makes pictures is
    not probed, because a picture is slow and expensive.

    Args:
        endpoint: the endpoint.
        env: the environment variables, with the keys.
        redactor: gets the keys and OAuth tokens, and removes them from error messages.
        say: gets messages about a sign-in.
        admission: grants requests if other runs share the limits of the endpoint, else None.

    Returns:
        A warning if a server did not answer, but may answer later; None if all servers answered.

    Raises:
        PrerequisiteError: no server can be used, or a server refuses the key, the model or the
            request in such a way that another attempt would not help.
    """
    if endpoint.batch:
        check_batch_api(endpoint, env, redactor, say)
        return None
    if endpoint.endpoint_type == IMAGES:
        return None
    settings = replace(
        endpoint,
        request_timeout=min(_TIMEOUT_S, endpoint.request_timeout),
        max_retries=0,
        parallelism=1,
        requests_per_minute=None,
        tokens_per_minute=None,
    )
    servers = make_servers(
        settings,
        env=env,
        redactor=redactor,
        say=say,
        shared_admission=lambda _limit_name: admission,  # the same for all servers
        services=oauth_services_in(env),
    )
    probes = []
    for server in servers.all:
        probes.append(_Probe(settings, endpoint, servers, server, env=env, redactor=redactor))
    outcomes = map_at_once(_Probe.probe_server, probes, at_once=len(probes))
    return _joint_warning(outcomes)


def _joint_warning(outcomes: Sequence[str | PrerequisiteError | None]) -> str | None:
    """Return a warning about all servers of an endpoint; None if all servers answered.

    `outcomes`: for each server a warning, the error of its probe, or None if the server answered.

    Raises:
        PrerequisiteError: no server can be asked, or one server refuses the request.
    """
    errors = [error for error in outcomes if isinstance(error, PrerequisiteError)]
    if len(outcomes) == 1 and errors:
        raise errors[0]
    refusals = [error for error in errors if isinstance(error, EndpointRefusedError)]
    if refusals or len(errors) == len(outcomes):
        hint = ""
        if len(errors) < len(outcomes):
            hint = (
                "\n"
                "  the other servers answer: take this URL out of the list, and the run continues "
                "with them; stored answers are used again"
            )
        error_class = type(refusals[0] if refusals else errors[0])
        raise error_class("\n".join(map(str, errors)) + hint)
    warnings = [warning for warning in outcomes if isinstance(warning, str)]
    warnings += [f"{error}\n  {OTHER_SERVERS_CONTINUE}" for error in errors]
    return "\n".join(warnings) or None


@dataclass(frozen=True)
class _Probe:
    """The probe of one server, which may need several requests."""

    settings: EndpointSettings  # the endpoint with the probe's timeout and without retries
    endpoint: EndpointSettings  # the endpoint as it is configured
    servers: Servers  # all servers of the endpoint
    server: Server  # the server that is probed
    env: Mapping[str, str]
    redactor: Redactor

    def probe_server(self) -> str | PrerequisiteError | None:
        """Probe the server; return a warning or an error, or None if the server answered.

        An error is not raised, so that the outcomes of all servers are known.
        """
        self.server.is_patient = False  # HTTP 429 (too many requests) ends the probe at once
        try:
            warning = self.send_request()
        except PrerequisiteError as error:
            return error
        if warning is not None and len(self.servers.all) > 1:
            return f"{self.server.messages.url}: {warning}"
        return warning

    def send_request(self) -> str | None:
        """Send the request; return a warning if the server did not answer, but may answer later.

        If the benchmark shows pictures, the request contains a picture.

        Raises:
            EndpointRefusedError: the server refuses the request. If it refuses only the picture,
                the message says so.
        """
        shows_images = isinstance(self.endpoint, EndpointPlan) and self.endpoint.shows_images
        try:
            return self._ask(with_image=shows_images)
        except EndpointRefusedError as refused:
            if not shows_images:
                raise
            # If the server refuses texts too, this call raises, and its error is reported instead.
            warning = self._ask(with_image=False)
            if warning is not None:  # unknown whether the server answers texts
                raise
            raise EndpointRefusedError(f"{refused}\n  {NEEDS_PICTURES}") from None

    def _ask(self, *, with_image: bool) -> str | None:
        """Send the request with or without a picture; return a warning if there is no answer."""
        # The client gets only one of the endpoint's servers.
        one_server = Servers(
            [self.server], self.servers.sign_in, self.redactor, headers=self.servers.headers
        )
        client = RetryingClient(self.settings, one_server)
        failure: RequestFailed | None = None
        for token_limit in self._token_limits():
            failure = _failure_of(client, self._body(token_limit, with_image=with_image))
            if failure is None or failure.status not in STATUSES_OF_A_BODY:
                break
        if failure is None:
            return None
        messages = self.server.messages  # makes the texts of errors about this server
        # Some servers refuse a picture with the status 500.
        if with_image and "image" in failure.error_text.lower():
            raise EndpointRefusedError(
                messages.refused_preflight(failure.status or _NO_STATUS, failure.error_text)
            )
        return _warning_of(
            failure, messages, self.endpoint, knows_limit=self._benchmark_limit is not None
        )

    @property
    def _benchmark_limit(self) -> int | None:
        """The benchmark's limit of output tokens; None if it is unknown."""
        if isinstance(self.endpoint, EndpointPlan):
            return self.endpoint.output_tokens
        return None

    def _token_limits(self) -> tuple[int, ...]:
        """Return the limits of output tokens to try, in this order, until one is accepted."""
        if self._benchmark_limit is None:
            return (FEW_TOKENS, MORE_TOKENS)
        if self._benchmark_limit <= MORE_TOKENS:  # cheap enough to try at once
            return (self._benchmark_limit,)
        return (FEW_TOKENS, self._benchmark_limit)

    def _body(self, token_limit: int, *, with_image: bool) -> dict[str, Any]:
        """Return the body of the request; `token_limit`: the limit of output tokens."""
        request: dict[str, Any] = {"prompt": PING, "max_tokens": token_limit, "temperature": 0.0}
        if with_image:
            image = {"type": "image_url", "image_url": {"url": GREY_PICTURE}}
            parts = [{"type": "text", "text": PING}, image]
            request["messages"] = [{"role": "user", "content": parts}]
        body = self.settings.body_of(request)
        return {**body, **self.settings.secret_fields(self.env)}


def _failure_of(client: RetryingClient, body: Mapping[str, Any]) -> RequestFailed | None:
    """Send the request; return its failure, or None if it was answered.

    Raises:
        PrerequisiteError: the server cannot be reached, or cannot be used at all.
    """
    try:
        client.ask(body, note=lambda *_: None)  # failed attempts are not recorded
    except EndpointUnusable as error:
        kind = EndpointUnreachableError if isinstance(error, EndpointGone) else EndpointRefusedError
        raise kind(str(error)) from error
    except RequestFailed as error:
        return error
    return None


def _warning_of(
    failure: RequestFailed, messages: StopMessages, endpoint: EndpointSettings, *, knows_limit: bool
) -> str:
    """Return a warning about a failed probe. The requests of the benchmark may still be answered.

    `knows_limit`: True if the last request had the benchmark's limit of output tokens. If False,
    the server may have refused only the limit that the probe chose.

    Raises:
        EndpointRefusedError: another attempt would fail in the same way.
    """
    status = failure.status or _NO_STATUS
    refuses_token_limit = (
        not knows_limit
        and status in STATUSES_OF_A_BODY
        and _MENTIONS_TOKEN_LIMIT.search(failure.error_text)
    )
    is_final = 400 <= status < 500 and status not in RETRIED_STATUSES
    if is_final and not refuses_token_limit:
        raise EndpointRefusedError(messages.refused_preflight(status, failure.error_text))
    judge = "" if endpoint.role == MODEL_ROLE else f"judge {endpoint.role}: "
    stop = endpoint.stop_after_failures
    consequence = ""
    if stop:
        consequence = f"; the run starts anyway, and stops if its first {stop} requests all fail"
    return f"{judge}the probe was not answered: {short_cause(failure.cause)}{consequence}"
