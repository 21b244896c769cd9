"""Who holds a suite."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from eval_factory.workflows.suite.suite_folder import lock_is_held, may_hold
from suite_by_hand import held, suite_folder


def test_a_lock_that_is_held(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    assert not lock_is_held(folder.lock)
    with held(folder):
        assert lock_is_held(folder.lock)
        assert may_hold(os.getpid(), folder.lock)
    assert not lock_is_held(folder.lock)
    assert not may_hold(os.getpid(), folder.lock)


def test_who_looks_does_not_keep_others_who_look_out(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    descriptor = os.open(folder.lock, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert not lock_is_held(folder.lock)
    finally:
        os.close(descriptor)


def test_there_is_no_lock(tmp_path: Path) -> None:
    assert not lock_is_held(tmp_path / "nothing")
    assert may_hold(os.getpid(), tmp_path / "nothing")


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    folder = suite_folder(tmp_path)
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not lock_is_held(folder.lock)
