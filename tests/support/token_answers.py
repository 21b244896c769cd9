"""A server that gives the same token document to everybody, and a sign-in that asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.proxies import CERTIFICATE_VARIABLES
from eval_factory.endpoint.sign_in import OAuthSignIn
from loopback import Handler
from loopback import Server as Server

TOKEN = {"access_token": "token-canary-0123456789", "token_type": "bearer", "expires_in": 3600}


class Answers(Handler):
    """A token to one, an answer to another."""

    protocol_version = "HTTP/1.0"

    def reply(self) -> None:
        self.answer(200, json.dumps(TOKEN).encode())


def forget_proxies_and_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CERTIFICATE_VARIABLES, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def token_from(url: str, folder: Path) -> str | None:
    env = {
        "OPENAI_CLIENT_ID": "id",
        "OPENAI_CLIENT_SECRET": "secret-0123456789",
        "OPENAI_TOKEN_URL": url,
    }
    settings = OAuthSettings("openai", None, None)
    return OAuthSignIn(
        settings, env=env, redactor=Redactor(), say=lambda _: None, folder=folder
    ).header()
