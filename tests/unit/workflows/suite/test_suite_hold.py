from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite import suite_folder
from eval_factory.workflows.suite.suite_folder import lock_is_held
from suite_by_hand import suite_folder as suite_by_hand


def test_the_second_is_told_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_folder, "LOOKED_AT_S", 0.1)
    folder = SuiteDir(tmp_path / "suite")
    with suite_folder.held(folder):
        assert json.loads(folder.lock.read_text())["pid"] == os.getpid()
        with (
            pytest.raises(BusyError, match=rf"in use by another run_suite: process {os.getpid()} on"),
            suite_folder.held(folder),
        ):
            pass
    with suite_folder.held(folder):
        pass


def test_who_only_looks_for_an_instant_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SuiteDir(tmp_path)
    folder.state.mkdir()
    folder.lock.touch()
    looking = os.open(folder.lock, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        fcntl.flock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr("eval_factory.workflows.suite.suite_folder.time.sleep", sleep)
    with suite_folder.held(folder):
        assert len(slept) == 1
    os.close(looking)


def test_the_folder_of_one_run_is_no_suites(tmp_path: Path) -> None:
    (tmp_path / ".eval-factory").touch()
    with pytest.raises(ConfigError, match="is the output folder of one run"), suite_folder.held(SuiteDir(tmp_path)):
        pass
    assert not SuiteDir(tmp_path).state.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PrerequisiteError, match="choose another with"), suite_folder.held(SuiteDir(tmp_path / "file")):
        pass


def test_who_looks_does_not_keep_others_who_look_out(tmp_path: Path) -> None:
    folder = suite_by_hand(tmp_path)
    descriptor = os.open(folder.lock, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert not lock_is_held(folder.lock)
    finally:
        os.close(descriptor)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    folder = suite_by_hand(tmp_path)
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not lock_is_held(folder.lock)
