"""Tokens from a real token endpoint on loopback."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builders import endpoint_settings
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.endpoint import sign_in
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.sign_in import OAuthSignIn, SignInError
from facts import naming
from token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint

OAUTH = OAuthSettings("openai", None, "azureopenai-readwrite")


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "_TOKEN_RETRIES", sign_in._TOKEN_RETRIES.new(backoff_factor=0))


def environment(url: str, **more: str) -> dict[str, str]:
    named = {
        "OPENAI_CLIENT_ID": CLIENT_ID,
        "OPENAI_CLIENT_SECRET": CLIENT_SECRET,
        "OPENAI_TOKEN_URL": url,
    }
    return {name: value for name, value in {**named, **more}.items() if value}


def signed_in(
    tokens: TokenEndpoint,
    folder: Path,
    said: list[str] | None = None,
    redactor: Redactor | None = None,
    **more: str,
) -> OAuthSignIn:
    return OAuthSignIn(
        OAUTH,
        env=environment(tokens.url, **more),
        redactor=redactor or Redactor(),
        say=(said if said is not None else []).append,
        folder=folder,
    )


def file_of(tokens: TokenEndpoint, folder: Path, **more: str) -> Path:
    return sign_in.token_file(OAUTH, environment(tokens.url, **more), folder)


def planted(tokens: TokenEndpoint, folder: Path, **changes: Any) -> Path:
    """A file with a token of another, as this program writes it."""
    file = file_of(tokens, folder)
    times = {"expires_at": time.time() + 900, "lifetime_s": 1000}
    file.write_text(
        json.dumps({"access_token": "planted-0123456789", "file": file.name, **times, **changes})
    )
    file.chmod(0o600)
    return file


def test_a_token_is_had_once_and_kept(tokens: TokenEndpoint, tmp_path: Path) -> None:
    said = list[str]()
    redactor = Redactor()
    first = signed_in(tokens, tmp_path, said, redactor)
    assert {first.header() for _ in range(5)} == {"Bearer token-canary-0-0123456789"}
    assert signed_in(tokens, tmp_path, said).header() == first.header()
    assert (said, tokens.scopes) == (["Creating new openai OAuth token"], ["azureopenai-readwrite"])
    file = file_of(tokens, tmp_path)
    assert sorted(tmp_path.iterdir()) == [file, Path(f"{file}.lock")]
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}
    assert file.match("openai_*_oauth_token.json")
    kept = json.loads(file.read_text())
    assert 3500 < kept["expires_at"] - time.time() <= 3600
    assert redactor.redact_text(f"{tokens.given[0]} {CLIENT_SECRET}") == f"{REDACTED} {REDACTED}"
    signed_in(tokens, tmp_path, OPENAI_SCOPE="awsanthropic-readwrite").header()
    assert tokens.scopes == ["azureopenai-readwrite", "awsanthropic-readwrite"], (
        "the environment's comes first"
    )


@pytest.mark.parametrize(
    ("lifetime", "used"), [(3600, 3540), (240, 180), (30, 22.5), (1, 0.75), (10**9, 86340)]
)
def test_a_token_is_renewed_before_it_expires_and_not_at_each_request(
    lifetime: int,
    used: float,
    tokens: TokenEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = list[str]()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    tokens.expires_in = lifetime
    mine = signed_in(tokens, tmp_path, said)
    others = signed_in(tokens, tmp_path, said)
    first = mine.header()
    now += used - 0.01
    assert {mine.header(), mine.header(), others.header()} == {first}
    now += 0.02
    assert mine.header() == others.header() != first
    assert said == ["Creating new openai OAuth token", "openai OAuth token expired, refreshing"]


@pytest.mark.parametrize("name", ["OPENAI_TOKEN_URL", "OPENAI_CLIENT_ID", "OPENAI_SCOPE"])
def test_another_tenants_token_is_not_used(
    name: str, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    assert signed_in(tokens, tmp_path).header() == "Bearer token-canary-0-0123456789"
    other = {name: f"{tokens.url}/b" if name.endswith("URL") else "b"}
    assert (
        signed_in(tokens, tmp_path, None, None, **other).header()
        == "Bearer token-canary-1-0123456789"
    )
    mine = file_of(tokens, tmp_path)
    theirs = file_of(tokens, tmp_path, **other)
    mine.replace(theirs)  # nor where a file was given the other's name
    assert (
        signed_in(tokens, tmp_path, None, None, **other).header()
        == "Bearer token-canary-2-0123456789"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at": float("inf")},
        {"expires_at": float("nan")},
        {"expires_at": -1},
        {"expires_at": 9e12},
        {"expires_at": 10**400},
        {"lifetime_s": 0},
        {"lifetime_s": 1e6},
        {"file": "x"},
        {"access_token": 5},
        {"access_token": ""},
        "",
        "{",
        "[]",
        '{"access_token": 5, "expires_at": 9e12}',
        '{"access_token": "x"}',
    ],
)
def test_a_planted_token_that_would_never_end_or_is_none_is_not_used(
    changes: dict[str, Any] | str, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    file = planted(tokens, tmp_path)
    said = list[str]()
    assert signed_in(tokens, tmp_path).header() == "Bearer planted-0123456789"
    if isinstance(changes, str):
        file.write_text(changes)
    else:
        planted(tokens, tmp_path, **changes)
    assert signed_in(tokens, tmp_path, said).header() == f"Bearer {tokens.given[0]}"
    assert said == ["Creating new openai OAuth token"]


@pytest.mark.parametrize("how", ["readable", "link", "fifo", "of another"])
def test_a_file_that_another_could_have_written_is_not_used(
    how: str, tokens: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = planted(tokens, tmp_path)
    if how == "readable":
        file.chmod(0o640)
    elif how == "link":
        file.symlink_to(file.rename(tmp_path / "elsewhere"))
    elif how == "fifo":
        file.unlink()
        os.mkfifo(file, 0o600)
    else:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert signed_in(tokens, tmp_path).header() == f"Bearer {tokens.given[0]}"


def test_tokens_are_cached_in_the_users_folder(tokens: TokenEndpoint, tmp_path: Path) -> None:
    env = environment(tokens.url, XDG_CACHE_HOME=str(tmp_path / "cache"))
    OAuthSignIn(OAUTH, env=env, redactor=Redactor(), say=lambda _line: None).header()
    assert sign_in.cached_token(OAUTH, env) == tokens.given[0]
    (folder,) = (tmp_path / "cache").iterdir()
    assert (folder.name, stat.S_IMODE(folder.stat().st_mode)) == ("eval-factory", 0o700)
    (tmp_path / "file").touch()
    env["XDG_CACHE_HOME"] = str(tmp_path / "file")
    with pytest.raises(SignInError, match=naming("cannot cache it", "set XDG_CACHE_HOME")):
        OAuthSignIn(OAUTH, env=env, redactor=Redactor(), say=lambda _line: None).header()


@pytest.mark.parametrize(
    ("code", "elsewhere"), [(307, True), (308, True), (302, True), (307, False)]
)
def test_the_clients_secret_follows_no_redirect_to_another_host(
    code: int, elsewhere: bool, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    with TokenEndpoint() as other:
        tokens.redirects = [(code, other.url if elsewhere else f"{tokens.url}/")]
        if elsewhere:
            with pytest.raises(SignInError, match="redirects to another host"):
                signed_in(tokens, tmp_path).header()
        else:
            assert signed_in(tokens, tmp_path).header() == f"Bearer {tokens.given[0]}"
        assert other.asked == 0


def test_a_refused_token_is_renewed_once_for_all(tokens: TokenEndpoint, tmp_path: Path) -> None:
    sign_in = signed_in(tokens, tmp_path)
    refused = sign_in.header()
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(sign_in.renew, [refused] * 16))
    assert (len(tokens.given), sign_in.header()) == (2, f"Bearer {tokens.given[1]}")


def test_deleting_the_file_forces_a_new_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    sign_in = signed_in(tokens, tmp_path)
    before = sign_in.header()
    file_of(tokens, tmp_path).unlink()
    assert sign_in.header() != before


def test_many_threads_have_one_token(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.delay_s = 0.1
    sign_ins = [signed_in(tokens, tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(32) as pool:
        headers = set(pool.map(lambda n: sign_ins[n % 8].header(), range(64)))
    assert len(headers) == len(tokens.given) == 1


def test_in_an_event_loop_others_go_on_while_one_gets_a_token(
    tokens: TokenEndpoint, tmp_path: Path
) -> None:
    tokens.delay_s = 0.2
    sign_in = signed_in(tokens, tmp_path)
    seen = []

    def process(number: int) -> None:
        seen.append((number, sign_in.header() if number < 2 else None))

    map_at_once(process, range(9), 3)
    assert [number for number, _ in seen[:7]] == list(range(2, 9))
    assert {header for _, header in seen[7:]} == {f"Bearer {tokens.given[0]}"}
    assert len(tokens.given) == 1


@pytest.mark.parametrize(
    ("what", "value", "reason"),
    [
        ("way", "refuses", "invalid_client"),
        ("way", "garbage", "HTTP 200: (missing_token)"),
        ("way", "no token", "Missing access token"),
        ("way", "odd token", "holds no token"),
        ("way", "two lines", "holds no token"),
        ("way", "error", "HTTP 500"),
        ("expires_in", float("inf"), "holds no token"),
        ("expires_in", 10**400, "holds no token"),
        ("expires_in", float("nan"), "holds no token"),
        ("expires_in", -5, "holds no token"),
    ],
)
def test_no_token(
    what: str, value: object, reason: str, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    setattr(tokens, what, value)
    with pytest.raises(SignInError, match="Error creating openai OAuth token") as caught:
        signed_in(tokens, tmp_path).header()
    message = str(caught.value)
    assert reason.lower() in message.lower()
    assert "check OPENAI_CLIENT_ID, OPENAI_CLIENT_SECRET, OPENAI_TOKEN_URL" in message
    assert CLIENT_SECRET not in message
    assert not file_of(tokens, tmp_path).exists()


def test_a_token_endpoint_that_is_slow(
    tokens: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "TOKEN_TIMEOUT_S", 0.2)
    tokens.delay_s = 1.0
    with pytest.raises(SignInError, match=naming("openai OAuth token", "0.2 s")):
        signed_in(tokens, tmp_path).header()


def test_a_token_endpoint_that_is_down(tmp_path: Path) -> None:
    with TokenEndpoint() as gone:
        pass
    with pytest.raises(SignInError, match=naming("openai OAuth token", "cannot be reached")):
        signed_in(gone, tmp_path).header()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"OPENAI_TOKEN_URL": "http://tokens.example/token"}, "https"),
        (
            {"OPENAI_CLIENT_ID": "", "OPENAI_CLIENT_SECRET": ""},
            "Missing environment variables for openai token: OPENAI_CLIENT_ID, OPENAI_CLIENT_SECRET",
        ),
    ],
    ids=["plain http to another host", "missing variables"],
)
def test_what_is_refused_at_once(
    more: dict[str, str],
    said: str,
    tokens: TokenEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OAUTHLIB_INSECURE_TRANSPORT", raising=False)
    with pytest.raises(SignInError, match=said):
        signed_in(tokens, tmp_path, **more).header()  # type: ignore[arg-type]


def test_a_token_that_says_no_lifetime(tokens: TokenEndpoint, tmp_path: Path) -> None:
    tokens.expires_in = None
    signed_in(tokens, tmp_path).header()
    kept = json.loads(file_of(tokens, tmp_path).read_text())
    assert kept["expires_at"] - time.time() <= sign_in.LIFETIME_UNKNOWN_S


def test_a_token_of_another_scope_is_taken(tokens: TokenEndpoint, tmp_path: Path) -> None:
    """RFC 6749, section 3.3: the service may grant less than what a client names."""
    tokens.granted = "another-scope"
    assert signed_in(tokens, tmp_path).header() == f"Bearer {tokens.given[0]}"
    assert tokens.scopes == ["azureopenai-readwrite"]


def fallback(tokens: TokenEndpoint, url: str, said: list[str], **settings: Any) -> sign_in.SignIn:
    service = OAuthSettings("openai", tokens.url, None)
    return sign_in.sign_in(
        endpoint_settings(url=url, key_names=("MY_KEY",), **settings),
        env={**environment(tokens.url), "MY_KEY": "a-plain-key-0123456789"},
        redactor=Redactor(),
        say=said.append,
        services=[service],
    )


def test_a_key_is_used_until_the_endpoint_refuses_it(
    tokens: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "cache_folder", lambda _env: tmp_path)
    said = list[str]()
    signed = fallback(tokens, "http://127.0.0.1:1/v1", said)
    key = signed.header()
    assert (key, tokens.given) == ("Bearer a-plain-key-0123456789", [])
    assert signed.renew(key)
    assert signed.header() == f"Bearer {tokens.given[0]}"
    assert any("Authentication error detected" in line for line in said)
    assert signed.renew(signed.header()), "a token that is refused is renewed"
    assert len(tokens.given) == 2


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("https://api.elsewhere.example/v1", {}),
        ("http://127.0.0.1:1/v1", {"servers": ("http://127.0.0.1:1/v1", "http://other/v1")}),
    ],
)
def test_a_token_goes_to_no_other_host(
    url: str, settings: dict[str, Any], tokens: TokenEndpoint
) -> None:
    signed = fallback(tokens, url, [], **settings)
    assert not signed.renew(signed.header())
    assert tokens.asked == 0
