"""Output folders inside a repository: git offers none of their files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eval_factory.core.rundir import GIT_IGNORE, RunDir, SuiteDir
from eval_factory.monitor.ledger import Ledger
from eval_factory.workflows.suite.suite_folder import locked


def status(repository: Path) -> str:
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_a_repository_is_offered_no_output_folder(repository: Path) -> None:
    run = RunDir(repository / "test_cases" / "run")
    run.create()
    run.results_jsonl.write_text("a patient's")
    suite = SuiteDir(repository / "suite")
    with locked(suite):
        run_of_suite = RunDir(suite.cell_folder("model", "task"))
        run_of_suite.create()
        run_of_suite.cache_db.write_text("a patient's")
    Ledger(repository / "panel").append("note", text="x")
    assert status(repository) == ""


def test_a_folder_that_is_ours_already_is_kept_from_git_too(repository: Path) -> None:
    run = RunDir(repository / "run")
    run.create()
    (run.root / GIT_IGNORE).unlink()
    assert status(repository)
    run.create()
    assert status(repository) == ""
    (run.root / GIT_IGNORE).write_text("!*\n")
    run.create()
    assert (run.root / GIT_IGNORE).read_text() == "!*\n"


def test_files_of_others_stay_in_their_repository(repository: Path) -> None:
    (repository / "code.py").write_text("")
    RunDir(repository).create()
    assert "code.py" in status(repository)
