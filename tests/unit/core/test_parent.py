"""A process ends with the one that started it."""

from __future__ import annotations

import os
import threading

import pytest

from eval_factory.core import this_process


def test_nobody_is_watched_where_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_process, "_end", pytest.fail)
    before = threading.active_count()
    this_process.end_with_parent(None)
    assert threading.active_count() == before


def test_outside_a_group_of_its_own_it_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "getpgrp", lambda: os.getpid() + 1)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("the group of somebody else"))
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(threading, "Thread", lambda **_: pytest.fail("nobody to watch") if not ended else _Never())
    this_process.end_with_parent(os.getppid() + 1)
    assert ended == [1]


class _Never:
    def start(self) -> None:
        """The process would have ended."""
