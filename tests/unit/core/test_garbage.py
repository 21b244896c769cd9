"""When Python looks for garbage: seldom, and not at the end."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable
from typing import Any

import pytest

from eval_factory.core import this_process


def test_seldom_and_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds: list[tuple[int, ...]] = []
    at_the_end: list[Callable[..., Any]] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: thresholds.append(numbers))
    monkeypatch.setattr(atexit, "register", at_the_end.append)
    this_process.collect_rarely()
    assert thresholds == [(this_process.THRESHOLD, 20, 20)]
    assert at_the_end == [gc.freeze]


def test_what_there_is_is_looked_at_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("frozen"))
    this_process.keep_what_there_is()
    assert calls == ["frozen"]
