"""Imports while another process works: once, and done before anything else is imported."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from eval_factory.workflows.imports_ahead import NICENESS, ImportsAhead


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """It takes a while, and counts how often it was begun."""
    (tmp_path / "never_begun.py").write_text("")
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_to_import", raising=False)
    return "slow_to_import"


def test_after_waiting_a_module_is_there_as_a_whole(slow_module: str) -> None:
    ahead = ImportsAhead(["no_such_module_at_all", slow_module, "never_begun"])
    ahead.begin()
    while slow_module not in sys.modules:
        time.sleep(0.001)
    ahead.wait()
    assert sys.modules[slow_module].ready is True
    assert "never_begun" not in sys.modules


def test_what_comes_after_the_modules_is_done_in_its_order_and_may_fail(slow_module: str) -> None:
    done: list[object] = []
    both = threading.Event()

    def fail() -> None:
        done.append(slow_module in sys.modules)
        raise ValueError("whoever needs it sees it")

    ahead = ImportsAhead([slow_module], [fail, lambda: done.append("next"), both.set])
    ahead.begin()
    assert both.wait(10)
    ahead.wait()
    assert done == [True, "next"]


def test_nothing_is_begun_once_somebody_waits(slow_module: str) -> None:
    done: list[int] = []
    ahead = ImportsAhead([slow_module], [lambda: done.append(1)])
    ahead.begin()
    ahead.wait()
    assert done == []


def test_without_modules_something_can_be_done_too() -> None:
    done = threading.Event()
    ahead = ImportsAhead([], [done.set])
    ahead.begin()
    assert done.wait(10)
    ahead.wait()


def test_what_is_not_begun_imports_nothing(slow_module: str) -> None:
    ImportsAhead([slow_module]).wait()
    assert slow_module not in sys.modules


def test_without_modules_there_is_no_thread() -> None:
    before = threading.active_count()
    ImportsAhead([]).begin()
    assert threading.active_count() == before


@pytest.mark.parametrize(("platform", "expected"), [("linux", 1), ("darwin", 0)])
def test_it_gives_way_where_threads_have_priorities(
    platform: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the priority would be the whole process's, or another one's of that number."""
    given: list[tuple[int, int, int]] = []
    done = threading.Event()
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "setpriority", lambda *what: given.append(what))
    ahead = ImportsAhead([], [done.set])
    ahead.begin()
    assert done.wait(10)
    ahead.wait()
    assert len(given) == expected
    assert all((kind, niceness) == (os.PRIO_PROCESS, NICENESS) for kind, _, niceness in given)
    assert threading.get_native_id() not in [thread for _, thread, _ in given]


def test_where_priorities_are_refused_it_imports_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    done = threading.Event()
    monkeypatch.setattr(os, "setpriority", refused)
    ahead = ImportsAhead([], [done.set])
    ahead.begin()
    assert done.wait(10)
    ahead.wait()
