"""What events come to: every change of a cell, several invocations, a suite that was killed."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core.nouns import RunStatus
from eval_factory.workflows.suite.suite_journal import WAS_NOT_BEGUN, WAS_STOPPED, CellState, SuiteState, suite_state_of
from suite_by_hand import back, cell_ended, cell_started, ended, paused, started


def statuses(state: SuiteState, *, is_running: bool = True) -> dict[str, str]:
    return {cell.name: cell.status for cell in state.all_cells(is_running=is_running)}


def cell(state: SuiteState, name: str, *, is_running: bool = True) -> CellState:
    return next(one for one in state.all_cells(is_running=is_running) if one.name == name)


def test_a_cell_that_is_begun() -> None:
    state = suite_state_of([started(), cell_started("big/qa", attempt=2)])
    assert cell(state, "big/qa") == CellState("big", "qa", status=RunStatus.RUNNING, attempt=2, since=110.0)
    assert list(statuses(state).values()).count("waiting") == 3


@pytest.mark.parametrize("status", [RunStatus.COMPLETE, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.MISSING])
def test_a_cell_that_ended(status: RunStatus) -> None:
    state = suite_state_of([started(), cell_started("big/qa"), cell_ended("big/qa", status, reason="why")])
    assert cell(state, "big/qa") == CellState("big", "qa", status=status, attempt=1, reason="why", since=120.0)


@pytest.mark.parametrize(
    ("status", "left", "left_while_it_ran"), [("failed", "failed", "missing"), ("partial", "partial", "partial")]
)
def test_a_cell_that_waits_for_its_next_attempt(status: str, left: str, left_while_it_ran: str) -> None:
    events = [started(), cell_started("big/qa"), cell_ended("big/qa", status, reason="why", again=True)]
    found = cell(suite_state_of(events), "big/qa")
    assert (found.status, found.so_far, found.reason) == ("waiting", status, "why")
    assert cell(suite_state_of(events), "big/qa", is_running=False).status == left
    events.append(cell_started("big/qa", attempt=2))
    assert statuses(suite_state_of(events))["big/qa"] == "running"
    assert cell(suite_state_of(events), "big/qa", is_running=False).status == left_while_it_ran
    events.append(cell_ended("big/qa"))
    assert cell(suite_state_of(events), "big/qa").so_far is None


def test_what_was_finished_before() -> None:
    state = suite_state_of([started(), cell_ended("big/qa", collected=True, reused_from="elsewhere", identity="i")])
    found = cell(state, "big/qa")
    assert (found.collected, found.reused_from, found.identity) == (True, "elsewhere", "i")


def test_an_endpoint_that_is_gone_and_comes_back() -> None:
    events: list[dict[str, Any]] = [started(), cell_started("big/qa"), cell_ended("small/qa")]
    state = suite_state_of([*events, paused("host", "big/qa", "big/medec", "small/qa")])
    assert statuses(state) == {
        "small/qa": "complete", "big/qa": "paused", "small/medec": "waiting", "big/medec": "paused",
    }  # fmt: skip
    (pause,) = state.pauses.values()
    assert (pause.group, pause.reason, pause.since) == ("host", "connection refused", 130.0)
    state = suite_state_of([*events, cell_ended("big/qa", "failed"), paused("host", "big/qa", "big/medec", "small/qa")])
    assert statuses(state)["big/qa"] == "paused"
    state.take(back("another"))
    assert list(state.pauses) == ["host"]
    state.take(back("host"))
    assert statuses(state)["big/qa"] == statuses(state)["big/medec"] == "waiting"
    assert statuses(state)["small/qa"] == "complete"
    assert not state.pauses


def test_only_the_cells_of_the_endpoint_go_on() -> None:
    state = suite_state_of([started(), paused("one", "big/qa"), paused("two", "small/qa"), back("one")])
    assert statuses(state) == {
        "small/qa": "paused", "big/qa": "waiting", "small/medec": "waiting", "big/medec": "waiting",
    }  # fmt: skip


def test_a_suite_that_was_killed() -> None:
    events = [
        started(), cell_ended("small/qa"), cell_started("big/qa"), cell_started("small/medec"),
        paused("host", "small/medec"),
    ]  # fmt: skip
    state = suite_state_of(events)
    assert statuses(state, is_running=False) == {
        "small/qa": "complete", "big/qa": "missing", "small/medec": "missing", "big/medec": "missing",
    }  # fmt: skip
    assert cell(state, "big/qa", is_running=False).reason == WAS_STOPPED
    assert cell(state, "small/medec", is_running=False).reason == WAS_STOPPED
    assert cell(state, "big/medec", is_running=False).reason == WAS_NOT_BEGUN


def test_a_cell_that_was_to_be_tried_again_was_begun() -> None:
    events = [started(), cell_started("big/qa"), cell_ended("big/qa", "failed", reason="429", again=True)]
    assert cell(suite_state_of(events), "big/qa").status == "waiting"
    assert cell(suite_state_of(events), "big/qa", is_running=False).reason == "429"
    events = [started(), cell_started("big/qa"), cell_ended("big/qa", "failed", again=True)]
    assert cell(suite_state_of(events), "big/qa", is_running=False).reason == WAS_STOPPED


def test_another_invocation_begins_anew_and_remembers_how_cells_ended() -> None:
    first = [started(), cell_ended("small/qa"), cell_started("big/qa"), paused("host", "big/qa"), ended("partial")]
    state = suite_state_of([*first, started(time=200.0)])
    assert set(statuses(state).values()) == {"waiting"}
    assert not state.pauses
    assert state.ended is None
    assert state.started is not None
    assert state.started["time"] == 200.0
    assert state.invocations == 2
    assert statuses(state, is_running=False) == {
        "small/qa": "complete", "big/qa": "missing", "small/medec": "missing", "big/medec": "missing",
    }  # fmt: skip
    state.take(cell_started("small/qa", time=210.0))
    assert cell(state, "small/qa", is_running=False).status == "missing"


def test_cells_that_the_suite_has_no_more_are_forgotten() -> None:
    state = suite_state_of([started(), started(["big/qa", "new/qa"])])
    assert list(statuses(state)) == ["big/qa", "new/qa"]
    state.take(cell_ended("small/qa"))
    assert list(statuses(state)) == ["big/qa", "new/qa"]


@pytest.mark.parametrize("event", [{}, {"event": "something new"}, {"event": None}, {"event": "cell_started"}])
def test_an_event_that_nobody_knows_changes_nothing(event: dict[str, Any]) -> None:
    assert suite_state_of([started(), event]) == suite_state_of([started()])
