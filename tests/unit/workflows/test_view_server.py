from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.view import HEADERS, PageServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    (tmp_path / "site/sub").mkdir(parents=True)
    (tmp_path / "site/index.html").write_text("the page")
    (tmp_path / "site/a=b,c.json").write_text("{}")
    (tmp_path / "outside.txt").write_text("outside")
    with PageServer() as server:
        server.start(tmp_path / "site")
        yield server


def ask(server: PageServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    """`path` begins behind the secret part, unless it begins with a slash."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    asked = path if path.startswith("/") else parts.path + path
    connection.putrequest(method, asked, skip_host=True)
    connection.putheader("Host", host or parts.netloc)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


@pytest.mark.parametrize("path", ["", "index.html", "?x=1"])
def test_the_page_is_there(path: str, server: PageServer) -> None:
    status, text, headers = ask(server, path)
    assert (status, text) == (200, "the page")
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/x/index.html", "//", "sub/", "../outside.txt", "%2e%2e/outside.txt", "no"]
)
def test_nothing_else_is_there(path: str, server: PageServer) -> None:
    status, text, headers = ask(server, path)
    assert status == 404
    assert "the page" not in text
    assert "outside" not in text
    assert "connect-src" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("host", ["evil.example", "localhost:1", "127.0.0.1"])
def test_a_request_for_another_name_is_refused(host: str, server: PageServer) -> None:
    assert ask(server, "", host=host)[0] == 404


def test_nothing_can_be_sent(server: PageServer) -> None:
    assert ask(server, "", method="POST")[0] == 501


def test_it_listens_on_this_machine_alone_and_the_address_is_a_secret(tmp_path: Path) -> None:
    with PageServer() as one, PageServer() as two:
        parts = urlsplit(one.address)
        assert parts.hostname == "127.0.0.1"
        assert len(parts.path) >= 22
        assert parts.path.endswith("/")
        assert parts.path != urlsplit(two.address).path
        assert one._server.server_address[0] == "127.0.0.1"


def test_the_port_can_be_given_and_is_free_again(tmp_path: Path) -> None:
    with PageServer() as first:
        port = urlsplit(first.address).port
        assert port is not None
        with pytest.raises(PrerequisiteError, match=f"port {port} of 127.0.0.1 cannot be used.*\n.*--port"):
            PageServer(port)
        first.start(tmp_path)
    with PageServer(port) as second:
        assert urlsplit(second.address).port == port
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
    assert "view-server" not in {thread.name for thread in threading.enumerate()}
