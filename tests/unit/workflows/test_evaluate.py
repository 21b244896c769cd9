"""What helm-run tells of becomes the right failure."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from eval_factory.core import events
from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.failures import raise_if_stopped

FATAL = {"event": events.FATAL, "message": "cannot reach http://llm.example:8000/v1: no connection could be made"}


@pytest.mark.parametrize(
    ("place", "is_told"),
    [("llm.example:8000", True), ("llm.example", True), ("api.github.com", False), ("", False)],
)
def test_who_refused_the_endpoint_is_told(place: str, is_told: bool) -> None:
    blocked: list[dict[str, Any]] = [{"event": events.BLOCKED, "place": place}] if place else []
    with pytest.raises(PrerequisiteError) as told:
        raise_if_stopped([*blocked, FATAL], None, logging.getLogger("test"))
    assert str(told.value).startswith(FATAL["message"])
    assert (f"offline: it was eval-factory that refused {place}" in str(told.value)) is is_told


def test_last_words_count_where_no_event_was_written() -> None:
    with pytest.raises(PrerequisiteError, match=r"^the disk is full$"):
        raise_if_stopped([], "the disk is full", logging.getLogger("test"))
    raise_if_stopped([], None, logging.getLogger("test"))
