"""Each way in which a cell's process ends, and what is done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_factory.core.nouns import RunStatus
from eval_factory.workflows.suite.cell_loop import CellEnd, NextAction, Outcome, Tried, outcome_of, worst_code

FIRST = Tried(attempts=1, max_attempts=3)
CHANCE = "NOT REPORTABLE: no better than chance\n  what to do"


def failed(code: int, error_type: str = "X", error: str = "it failed\n  more") -> CellEnd:
    return CellEnd(code, error_type=error_type, error=error)


def test_a_complete_result_is_the_end_whether_it_is_reportable_or_not() -> None:
    assert outcome_of(CellEnd(0, "complete"), FIRST) == Outcome(NextAction.REST, RunStatus.COMPLETE)
    chance = outcome_of(CellEnd(1, "complete", CHANCE), FIRST)
    assert chance == Outcome(NextAction.REST, RunStatus.COMPLETE, "NOT REPORTABLE: no better than chance", 1)


@pytest.mark.parametrize(("code", "why"), [(1, CHANCE), (0, None)])
def test_a_result_with_gaps_is_asked_for_again_as_often_as_is_allowed(code: int, why: str | None) -> None:
    """Also one that may be reported all the same, with fewer instances than there are."""
    end = CellEnd(code, "partial", why)
    reason = (
        "NOT REPORTABLE: no better than chance" if why else "some requests failed; the same command asks for them again"
    )
    again = Outcome(NextAction.ASK_AND_AGAIN, RunStatus.PARTIAL, reason, 1)
    assert [outcome_of(end, replace(FIRST, attempts=number)) for number in (1, 2)] == [again, again]
    assert outcome_of(end, replace(FIRST, attempts=3)) == replace(again, then=NextAction.REST)


@pytest.mark.parametrize(
    ("end", "then", "status", "counts"),
    [
        (failed(2), NextAction.REST, RunStatus.FAILED, True),
        (failed(130), NextAction.REST, RunStatus.MISSING, True),
        (failed(1, "NotReportableError"), NextAction.REST, RunStatus.MISSING, True),
        (failed(3, "PrerequisiteError"), NextAction.REST, RunStatus.FAILED, True),
        (failed(3, "EndpointRefusedError"), NextAction.STOP_TARGET, RunStatus.FAILED, True),
        (failed(3, "EndpointUnreachableError"), NextAction.PAUSE_ENDPOINT, RunStatus.FAILED, False),
        (failed(5, "BusyError"), NextAction.WAIT_FOR_FOLDER, RunStatus.FAILED, False),
    ],
    ids=["wrong", "interrupted", "a limit", "missing outside", "refused", "unreachable", "in use"],
)
def test_what_comes_of_a_failure(end: CellEnd, then: NextAction, status: RunStatus, counts: bool) -> None:
    """Who is waited for costs no attempt."""
    assert outcome_of(end, FIRST) == Outcome(then, status, "it failed", end.returncode, counts=counts)


def test_a_reason_is_one_line_that_says_something() -> None:
    assert (
        outcome_of(failed(2, error="all failed:\n  2 x HTTP 400\n  check"), FIRST).reason == "all failed: 2 x HTTP 400"
    )
    assert outcome_of(failed(2, error="all failed:"), FIRST).reason == "all failed:"


@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [
        (failed(4), "it failed", 4),
        (failed(70), "it failed", 70),
        (CellEnd(-9), "its process was killed by signal 9", 4),
        (CellEnd(42), "its process ended with 42", 4),
    ],
    ids=["HELM", "defect", "killed", "unknown"],
)
def test_bad_luck_is_forgiven_once(end: CellEnd, reason: str, code: int) -> None:
    once = outcome_of(end, FIRST)
    assert once == Outcome(NextAction.AGAIN, RunStatus.FAILED, reason, code, crashed=True)
    assert outcome_of(end, replace(FIRST, attempts=2, crashes=1)) == replace(once, then=NextAction.REST)
    assert outcome_of(end, Tried(attempts=1, max_attempts=1)).then is NextAction.REST


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 70, 130])
def test_a_failure_leaves_a_result_with_gaps_as_it_is(code: int) -> None:
    assert outcome_of(failed(code), replace(FIRST, has_result=True)).status == "partial"


def test_the_worst_cell_gives_the_exit_code() -> None:
    assert [worst_code(codes) for codes in ([], [0, 0], [0, 1], [3, 1, 0], [4, 3], [70, 4])] == [0, 0, 1, 3, 4, 70]
