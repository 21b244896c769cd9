"""Finds the OAuth services of framework.yml whose client credentials are environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.core.secrets import secret_in, variable_of
from eval_factory.endpoint.endpoint_settings import OAuthSettings

CREDENTIALS = ("CLIENT_ID", "CLIENT_SECRET")
"""The ends of the names of the two variables that a service needs."""


def services_in(env: Mapping[str, str]) -> tuple[OAuthSettings, ...]:
    """Return the services whose credentials are set in `env`.

    Variables for the token URL and the scope override the values of framework.yml.

    Raises:
        PrerequisiteError: a variable has characters that cannot be sent.
    """
    if not any(name.endswith("_CLIENT_ID") for name in env):
        return ()  # without the slow import of framework.yml
    from eval_factory.tasks.framework import load_framework

    services = []
    for service, entry in load_framework().oauth.items():
        if all(secret_in(env, variable_of(service, name)) for name in CREDENTIALS):
            url = secret_in(env, variable_of(service, "TOKEN_URL")) or entry.token_url
            scope = secret_in(env, variable_of(service, "SCOPE")) or entry.scope
            services.append(OAuthSettings(service, url, scope))
    return tuple(services)
