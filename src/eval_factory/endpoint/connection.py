"""How an endpoint is reached: its address, the connections to it, how requests are signed, what is told when it fails.

Nothing is sent before the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eval_factory.core.secrets import Redactor, filled
from eval_factory.core.urls import reached
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.sign_in import SignIn, sign_in
from eval_factory.endpoint.stop_messages import StopMessages, messages_of


@dataclass(frozen=True)
class Connection:
    """The way to one server, for any number of threads."""

    url: str
    """The address that requests are sent to."""
    transport: Transport
    sign_in: SignIn
    messages: StopMessages
    redactor: Redactor
    """Knows the endpoint's key or tokens."""
    name: str = ""
    """The server's URL as the configuration has it."""


def connection_to(
    settings: EndpointSettings,
    *,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    served_url: str | None = None,
) -> Connection:
    """The connection to the one server that the settings describe, or to the first of them.

    Args:
        say: is told how a sign-in goes, and what is odd about answers.
        served_url: the base URL where it is another one than the settings'.

    Raises:
        PrerequisiteError: a variable that the settings name is not there, or holds what cannot be sent.
    """
    return connections_to(settings, env=env, redactor=redactor, say=say, served_url=served_url)[0]


def connections_to(
    settings: EndpointSettings,
    *,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    served_url: str | None = None,
) -> tuple[Connection, ...]:
    """A connection to each server, with one sign-in for all. Arguments and errors as those of `connection_to`."""
    signed = sign_in(settings, env=env, redactor=redactor, say=say)
    made = []
    for configured in settings.urls:
        bases = reached(filled(configured, env), env) if served_url is None else (served_url,)
        for base in bases:
            url = openai_api.request_url(base, settings.endpoint_type, use_nvcf=settings.use_nvcf)
            made.append(
                Connection(
                    url=url,
                    transport=Transport(base, timeout_s=settings.request_timeout, say=say),
                    sign_in=signed,
                    messages=messages_of(settings, redactor.text(url), env),
                    redactor=redactor,
                    name=configured if len(bases) == 1 else base,
                )
            )
    return tuple(made)
