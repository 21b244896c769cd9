"""A suite as lines: what begins and ends, and a screen that takes no more."""

from __future__ import annotations

import io
from typing import Any

from eval_factory.workflows.suite.suite_journal import ScreenLines

CELL = {"target": "small", "evaluation": "pubmed_qa"}
EVENTS: list[dict[str, Any]] = [
    {"event": "suite_started", "pid": 1, "host": "h", "cells": [CELL], "total": 7},
    {"event": "cell_started", **CELL, "attempt": 1, "pid": 2},
    {"event": "cell_started", **CELL, "attempt": 2, "pid": 2},
    {"event": "cell_ended", **CELL, "attempt": 2, "status": "complete", "reason": None, "collected": False},
    {"event": "cell_ended", **CELL, "attempt": 0, "status": "complete", "reason": None, "collected": True},
    {"event": "cell_ended", **CELL, "attempt": 1, "status": "failed", "reason": "no\x1b[2J\nkey", "collected": False},
    {"event": "cell_ended", **CELL, "attempt": 1, "status": "failed", "reason": "4", "collected": False, "again": True},
    {"event": "endpoint_paused", "group": "host.example", "reason": "refused", "cells": []},
    {"event": "endpoint_back", "group": "host.example"},
    {"event": "suite_ended", "status": "partial", "exit_code": 1},
]


def test_a_line_as_each_cell_begins_and_ends() -> None:
    screen = io.StringIO()
    lines = ScreenLines(screen)
    for event in EVENTS:
        lines.on_event(event)
        lines.tick()
    lines.say("waiting\nfor it")
    assert screen.getvalue().splitlines() == [
        "7 cells",
        "small/pubmed_qa: begun",
        "small/pubmed_qa: begun, attempt 2",
        "small/pubmed_qa: complete",
        "small/pubmed_qa: complete before",
        "small/pubmed_qa: failed: no\\x1b[2J key",
        "small/pubmed_qa: failed: 4; it waits for its next attempt",
        "host.example is waited for: refused",
        "host.example is back",
        "waiting for it",
    ]


def test_a_screen_that_takes_no_more_ends_no_suite() -> None:
    told: list[str] = []

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            told.append(text)
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for screen in (Gone(), closed):
        lines = ScreenLines(screen)
        lines.say("first")
        lines.say("second")
    assert told == ["first\n"]
