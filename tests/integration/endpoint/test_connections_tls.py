"""Which certificates are trusted, over HTTPS on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory.data.hub import FetchError
from eval_factory.data.pull import Fetcher
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.http_wire import TransportError
from eval_factory.endpoint.proxies import CERTIFICATE_VARIABLES
from eval_factory.endpoint.sign_in import SignInError
from facts import naming
from in_the_loop import WAYS, runs_in
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
    assert Transport(url, timeout_s=5).post(url, {}).status == 200
    assert token_from(url, tmp_path) == f"Bearer {TOKEN['access_token']}"
    Fetcher().download_file(url, tmp_path / "data")
    assert json.loads((tmp_path / "data").read_text()) == TOKEN


def test_a_certificate_that_is_not_trusted_is_named_with_its_remedy(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(TransportError, match=r"TLS failed: .*self.signed certificate") as asked:
        Transport(url, timeout_s=5).post(url, {})
    with pytest.raises(SignInError, match=r"TLS failed: .*self.signed certificate") as signed_in:
        token_from(url, tmp_path)
    with pytest.raises(FetchError, match="TLS failed") as fetched:
        Fetcher().download_file(url, tmp_path / "data")
    for raised in (asked, signed_in, fetched):
        assert "REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE" in str(raised.value)
        assert "(certifi)" in str(raised.value)


def test_the_wrong_scheme_is_named(
    url: str, pem: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS on a port that is thought to be plain, whose server hangs up, and the other way round."""
    monkeypatch.setenv(CERTIFICATE_VARIABLES[0], str(pem[0]))
    plain = Server(("127.0.0.1", 0), Answers)
    serving(plain)
    for wrong, said in (
        (
            url.replace("https:", "http:"),
            "if TLS is spoken there, the address has to begin with https://",
        ),
        (
            f"https://127.0.0.1:{plain.server_address[1]}/token",
            "does not speak TLS: the address has to begin with http://",
        ),
    ):
        with pytest.raises(TransportError, match=said) as raised:
            Transport(wrong, timeout_s=5).post(wrong, {})
        assert raised.value.silent
    plain.shutdown()
    plain.server_close()


class StoredAnswers(Answers):
    """Over one connection as long as its peer wants to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = self.headers["X-Last"] is not None
        super().do_POST()


def test_a_connection_is_used_again(
    pem: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its server ends it, between two requests."""
    monkeypatch.setenv(CERTIFICATE_VARIABLES[0], str(pem[0]))
    accepted = []

    class Counting(Server):
        def process_request(self, request: Any, client_address: Any) -> None:
            accepted.append(client_address)
            super().process_request(request, client_address)

    with served(Counting(("127.0.0.1", 0), StoredAnswers), *pem) as base:
        transport = Transport(base, timeout_s=20)
        counts = []
        for headers in ({}, {}, {}, {"X-Last": "1"}, {"X-Last": "1"}):
            reply = transport.post(f"{base}/token", {"prompt": "x" * 100_000}, headers)
            assert json.loads(reply.data) == TOKEN
            counts.append(len(accepted))
    assert counts == [1, 1, 1, 1, 2]


class Proxy(Server):
    """Leads to where it is asked for, with this login; notes what it was asked."""

    def __init__(self, login: str = "user:pass word") -> None:
        self.login = "Basic " + base64.b64encode(login.encode()).decode()
        self.asked = list[str]()
        super().__init__(("127.0.0.1", 0), Leading)


class Leading(Answers):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_CONNECT(self) -> None:  # noqa: N802 - http.server calls it so
        self.server.asked.append(f"CONNECT {self.path}")
        if not self.may_pass():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as other:
            self.send_response(200, "Connection established")
            self.end_headers()
            there = threading.Thread(target=_passed_on, args=(other, self.connection))
            there.start()
            _passed_on(self.connection, other)
            there.join()
        self.close_connection = True

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(f"POST {self.path} for {self.headers['Host']}")
        if self.may_pass():
            super().do_POST()

    def may_pass(self) -> bool:
        if known := self.headers["Proxy-Authorization"] == self.server.login:
            return known
        self.send_response(407)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False


def _passed_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(1 << 16):
            other.sendall(piece)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_leads_there_over_a_tunnel_that_is_kept(
    scheme: str, way: str, pem: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is reached over TLS, too. The endpoint's name is nowhere looked up: the proxy does that."""
    runs_in(way, Transport, "post", monkeypatch)
    monkeypatch.setenv(CERTIFICATE_VARIABLES[0], str(pem[0]))
    proxy = Proxy()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(served(Server(("127.0.0.1", 0), StoredAnswers), *pem))
        if scheme == "https":
            stack.enter_context(served(proxy, *pem))
        else:
            serving(proxy)
            stack.callback(proxy.server_close)
            stack.callback(proxy.shutdown)
        address = f"127.0.0.1:{proxy.server_address[1]}"
        monkeypatch.setenv("https_proxy", f"{scheme}://user:pass%20word@{address}")
        asked = Transport(endpoint, timeout_s=20)
        body = {"prompt": "x" * 100_000}
        assert [json.loads(asked.post(f"{endpoint}/token", body).data) for _ in range(3)] == [
            TOKEN
        ] * 3
        assert proxy.asked == [f"CONNECT {endpoint.removeprefix('https://')}"]
        monkeypatch.setenv("https_proxy", f"{scheme}://user:wrong@{address}")
        assert Transport(endpoint, timeout_s=20).post(f"{endpoint}/token", body).status == 407
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
        with pytest.raises(TransportError, match=naming("the proxy refused")) as raised:
            Transport(endpoint, timeout_s=20).post(f"{endpoint}/token", body)
        assert raised.value.unreachable
        del asked


def test_plain_http_is_asked_of_the_proxy_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the whole address, and over a connection that is kept."""
    proxy = Proxy()
    serving(proxy)
    monkeypatch.setenv(
        "http_proxy", f"127.0.0.1:{proxy.server_address[1]}".join(["http://user:pass%20word@", ""])
    )
    url = "http://endpoint.invalid:8080/v1/chat?a=b"
    asked = Transport(url, timeout_s=20)
    assert [asked.post(url, {}).status for _ in range(2)] == [200, 200]
    assert proxy.asked == [f"POST {url} for endpoint.invalid:8080"] * 2
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_address[1]}")
    assert Transport(url, timeout_s=20).post(url, {}).status == 407
    monkeypatch.setenv("NO_PROXY", "endpoint.invalid")
    with pytest.raises(TransportError, match=naming("no connection")):
        Transport(url, timeout_s=20).post(url, {})
    proxy.shutdown()
    proxy.server_close()
