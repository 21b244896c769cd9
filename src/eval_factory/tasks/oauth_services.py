"""Finds the OAuth services of framework.yml whose client credentials the environment contains."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.core.secrets import secret_in, variable_of
from eval_factory.endpoint.endpoint_settings import OAuthSettings

ENDINGS = ("CLIENT_ID", "CLIENT_SECRET")
"""The endings of the two variables that each service needs, such as `OPENAI_CLIENT_ID`."""


def oauth_services_in(env: Mapping[str, str]) -> tuple[OAuthSettings, ...]:
    """Return the services whose two credentials are set in `env`.

    Optional variables, such as `OPENAI_TOKEN_URL` and `OPENAI_SCOPE`, override the values of
    framework.yml.

    Raises:
        PrerequisiteError: a variable has characters that cannot be sent.
        ConfigError: framework.yml or a plug-in cannot be read.
    """
    # Without a client id, no service is complete: skip the slow load of framework.yml.
    if not any(name.endswith("_CLIENT_ID") for name in env):
        return ()
    from eval_factory.tasks.framework import load_framework

    services = []
    for service, entry in load_framework().oauth.items():
        if all(secret_in(env, variable_of(service, ending)) for ending in ENDINGS):
            url = secret_in(env, variable_of(service, "TOKEN_URL")) or entry.token_url
            scope = secret_in(env, variable_of(service, "SCOPE")) or entry.scope
            services.append(OAuthSettings(service, url, scope))
    return tuple(services)
