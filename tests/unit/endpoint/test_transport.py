"""Which proxy, which certificates; the wire itself is in tests/faults, HTTPS in tests/integration."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from eval_factory.endpoint.transport import CERTIFICATE_VARIABLES, Transport, TransportError, certificates

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.served_url import SERVED_AT
from eval_factory.data.fetch import Fetcher
from eval_factory.endpoint import transport
from loopback import serving
from token_answers import Answers, Server, forget_proxies_and_certificates, token_from


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


def test_the_first_variable_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in reversed(CERTIFICATE_VARIABLES):
        monkeypatch.setenv(name, str(tmp_path))
        assert certificates() == (str(tmp_path), name)


def test_certificates_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexist.pem")
    for made in (lambda: Transport("https://host/v1", timeout_s=5, connections=1), Fetcher):
        with pytest.raises(PrerequisiteError, match=r"SSL_CERT_FILE: there is no file /nonexist\.pem"):
            made()


def test_a_proxy_of_another_kind_is_refused_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://u:proxy-password-1@127.0.0.1:1080")
    for ask in (
        lambda: Transport("https://host/v1", timeout_s=5, connections=1),
        lambda: Fetcher().file("https://host/data", tmp_path / "data"),
        lambda: token_from("https://host/token", tmp_path),
    ):
        with pytest.raises(PrerequisiteError, match="ALL_PROXY: a proxy of the kind socks5://") as raised:
            ask()
        assert "proxy-password-1" not in str(raised.value)
    monkeypatch.setenv("NO_PROXY", "host")
    Transport("https://host/v1", timeout_s=5, connections=1)


class _SlowReader(Answers):
    """Takes a request's body in pieces, with pauses between them."""

    protocol_version = "HTTP/1.1"  # connections are used again
    pause_s = 0.0

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        left = int(self.headers["Content-Length"])
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                return
            left -= len(piece)
            time.sleep(self.pause_s)
        super().do_POST()


@pytest.fixture
def slow() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), _SlowReader)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    serving(server)
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


LARGE = {"prompt": "x" * (12 << 20)}


def test_sending_has_the_time_of_the_whole_request(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of connecting, which urllib3 would give it; on a new connection and on one that is used again."""
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(_SlowReader, "pause_s", 0.03)
    asked = Transport(slow, timeout_s=60, connections=1)
    assert [asked.post(slow, LARGE).status for _ in range(2)] == [200, 200]


def test_sending_counts_within_that_time(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_SlowReader, "pause_s", 0.3)
    with pytest.raises(TransportError, match=r"no whole answer within 0\.5 s"):
        Transport(slow, timeout_s=0.5, connections=1).post(slow, LARGE)


class _Dragging(Answers):
    """Sends a header byte by byte: the socket's own timeout begins anew with each."""

    drags = False
    sent_all = threading.Event()

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        if not self.drags:
            super().do_POST()
            return
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(150):
                self.wfile.write(b"a")
                time.sleep(0.02)
            self.sent_all.set()


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "timeouts"]


def test_a_program_that_asked_keeps_no_thread_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next request is watched as the first was."""
    server = Server(("127.0.0.1", 0), _Dragging)
    serving(server)
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    before = watching()
    asked = Transport(url, timeout_s=0.4, connections=1)
    for drags in (False, True):
        monkeypatch.setattr(_Dragging, "drags", drags)
        if drags:
            with pytest.raises(TransportError, match=r"no whole answer within 0\.4 s"):
                asked.post(url, {})
        else:
            assert asked.post(url, {}).status == 200
        for thread in [one for one in watching() if one not in before]:
            thread.join(timeout=60)
            assert not thread.is_alive()
    assert not _Dragging.sent_all.is_set()
    server.shutdown()
    server.server_close()


def test_no_proxy_leads_to_a_server_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert transport.proxy_from_environment("http://127.0.0.1:20001/v1") == "http://proxy.example:3128"
    monkeypatch.setenv(SERVED_AT, "http://127.0.0.1:20001")
    assert transport.proxy_from_environment("http://127.0.0.1:20001/v1") is None
    assert transport.proxy_from_environment("http://127.0.0.2:20001/v1") == "http://proxy.example:3128"
