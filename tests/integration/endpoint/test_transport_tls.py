"""Which certificates are trusted, over HTTPS on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.redaction import Redactor
from eval_factory.data.failure import FetchError
from eval_factory.data.fetch import Fetcher
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.sign_in import OAuthSignIn, SignInError
from eval_factory.endpoint.transport import CERTIFICATE_VARIABLES, Transport, TransportError
from tls import certificate, served

TOKEN = {"access_token": "token-canary-0123456789", "token_type": "bearer", "expires_in": 3600}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A handshake that fails is what is tested."""


class _Answers(BaseHTTPRequestHandler):
    """The same document to everybody: a token to one, an answer to another."""

    def do_POST(self) -> None:
        data = json.dumps(TOKEN).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CERTIFICATE_VARIABLES, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def url(pem: tuple[Path, Path]) -> Iterator[str]:
    with served(_Server(("127.0.0.1", 0), _Answers), *pem) as base:
        yield f"{base}/token"


def token_from(url: str, folder: Path) -> str | None:
    env = {"OPENAI_CLIENT_ID": "id", "OPENAI_CLIENT_SECRET": "secret-0123456789", "OPENAI_TOKEN_URL": url}
    sign_in = OAuthSignIn(
        OAuthSettings("openai", None, None), env=env, redactor=Redactor(), say=lambda _: None, folder=folder
    )
    return sign_in.header()


@pytest.mark.parametrize("variable", CERTIFICATE_VARIABLES)
def test_each_variable_of_certificates_holds_for_all_that_is_asked(
    variable: str, url: str, pem: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(pem[0]))
    assert Transport(url, timeout_s=5, connections=1).post(url, {}).status == 200
    assert token_from(url, tmp_path) == f"Bearer {TOKEN['access_token']}"
    Fetcher().file(url, tmp_path / "data")
    assert json.loads((tmp_path / "data").read_text()) == TOKEN


def test_a_certificate_that_is_not_trusted_is_named_with_its_remedy(url: str, tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"TLS failed: .*self.signed certificate") as asked:
        Transport(url, timeout_s=5, connections=1).post(url, {})
    with pytest.raises(SignInError, match=r"TLS failed: .*self.signed certificate") as signed_in:
        token_from(url, tmp_path)
    with pytest.raises(FetchError, match="TLS failed") as fetched:
        Fetcher().file(url, tmp_path / "data")
    for raised in (asked, signed_in, fetched):
        assert "REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE" in str(raised.value)
        assert "(certifi)" in str(raised.value)
