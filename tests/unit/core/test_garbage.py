"""How often Python looks for garbage, and that it does not at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from eval_factory.core.garbage import THRESHOLD, collect_rarely, leave_to_the_system


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_python_looks_seldom() -> None:
    collect_rarely()
    assert gc.get_threshold() == (THRESHOLD, 20, 20)


def test_what_is_left_at_the_end_is_not_gone_through() -> None:
    before = gc.get_freeze_count()
    mine: list[object] = []
    leave_to_the_system()
    assert gc.get_freeze_count() > before
    assert not any(one is mine for one in gc.get_objects())
