from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eval_factory import api
from eval_factory.cli.folder_commands import may_open
from eval_factory.cli.main import cli


class _Pages:
    def __init__(self, folder: Path, address: str | None) -> None:
        self.folder, self.address, self.waited = folder, address, False

    def lines(self) -> list[str]:
        return ["HELM's pages of 1 run:", "  task, model\x1b"]

    def wait(self) -> None:
        self.waited = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the API was asked for, and the addresses that a browser was opened with."""
    calls: list[dict[str, Any]] = []

    @contextmanager
    def served_pages(folders: Sequence[Path], **more: Any) -> Iterator[_Pages]:
        pages = _Pages(Path("x"), "http://127.0.0.1:1/secret/")
        calls.append({"folders": folders, "port": more["port"], "pages": pages})
        yield pages

    def export_pages(folders: Sequence[Path], target: Path, **_more: Any) -> _Pages:
        calls.append({"folders": folders, "target": target})
        return _Pages(target, None)

    monkeypatch.setattr(api, "served_pages", served_pages)
    monkeypatch.setattr(api, "export_pages", export_pages)
    monkeypatch.setattr(webbrowser, "open", lambda address: calls.append({"opened": address}))
    monkeypatch.setenv("BROWSER", "x")
    return calls


def view(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["view", *arguments])


def test_the_pages_are_served_and_opened(asked: list[dict[str, Any]]) -> None:
    result = view("a", "~/b", "--port", "8123")
    assert result.exit_code == 0, result.output
    (served, opened) = asked
    assert served["folders"] == (Path("a"), Path.home() / "b")
    assert served["port"] == 8123
    assert served["pages"].waited
    assert opened == {"opened": "http://127.0.0.1:1/secret/"}
    assert result.stdout == "http://127.0.0.1:1/secret/\n"
    assert "HELM's pages of 1 run:\n" in result.stderr
    assert "\x1b" not in result.stderr
    assert "Ctrl-C" in result.stderr


def test_no_browser_is_opened_where_it_is_not_wanted(asked: list[dict[str, Any]]) -> None:
    assert view("a", "--no-browser").exit_code == 0
    (served,) = asked
    assert served["port"] == 0
    assert served["pages"].waited


def test_an_export_says_how_to_look_at_it(asked: list[dict[str, Any]]) -> None:
    result = view("a", "--export", "my site")
    assert result.exit_code == 0, result.output
    assert asked == [{"folders": (Path("a"),), "target": Path("my site")}]
    assert result.stdout == "my site\n"
    assert "  python -m http.server --bind 127.0.0.1 --directory 'my site'\n" in result.stderr
    assert "http://127.0.0.1:8000/" in result.stderr
    assert "HELM's pages of 1 run:\n" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("a", "--port", "65536"), ("a", "--port", "-1")], ids=str)
def test_arguments_that_cannot_be(arguments: tuple[str, ...], asked: list[dict[str, Any]]) -> None:
    assert view(*arguments).exit_code == 2
    assert asked == []


@pytest.mark.parametrize(
    ("env", "platform", "opens"),
    [
        ({}, "linux", False), ({"DISPLAY": ""}, "linux", False), ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True), ({"BROWSER": "firefox"}, "linux", True),
        ({}, "darwin", True), ({}, "win32", True),
    ],
)  # fmt: skip
def test_a_browser_is_opened_where_there_is_a_window(env: dict[str, str], platform: str, opens: bool) -> None:
    assert may_open(env, platform) is opens
