"""Tests of what events come to: every change of a cell, several invocations, a suite that was killed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.secrets import Redactor
from eval_factory.workflows.suite import suite_journal
from eval_factory.workflows.suite.suite_journal import (
    WAS_STOPPED,
    CellState,
    ScreenLines,
    SuiteJournal,
    suite_state_of,
)
from facts import each_says
from suite_by_hand import back, cell_ended, cell_started, ended, paused, started


def statuses(state: suite_journal.SuiteState, *, is_running: bool = True) -> dict[str, str]:
    return {cell.name: cell.status for cell in state.all_cells(is_running=is_running)}


def cell(state: suite_journal.SuiteState, name: str, *, is_running: bool = True) -> CellState:
    return next(one for one in state.all_cells(is_running=is_running) if one.name == name)


@pytest.mark.parametrize(
    "status", [RunStatus.COMPLETE, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.MISSING]
)
def test_a_cell_that_is_begun_and_ends(status: RunStatus) -> None:
    state = suite_state_of([started(), cell_started("big/qa", attempt=2)])
    assert cell(state, "big/qa") == CellState(
        "big", "qa", status=RunStatus.RUNNING, attempt=2, since=110.0
    )
    assert list(statuses(state).values()).count("waiting") == 3
    state.update(
        cell_ended(
            "big/qa",
            status,
            attempt=2,
            reason="why",
            collected=True,
            reused_from="old",
            identity="i",
        )
    )
    assert cell(state, "big/qa") == CellState(
        "big",
        "qa",
        status=status,
        attempt=2,
        reason="why",
        since=120.0,
        collected=True,
        reused_from="old",
        identity="i",
    )


def test_a_cell_that_waits_for_its_next_attempt() -> None:
    events = [
        started(),
        cell_started("big/qa"),
        cell_ended("big/qa", "failed", reason="why", again=True),
    ]
    found = cell(suite_state_of(events), "big/qa")
    assert (found.status, found.reason) == ("waiting", "why")
    stopped = cell(suite_state_of(events), "big/qa", is_running=False)
    assert (stopped.status, stopped.reason) == ("missing", "why")
    silent = suite_state_of([*events[:2], cell_ended("big/qa", "failed", again=True)])
    assert cell(silent, "big/qa", is_running=False).reason == WAS_STOPPED
    events.append(cell_started("big/qa", attempt=2))
    assert statuses(suite_state_of(events))["big/qa"] == "running"


def test_an_endpoint_that_is_gone_and_comes_back() -> None:
    events: list[dict[str, Any]] = [started(), cell_started("big/qa"), cell_ended("small/qa")]
    state = suite_state_of([*events, paused("host", "big/qa", "big/medec", "small/qa")])
    assert list(statuses(state).values()) == ["complete", "running", "waiting", "waiting"]
    (pause,) = state.pauses.values()
    assert (pause.group, pause.reason, pause.since) == ("host", "connection refused", 130.0)
    state.update(paused("another", "small/medec"))
    state.update(back("another"))
    assert list(state.pauses) == ["host"]
    state.update(back("host"))
    assert not state.pauses


def test_a_suite_that_was_killed() -> None:
    begun = [cell_started("big/qa"), cell_started("small/medec"), paused("host", "small/medec")]
    state = suite_state_of([started(), cell_ended("small/qa"), *begun])
    assert list(statuses(state, is_running=False).values()) == [
        "complete",
        "missing",
        "missing",
        "missing",
    ]
    assert cell(state, "big/qa", is_running=False).reason == WAS_STOPPED
    assert cell(state, "small/medec", is_running=False).reason == WAS_STOPPED
    assert cell(state, "big/medec", is_running=False).reason == suite_journal.WAS_NOT_STARTED


def test_another_invocation_begins_anew_and_remembers_how_cells_ended() -> None:
    first = [
        started(),
        cell_ended("small/qa", "failed", reason="why", identity="i"),
        cell_started("big/qa"),
        paused("host", "big/qa"),
        ended("partial"),
    ]
    state = suite_state_of([*first, started(time=200.0)])
    assert set(statuses(state).values()) == {"waiting"}
    assert (state.pauses, state.ended) == ({}, None)
    assert (state.started or {})["time"] == 200.0
    state.update(started(time=300.0))
    stopped = cell(state, "small/qa", is_running=False)
    assert (stopped.status, stopped.reason, stopped.identity) == ("failed", "why", "i"), (
        "both were stopped before it"
    )
    assert list(statuses(state, is_running=False).values()) == [
        "failed",
        "missing",
        "missing",
        "missing",
    ]
    state.update(cell_started("small/qa"))
    assert cell(state, "small/qa", is_running=False).reason == WAS_STOPPED


def test_cells_that_the_suite_has_no_more_are_forgotten() -> None:
    state = suite_state_of([started(), started(["big/qa", "new/qa"])])
    assert list(statuses(state)) == ["big/qa", "new/qa"]
    state.update(cell_ended("small/qa"))
    assert list(statuses(state)) == ["big/qa", "new/qa"], "also where something is told of one"


@pytest.mark.parametrize(
    "event", [{}, {"event": "something new"}, {"event": None}, {"event": "cell_started"}]
)
def test_an_event_that_nobody_knows_changes_nothing(event: dict[str, Any]) -> None:
    assert suite_state_of([started(), event]) == suite_state_of([started()])


KEY = "a-known-key-value-1"


class Looker(suite_journal.SuiteObserver):
    def __init__(self, root: Path) -> None:
        self.folder = SuiteDir(root)
        self.folder.state.mkdir(exist_ok=True, parents=True)
        self.events: list[Mapping[str, Any]] = []
        self.lines: list[str] = []
        self.ticks = 0
        self.journal = SuiteJournal(self.folder, Redactor([KEY]), self)

    def on_event(self, event: Mapping[str, Any]) -> None:
        if self.folder.state.is_dir():
            assert self.written()[-1] == event, "it is told before it is written"
        self.events.append(event)

    def tick(self) -> None:
        self.ticks += 1

    def say(self, text: str) -> None:
        self.lines.append(text)

    def written(self) -> list[Any]:
        return [json.loads(line) for line in self.folder.events.read_text().splitlines()]


def test_an_event_is_written_and_then_told_without_keys_and_so_is_what_is_said(
    tmp_path: Path,
) -> None:
    looker = Looker(tmp_path)
    looker.journal.record(suite_journal.CELL_ENDED, target="a", reason=f"no: {KEY}\nx")
    looker.journal.record("suite_ended", exit_code=0)
    lines = looker.written()
    assert lines == looker.events
    told = [("cell_ended", "no: [API_KEY_REDACTED]\nx"), ("suite_ended", None)]
    assert [(line["event"], line.get("reason")) for line in lines] == told
    assert lines[0]["invocation"] == lines[1]["invocation"] != Looker(tmp_path).journal._invocation
    assert abs(lines[0]["time"] - looker.folder.events.stat().st_mtime) < 60
    assert looker.folder.events.stat().st_mode & 0o777 == 0o600
    looker.journal.say(f"waiting {KEY}")
    looker.journal.tick()
    assert (looker.lines, looker.ticks) == (["waiting [API_KEY_REDACTED]"], 1)
    assert looker.folder.log.read_text().endswith(" waiting [API_KEY_REDACTED]\n")


def test_half_a_line_of_a_power_cut_swallows_no_event(tmp_path: Path) -> None:
    looker = Looker(tmp_path)
    looker.folder.events.write_text('{"event": "x"}\n{"event": "cell')
    SuiteJournal(looker.folder, Redactor(), suite_journal.SuiteObserver()).record("suite_ended")
    lines = looker.folder.events.read_text().splitlines()
    assert lines[:2] == ['{"event": "x"}', '{"event": "cell']
    assert json.loads(lines[2])["event"] == "suite_ended"


def test_a_disk_that_takes_nothing_ends_no_suite(tmp_path: Path) -> None:
    looker = Looker(tmp_path)
    looker.folder.state.rmdir()
    looker.journal.record("suite_ended")
    assert [event["event"] for event in looker.events] == ["suite_ended"]


CELL = {"target": "small", "evaluation": "pubmed_qa"}
EVENTS: list[dict[str, Any]] = [
    {"event": "suite_started", "pid": 1, "host": "h", "cells": [CELL], "total": 7},
    {"event": "cell_started", **CELL, "attempt": 1, "pid": 2},
    {"event": "cell_started", **CELL, "attempt": 2, "pid": 2},
    {
        "event": "cell_ended",
        **CELL,
        "attempt": 2,
        "status": "complete",
        "reason": None,
        "collected": False,
    },
    {
        "event": "cell_ended",
        **CELL,
        "attempt": 0,
        "status": "complete",
        "reason": None,
        "collected": True,
    },
    {
        "event": "cell_ended",
        **CELL,
        "attempt": 1,
        "status": "failed",
        "reason": "no\x1b[2J\nkey",
        "collected": False,
    },
    {
        "event": "cell_ended",
        **CELL,
        "attempt": 1,
        "status": "failed",
        "reason": "4",
        "collected": False,
        "again": True,
    },
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
    each_says(
        screen.getvalue().splitlines(),
        ["7 cells"],
        ["small/pubmed_qa: started"],
        ["small/pubmed_qa: started again", "attempt 2"],
        ["small/pubmed_qa: complete"],
        ["small/pubmed_qa: complete", "finished before"],
        ["small/pubmed_qa: failed", "no\\x1b[2J key"],
        ["small/pubmed_qa: failed", "4", "next attempt"],
        ["paused: host.example", "refused", "0 cells"],
        ["host.example: answers again"],
        ["waiting for it"],
    )


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
