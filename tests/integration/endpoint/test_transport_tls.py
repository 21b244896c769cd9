"""Which certificates are trusted, over HTTPS on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eval_factory.endpoint.transport import CERTIFICATE_VARIABLES, Transport, TransportError

from eval_factory.data.failure import FetchError
from eval_factory.data.fetch import Fetcher
from eval_factory.endpoint.sign_in import SignInError
from loopback import serving
from tls import certificate, served
from token_answers import TOKEN, Answers, Server, forget_proxies_and_certificates, token_from


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def url(pem: tuple[Path, Path]) -> Iterator[str]:
    with served(Server(("127.0.0.1", 0), Answers), *pem) as base:
        yield f"{base}/token"


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


def test_the_wrong_scheme_is_named(url: str, pem: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS on a port that is thought to be plain, and the other way round."""
    monkeypatch.setenv(CERTIFICATE_VARIABLES[0], str(pem[0]))
    plain = Server(("127.0.0.1", 0), Answers)
    serving(plain)
    for wrong, said in (
        (url.replace("https:", "http:"), "speaks TLS: the address has to begin with https://"),
        (f"https://127.0.0.1:{plain.server_address[1]}/token", "speaks no TLS: the address has to begin with http://"),
    ):
        with pytest.raises(TransportError, match=said) as raised:
            Transport(wrong, timeout_s=5, connections=1).post(wrong, {})
        assert raised.value.unreachable
    plain.shutdown()
    plain.server_close()


class KeptAnswers(Answers):
    """Over one connection as long as its peer wants to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = self.headers["X-Last"] is not None
        super().do_POST()


def test_a_connection_is_used_again(pem: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its server ends it, between two requests."""
    monkeypatch.setenv(CERTIFICATE_VARIABLES[0], str(pem[0]))
    accepted = []

    class Counting(Server):
        def process_request(self, request: Any, client_address: Any) -> None:
            accepted.append(client_address)
            super().process_request(request, client_address)

    with served(Counting(("127.0.0.1", 0), KeptAnswers), *pem) as base:
        transport = Transport(base, timeout_s=20, connections=1)
        counts = []
        for headers in ({}, {}, {}, {"X-Last": "1"}, {"X-Last": "1"}):
            reply = transport.post(f"{base}/token", {"prompt": "x" * 100_000}, headers)
            assert json.loads(reply.data) == TOKEN
            counts.append(len(accepted))
    assert counts == [1, 1, 1, 1, 2]
