"""HELM's pages of given folders: made, written, served to this machine alone."""

from __future__ import annotations

import http.client
import io
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.workflows import view, view_site
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.view import HEADERS, PageServer
from eval_factory.workflows.view_site import _INDEX, suite_folder
from unit.workflows.test_view_runs import RUN, finished, tree

Told = list[tuple[Path, list[str], RunContext]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """helm-summarize writes what the page of a run is made of, and a table that names its own place."""
    calls: Told = []

    def summarize(context: RunContext, argv: Sequence[str], *, keeps_log: bool) -> None:
        assert not keeps_log
        assert context.lock.descriptor
        calls.append((context.rundir.root, list(argv), context))
        suite = Path(argv[argv.index("--output-path") + 1]) / "runs/view"
        for run in suite.iterdir():
            (run / view.SHOWN_ANSWERS).write_text("[]")
        (suite / "groups.json").write_text(f'"{suite}/x.tex"')

    monkeypatch.setattr(view_site, "summarize", summarize)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return calls


def exported(folders: Sequence[Path], target: Path, **env: str) -> view.Pages:
    return view.export(folders, target, env=env, screen=io.StringIO())


def test_pages_as_files(told: Told, tmp_path: Path) -> None:
    before = tree(finished(tmp_path / "a"))
    pages = exported([tmp_path / "a"], tmp_path / "new/site")
    assert (pages.folder, pages.address) == (tmp_path / "new/site", None)
    assert stat.S_IMODE(pages.folder.stat().st_mode) == 0o700, "patients' texts"
    assert (pages.folder / _INDEX).is_file()
    suite = suite_folder(pages.folder)
    assert (suite / RUN / "stats.json").is_file()
    assert not [path for path in pages.folder.rglob("*") if path.is_symlink()]
    assert (suite / "groups.json").read_text() == '"benchmark_output/runs/view/x.tex"'
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["site"], "nothing is left beside it"
    assert tree(tmp_path / "a") == before


def test_an_empty_folder_is_taken_and_any_other_is_refused(told: Told, tmp_path: Path) -> None:
    finished(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert exported([tmp_path / "a"], tmp_path / "empty").folder == tmp_path / "empty"
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in (file, full, tmp_path / "link"):
        with pytest.raises(ConfigError, match="there is something already"):
            exported([tmp_path / "a"], target)
    assert file.read_text() == (full / "mine").read_text() == "mine"
    with pytest.raises(ConfigError, match="is inside of the output folder"):
        exported([tmp_path / "a"], tmp_path / "a/site")
    assert len(told) == 1


def test_a_helm_summarize_that_fails_says_what_to_do(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise HelmError("helm-summarize ended with 1:\n  | its last line")

    monkeypatch.setattr(view_site, "summarize", fail)
    with pytest.raises(HelmError, match=r"ended with 1:\n  \| its last line\n.*verify DIR.*--fresh"):
        exported([finished(tmp_path / "a")], tmp_path / "site")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "tmp"]


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
