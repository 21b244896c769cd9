"""The socket that a killed suite leaves behind, and whose socket stays."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.limit_server import PREFIX, SOCKET
from eval_factory.workflows.suite.suite_folder import remembered, take_away


@pytest.fixture
def suite(tmp_path: Path) -> SuiteDir:
    folder = SuiteDir(tmp_path / "suite")
    folder.state.mkdir(parents=True)
    return folder


def left_behind(root: Path, name: str = f"{PREFIX}x") -> Path:
    """A socket as a killed process leaves it."""
    (root / name).mkdir()
    path = root / name / SOCKET
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    return path


def remember(suite: SuiteDir, address: object, host: str | None = None) -> None:
    suite.socket.write_text(json.dumps({"host": host or socket.gethostname(), "address": address}))


def test_it_is_remembered_for_as_long_as_it_is_there(suite: SuiteDir) -> None:
    with remembered("/t/s", suite):
        assert json.loads(suite.socket.read_text()) == {"host": socket.gethostname(), "address": "/t/s"}
    assert not suite.socket.exists()


def test_what_was_left_is_taken_away(suite: SuiteDir, tmp_path: Path) -> None:
    path = left_behind(tmp_path)
    remember(suite, str(path))
    take_away(suite)
    assert not path.parent.exists()
    assert not suite.socket.exists()


def test_what_is_another_machines_stays(suite: SuiteDir, tmp_path: Path) -> None:
    path = left_behind(tmp_path)
    remember(suite, str(path), "another.example")
    take_away(suite)
    assert path.exists()
    assert suite.socket.exists()


def test_what_is_no_socket_of_ours_stays(suite: SuiteDir, tmp_path: Path) -> None:
    elsewhere = left_behind(tmp_path, "mine")
    (tmp_path / f"{PREFIX}file").mkdir()
    file = tmp_path / f"{PREFIX}file" / SOCKET
    file.write_text("a file of somebody's")
    other = left_behind(tmp_path).rename(tmp_path / f"{PREFIX}x" / "other")
    for path in (elsewhere, file, other):
        remember(suite, str(path))
        take_away(suite)
        assert path.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"host": "h"}', '{"host": null, "address": 5}'])
def test_a_note_that_says_nothing_changes_nothing(text: str, suite: SuiteDir) -> None:
    take_away(suite)
    suite.socket.write_text(text)
    take_away(suite)
    assert suite.socket.read_text() == text
