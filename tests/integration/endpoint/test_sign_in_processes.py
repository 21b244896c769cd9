"""One token for many processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.sign_in import OAuthSignIn
from token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as server:
        yield server


def environment(url: str, **more: str) -> dict[str, str]:
    named = {
        "OPENAI_CLIENT_ID": CLIENT_ID,
        "OPENAI_CLIENT_SECRET": CLIENT_SECRET,
        "OPENAI_TOKEN_URL": url,
    }
    return {name: value for name, value in {**named, **more}.items() if value}


def _header_in_another_process(url: str, folder: str) -> str | None:
    return OAuthSignIn(
        OAuthSettings("openai", None, None),
        env=environment(url),
        redactor=Redactor(),
        say=lambda _line: None,
        folder=Path(folder),
    ).header()


def test_many_processes_have_one_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.delay_s = 0.2
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        headers = pool.starmap(_header_in_another_process, [(tokens.url, str(tmp_path))] * 8)
    assert len(set(headers)) == len(tokens.given) == 1
