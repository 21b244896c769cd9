"""How an endpoint is reached: its address, the connections to it, how requests are signed, what is told when it fails.

Nothing is sent before the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eval_factory.core.redaction import Redactor
from eval_factory.core.secrets import filled
from eval_factory.core.served_url import reached
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.sign_in import SignIn, sign_in
from eval_factory.endpoint.stop_messages import StopMessages, messages_of
from eval_factory.endpoint.transport import Transport


@dataclass(frozen=True)
class Connection:
    """The way to one endpoint, for any number of threads."""

    url: str
    """The address that requests are sent to."""
    transport: Transport
    sign_in: SignIn
    messages: StopMessages
    redactor: Redactor
    """Knows the endpoint's key or tokens."""


def connection_to(
    settings: EndpointSettings,
    *,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    served_url: str | None = None,
) -> Connection:
    """The connection that the settings describe.

    Args:
        say: is told how a sign-in goes, and what is odd about answers.
        served_url: the base URL where it is another one than the settings'.

    Raises:
        PrerequisiteError: a variable that the settings name is not there, or holds what cannot be sent.
    """
    base = reached(filled(settings.urls[0], env), env)[0] if served_url is None else served_url
    url = openai_api.request_url(base, settings.endpoint_type, use_nvcf=settings.use_nvcf)
    return Connection(
        url=url,
        transport=Transport(base, timeout_s=settings.request_timeout, connections=settings.parallelism, say=say),
        sign_in=sign_in(settings, env=env, redactor=redactor, say=say),
        messages=messages_of(settings, redactor.text(url), env),
        redactor=redactor,
    )
