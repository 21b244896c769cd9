"""The services of framework.yml whose client credentials the environment has."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.core.secrets import secret_in, variable_of
from eval_factory.endpoint.endpoint_settings import OAuthSettings

CREDENTIALS = ("CLIENT_ID", "CLIENT_SECRET")


def services_in(env: Mapping[str, str]) -> tuple[OAuthSettings, ...]:
    """Each with the token URL and the scope that hold: the environment's come first.

    Raises PrerequisiteError: a variable holds what cannot be sent.
    """
    if not any(name.endswith("_CLIENT_ID") for name in env):
        return ()  # framework.yml takes time
    from eval_factory.tasks.framework import load_framework

    services = []
    for service, entry in load_framework().oauth.items():
        if all(secret_in(env, variable_of(service, name)) for name in CREDENTIALS):
            url = secret_in(env, variable_of(service, "TOKEN_URL")) or entry.token_url
            scope = secret_in(env, variable_of(service, "SCOPE")) or entry.scope
            services.append(OAuthSettings(service, url, scope))
    return tuple(services)
