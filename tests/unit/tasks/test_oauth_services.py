"""The services at which a run signs in, by the credentials in the environment."""

from __future__ import annotations

import pytest

from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.oauth_services import oauth_services_in

CLIENT = {"OPENAI_CLIENT_ID": "id", "OPENAI_CLIENT_SECRET": "secret-of-a-client-1"}
SERVICE = load_framework().oauth["openai"]


@pytest.mark.parametrize(
    ("env", "services"),
    [
        ({}, ()),
        ({"OPENAI_CLIENT_ID": "id"}, ()),
        ({**CLIENT, "OPENAI_CLIENT_SECRET": " "}, ()),
        ({**CLIENT, "OPENAI_CLIENT_ID": ""}, ()),
        (CLIENT, (OAuthSettings("openai", SERVICE.token_url, SERVICE.scope),)),
        (
            {**CLIENT, "OPENAI_TOKEN_URL": "https://t.example", "OPENAI_SCOPE": "s"},
            (OAuthSettings("openai", "https://t.example", "s"),),
        ),
    ],
    ids=["nothing", "no secret", "empty secret", "empty id", "both", "own address"],
)
def test_a_service_needs_both_credentials(
    env: dict[str, str], services: tuple[OAuthSettings, ...]
) -> None:
    assert oauth_services_in(env) == services
