"""A transport that gives prepared replies, and a client that asks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from builders import endpoint_settings
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import retrying_client
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.http_wire import Reply, TransportError
from eval_factory.endpoint.replies import (
    EndpointUnusable,
    RequestFailed,
    StopMessages,
)
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import Server, Servers
from eval_factory.endpoint.sign_in import SignIn

GOOD = {"choices": [{"message": {"content": "B"}, "finish_reason": "stop"}]}
BODY = {"model": "m", "messages": [], "max_tokens": 5, "temperature": 0.0}

UNREACHABLE = TransportError("no connection could be made", unreachable=True)
SILENT = TransportError("no whole answer within 10 s", silent=True)


class Replies(Transport):
    """Gives what it was told, in order; the last one for ever."""

    timeout_s = 10.0

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.sent: list[dict[str, Any]] = []

    def post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        return self._next(dict(body))

    post_alone = post

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self._next({"GET": url})

    def _next(self, sent: dict[str, Any]) -> Reply:
        self.sent.append(sent)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


def reply(status: int, body: Any = None, **headers: str) -> Reply:
    """Bytes are the whole body as they are."""
    if isinstance(body, bytes):
        return Reply(status, headers, body)
    return Reply(status, headers, json.dumps(GOOD if body is None else body).encode())


def client_of(
    transport: Replies,
    *,
    admission: Any = None,
    has_answered: bool = False,
    is_patient: bool = False,
    **given: Any,
) -> RetryingClient:
    """Of `given`, what is no option of the client is a setting of the endpoint."""
    options = {name: given.pop(name) for name in ("first_requests", "budget") if name in given}
    sign_in = given.pop("sign_in", SignIn(None))
    settings = endpoint_settings(key_names=("MY_KEY",), **given)
    url = "http://h/v1/chat/completions"
    messages = StopMessages(settings, url, "MY_KEY")
    server = Server(
        settings, url, transport, messages, admission=admission, has_answered=has_answered
    )
    server.is_patient = is_patient
    client = RetryingClient(
        settings, Servers([server], sign_in, Redactor(["the-secret-key"])), **options
    )
    client._nvcf = transport if settings.use_nvcf else None
    return client


def unnoted(*_: object) -> None:
    """Whatever the journal would be told."""


def ask_until_it_stops(client: RetryingClient) -> tuple[int, str]:
    """(requests that failed before, the last words)"""
    for number in range(1000):
        try:
            client.ask(BODY, unnoted)
        except RequestFailed:
            continue
        except EndpointUnusable as stop:
            return number, str(stop)
    raise AssertionError


def ask(transport: Replies, **settings: Any) -> tuple[retrying_client.Answered, list[str]]:
    client = client_of(transport, **{"max_retries": 2, **settings})
    outcomes = list[str]()
    return client.ask(
        BODY, lambda _n, outcome, error, *_: outcomes.append(f"{outcome}: {error}")
    ), outcomes
