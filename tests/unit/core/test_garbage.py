"""When Python looks for garbage: seldom, and not at the end."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable
from typing import Any

import pytest

from eval_factory.core import garbage


def test_seldom_and_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds: list[tuple[int, ...]] = []
    at_the_end: list[Callable[..., Any]] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: thresholds.append(numbers))
    monkeypatch.setattr(atexit, "register", at_the_end.append)
    garbage.collect_rarely()
    assert thresholds == [(garbage.THRESHOLD, 20, 20)]
    assert at_the_end == [gc.freeze]


def test_a_program_that_begins_looks_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds: list[tuple[int, ...]] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: thresholds.append(numbers))
    monkeypatch.setattr(atexit, "register", lambda _: None)
    garbage.collect_rarely(garbage.AT_BEGIN)
    assert thresholds == [(garbage.AT_BEGIN, 20, 20)]
    assert garbage.AT_BEGIN > garbage.THRESHOLD
