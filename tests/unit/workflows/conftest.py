"""A finished output folder for the tests of what reads one again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eval_factory.core.rundir import RunDir
from finished_folder import finished_folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Made once, and left as it is."""
    return finished_folder(tmp_path_factory.mktemp("finished") / "out")


@pytest.fixture
def folder(finished: RunDir, tmp_path: Path) -> RunDir:
    """A copy, as somebody gets it who was sent the folder."""
    shutil.copytree(finished.root, tmp_path / "out")
    return RunDir(tmp_path / "out")


@pytest.fixture(autouse=True)
def _the_commit_that_made_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No unit test asks git."""
    monkeypatch.setattr("eval_factory.workflows.verify.checkout_commit", lambda: "abc123")
