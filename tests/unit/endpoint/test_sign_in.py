"""Tokens from a real token endpoint on loopback."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.endpoint import sign_in
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.event_loop import EventLoop
from eval_factory.endpoint.sign_in import OAuthSignIn, SignInError
from token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint

FILE = "openai_oauth_token.json"


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "_TOKEN_RETRIES", sign_in._TOKEN_RETRIES.new(backoff_factor=0))


def environment(url: str, **more: str) -> dict[str, str]:
    named = {"OPENAI_CLIENT_ID": CLIENT_ID, "OPENAI_CLIENT_SECRET": CLIENT_SECRET, "OPENAI_TOKEN_URL": url}
    return {name: value for name, value in {**named, **more}.items() if value}


def signed_in(
    tokens: TokenEndpoint, folder: Path, said: list[str] | None = None, redactor: Redactor | None = None, **more: str
) -> OAuthSignIn:
    return OAuthSignIn(
        OAuthSettings("openai", None, "azureopenai-readwrite"), env=environment(tokens.url, **more),
        redactor=redactor or Redactor(), say=(said if said is not None else []).append, folder=folder,
    )  # fmt: skip


def test_a_token_is_had_once_and_kept(tokens: TokenEndpoint, tmp_path: Path) -> None:
    said: list[str] = []
    redactor = Redactor()
    first = signed_in(tokens, tmp_path, said, redactor)
    assert {first.header() for _ in range(5)} == {"Bearer token-canary-0-0123456789"}
    assert signed_in(tokens, tmp_path, said).header() == first.header()
    assert said == ["Creating new openai OAuth token"]
    assert tokens.scopes == ["azureopenai-readwrite"]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    kept = json.loads((tmp_path / FILE).read_text())
    assert 3500 < kept["expires_at"] - time.time() <= 3600
    assert redactor.text(f"{tokens.given[0]} {CLIENT_SECRET}") == f"{REDACTED} {REDACTED}"


def test_the_environments_scope_comes_first(tokens: TokenEndpoint, tmp_path: Path) -> None:
    signed_in(tokens, tmp_path, OPENAI_SCOPE="awsanthropic-readwrite").header()
    assert tokens.scopes == ["awsanthropic-readwrite"]


def test_a_token_is_renewed_before_it_expires(tokens: TokenEndpoint, tmp_path: Path) -> None:
    said: list[str] = []
    tokens.expires_in = 59  # a minute before its end is too late to begin a request with it
    sign_in = signed_in(tokens, tmp_path, said)
    assert sign_in.header() != sign_in.header()
    assert said == ["Creating new openai OAuth token", "openai OAuth token expired, refreshing"]


def test_a_refused_token_is_renewed_once_for_all(tokens: TokenEndpoint, tmp_path: Path) -> None:
    sign_in = signed_in(tokens, tmp_path)
    refused = sign_in.header()
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(sign_in.renew, [refused] * 16))
    assert len(tokens.given) == 2
    assert sign_in.header() == f"Bearer {tokens.given[1]}"


def test_deleting_the_file_forces_a_new_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    sign_in = signed_in(tokens, tmp_path)
    before = sign_in.header()
    (tmp_path / FILE).unlink()
    assert sign_in.header() != before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"access_token": 5, "expires_at": 9e12}', '{"access_token": "x"}'])
def test_a_file_that_is_no_tokens(text: str, tokens: TokenEndpoint, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert signed_in(tokens, tmp_path).header() == f"Bearer {tokens.given[0]}"


def test_many_threads_have_one_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.delay_s = 0.2
    sign_ins = [signed_in(tokens, tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(32) as pool:
        headers = set(pool.map(lambda n: sign_ins[n % 8].header(), range(64)))
    assert len(headers) == len(tokens.given) == 1


def test_in_an_event_loop_others_go_on_while_one_gets_a_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.delay_s = 0.5
    sign_in, seen = signed_in(tokens, tmp_path), []

    def process(number: int) -> None:
        seen.append((number, sign_in.header() if number < 2 else None))

    EventLoop(3).run(process, range(9))
    assert [number for number, _ in seen[:7]] == list(range(2, 9))
    assert {header for _, header in seen[7:]} == {f"Bearer {tokens.given[0]}"}
    assert len(tokens.given) == 1


def test_missing_variables_are_named(tokens: TokenEndpoint, tmp_path: Path) -> None:
    sign_in = signed_in(tokens, tmp_path, OPENAI_CLIENT_ID="", OPENAI_CLIENT_SECRET="")
    with pytest.raises(
        SignInError,
        match="Missing environment variables for openai token: OPENAI_CLIENT_ID, OPENAI_CLIENT_SECRET",
    ):
        sign_in.header()


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("refuses", "invalid_client"),
        ("garbage", "HTTP 200: (missing_token)"),
        ("no token", "Missing access token"),
        ("odd token", "holds no token"),
        ("two lines", "holds no token"),
        ("error", "HTTP 500"),
    ],
)
def test_no_token(way: str, reason: str, tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.way = way
    with pytest.raises(SignInError, match="Error creating openai OAuth token") as caught:
        signed_in(tokens, tmp_path).header()
    message = str(caught.value)
    assert reason.lower() in message.lower()
    assert "check OPENAI_CLIENT_ID, OPENAI_CLIENT_SECRET, OPENAI_TOKEN_URL" in message
    assert CLIENT_SECRET not in message
    assert not (tmp_path / FILE).exists()


def test_a_token_endpoint_that_is_slow(tokens: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "TOKEN_TIMEOUT_S", 0.2)
    tokens.delay_s = 1.0
    with pytest.raises(SignInError, match=r"Error creating openai OAuth token: no answer within 0\.2 s"):
        signed_in(tokens, tmp_path).header()


def test_a_token_endpoint_that_is_down(tmp_path: Path) -> None:
    with TokenEndpoint() as gone:
        pass
    with pytest.raises(SignInError, match="Error creating openai OAuth token: the token endpoint cannot be reached"):
        signed_in(gone, tmp_path).header()


def test_plain_http_to_another_host_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OAUTHLIB_INSECURE_TRANSPORT", raising=False)
    sign_in = OAuthSignIn(
        OAuthSettings("openai", None, None), env=environment("http://tokens.example/token"), redactor=Redactor(),
        say=lambda _line: None, folder=tmp_path,
    )  # fmt: skip
    with pytest.raises(SignInError, match="https"):
        sign_in.header()


def test_a_token_that_says_no_lifetime(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.expires_in = None
    signed_in(tokens, tmp_path).header()
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept["expires_at"] - time.time() <= sign_in.LIFETIME_UNKNOWN_S


@pytest.mark.parametrize("lifetime", [float("inf"), 10**400], ids=["infinite", "huge"])
def test_a_lifetime_that_no_clock_can_hold(lifetime: float, tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.expires_in = lifetime
    with pytest.raises(SignInError, match="holds no token"):
        signed_in(tokens, tmp_path).header()


def test_a_kept_lifetime_that_no_clock_can_hold(tokens: TokenEndpoint, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"access_token": "kept-token-0123456789", "expires_at": 10**400}))
    assert signed_in(tokens, tmp_path).header() == "Bearer token-canary-0-0123456789"


@pytest.mark.parametrize(
    ("code", "description", "told"),
    [
        ("invalid_client", "who is it?", "(invalid_client) who is it?"),
        ("invalid_client", None, "(invalid_client)"),
        ({"message": "no", "param": "x"}, {"detail": "off"}, "(no) off"),
        (None, "", "SimpleNamespace"),
    ],
)
def test_what_a_token_endpoint_tells(code: object, description: object, told: str) -> None:
    assert sign_in._told_by(SimpleNamespace(error=code, description=description)) == told
