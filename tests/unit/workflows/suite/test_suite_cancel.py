"""How a suite is cancelled."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.suite.suite_folder import cancel, ignores_interrupts
from eval_factory.workflows.suite.suite_status import SuiteReader
from facts import each_says, naming
from suite_by_hand import ended, held, started, suite_folder, tell


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Whom a signal was sent, which does nothing."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *asked: sent.append(asked) if asked[1] else None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return sent


def test_nothing_runs(tmp_path: Path, killed: list[tuple[int, int]]) -> None:
    assert not cancel(suite_folder(tmp_path, started()), print)
    assert not killed


def test_a_suite_that_stops(
    tmp_path: Path, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suite_folder(tmp_path, started())
    stack = ExitStack()
    slept = [0]
    said: list[str] = []

    def sleep(_: float) -> None:
        slept[0] += 1
        if slept[0] == 2:
            tell(folder.events, ended("partial", exit_code=130))
            stack.close()

    monkeypatch.setattr(time, "sleep", sleep)
    stack.enter_context(held(folder))
    assert cancel(folder, said.append)
    assert killed == [(os.getpid(), signal.SIGINT)]
    assert slept == [2]
    each_says(said, [f"process {os.getpid()}", "to stop"])
    after = SuiteReader(folder).read_status()
    assert (after.state, after.exit_code) == ("ended", 130)


def test_one_in_the_background(
    tmp_path: Path, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shell had it ignore SIGINT: it would go on to its end."""
    folder = suite_folder(tmp_path, started())
    now = iter([0.0, 121.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ignores_interrupts(os.getpid())
        with (
            held(folder),
            pytest.raises(PrerequisiteError, match=naming("has not ended", "120 s", "kill -9")),
        ):
            cancel(folder, print)
    finally:
        signal.signal(signal.SIGINT, before)
    assert killed == [(os.getpid(), signal.SIGTERM)]
    assert not ignores_interrupts(os.getpid())


@pytest.mark.parametrize(
    ("status", "ignored"),
    [
        ("SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000000002\nSigCgt:\t0\n", True),
        ("SigIgn:\tfffffffffffffffd\nSigCgt:\tffffffffffffffff\n", False),
        ("SigIgn:\tmany\n", False),
        ("SigIgn:\n", False),
        ("Name:\tx\n", False),
        (None, False),
    ],
)
def test_whether_a_process_ignores_interrupts(
    tmp_path: Path, status: str | None, ignored: bool
) -> None:
    (tmp_path / "7").mkdir()
    if status is not None:
        (tmp_path / "7" / "status").write_text(status)
    assert ignores_interrupts(7, tmp_path) is ignored


def test_one_of_another_machine_and_one_of_whom_nobody_knows(
    tmp_path: Path, killed: list[tuple[int, int]]
) -> None:
    folder = suite_folder(tmp_path, started())
    with (
        held(folder, host="elsewhere"),
        pytest.raises(PrerequisiteError, match=r"runs on elsewhere.*cancel' there"),
    ):
        cancel(folder, print)
    with held(folder):
        folder.lock.write_text("")
        with pytest.raises(PrerequisiteError, match="has just started"):
            cancel(folder, print)
    assert not killed


def test_another_users_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, number: int) -> None:
        if number == signal.SIGINT:
            raise PermissionError

    folder = suite_folder(tmp_path, started())
    monkeypatch.setattr(os, "kill", refuse)
    with held(folder), pytest.raises(PrerequisiteError, match="is another user's"):
        cancel(folder, print)
