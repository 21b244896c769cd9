"""Watching a suite until it ends."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from eval_factory.cli import suite_screen
from eval_factory.cli.suite_screen import show_status, watch
from eval_factory.workflows.suite.suite_status import SuiteReader, status_of
from suite_by_hand import cell_ended, cell_started, ended, held, paused, started, suite_folder, tell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(*actions: Callable[[], object]) -> Callable[[float], None]:
    """What happens while the watcher sleeps, one after another."""
    left = iter(actions)
    return lambda _: (next(left)(), None)[1]


def nothing() -> None:
    pass


@pytest.fixture
def stack() -> ExitStack:
    """Closed when the suite lets go of its lock."""
    return ExitStack()


def test_one_record_a_change(tmp_path: Path, stack: ExitStack) -> None:
    folder, out = suite_folder(tmp_path, started(["a/b"])), io.StringIO()
    stack.enter_context(held(folder))

    def end() -> None:
        tell(folder.events, cell_ended("a/b"), ended())
        stack.close()

    watch(SuiteReader(folder), out, as_json=True, sleep=steps(
        nothing, nothing, lambda: tell(folder.events, cell_started("a/b")), end
    ))  # fmt: skip
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["state"], one["cells"][0]["status"]) for one in records] == [
        ("running", "waiting"), ("running", "running"), ("ended", "complete"),
    ]  # fmt: skip


def test_lines_where_there_is_no_terminal(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = suite_folder(tmp_path, started(["a/b", "c/d"])), io.StringIO()
    stack.enter_context(held(folder))
    times = iter([0.0, 1.0, 2.0, 10.0, 10.0, 11.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    watch(SuiteReader(folder), out, as_json=False, sleep=steps(
        lambda: tell(folder.events, cell_started("a/b")),
        lambda: tell(folder.events, paused("host", "c/d")),
        nothing,
        stack.close,
    ))  # fmt: skip
    assert out.getvalue().splitlines()[:7] == [
        "a/b: waiting", "c/d: waiting", "a/b: running", "c/d: paused",
        "paused: host: connection refused (1 cell, for 0 s)", "  0/2 cells ended, 1 running",
        f"{tmp_path}: not running; it was stopped before its end",
    ]  # fmt: skip


def test_a_terminal_has_a_table_and_at_the_end_all_lines(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    folder, out = suite_folder(tmp_path, started(["a/b"])), Terminal()
    stack.enter_context(held(folder))
    watch(SuiteReader(folder), out, as_json=False, sleep=steps(nothing, stack.close))
    sent = out.getvalue()
    assert sent.count("1 cell: 1 waiting") >= 2
    assert sent.rindex("\x1b[?25h") < sent.rindex("1 cell: 1 missing")


def test_nobody_reads_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_screen, "nobody_reads", lambda _: True)
    folder = suite_folder(tmp_path, started(["a/b"]))
    with held(folder):
        for as_json in (True, False):
            watch(SuiteReader(folder), io.StringIO(), as_json=as_json, sleep=steps())


def test_on_a_terminal_lines_fit_and_the_command_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    folder = suite_folder(tmp_path, started(["a/b"]), cell_ended("a/b", "failed", reason="many words " * 20))
    for out, fits in ((Terminal(), True), (io.StringIO(), False)):
        show_status(status_of(folder), out, as_json=False)
        lines = out.getvalue().splitlines()
        assert lines[-1] == f"  eval-factory run_suite --run_config {tmp_path}/suite_config.yml"
        words = [line for line in lines[:-1] if str(tmp_path) not in line]
        assert (max(map(len, words)) <= 50) is fits


def test_one_record(tmp_path: Path) -> None:
    out = io.StringIO()
    show_status(status_of(suite_folder(tmp_path, started(["a/b"]))), out, as_json=True)
    assert json.loads(out.getvalue())["state"] == "stopped"
