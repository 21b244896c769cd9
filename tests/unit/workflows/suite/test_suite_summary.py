from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Spending
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.suite_budget import limit_reached
from eval_factory.workflows.suite.suite_report import CellReport, summary_of

FOLDER = SuiteDir(Path("/s"))


def cell(name: str, status: Any, code: int = 0, reason: str | None = None, **more: Any) -> CellReport:
    return CellReport("m", name, status, Path("/s/m") / name, code, reason, **more)


def test_what_is_wrong_is_named_with_the_next_step() -> None:
    cells = [
        cell("a", "complete"), cell("b", "complete", 1, "NOT REPORTABLE: chance"), cell("c", "failed", 4, "HELM"),
        cell("d", "partial", 1, "gaps"), cell("e", "missing", 1),
    ]  # fmt: skip
    assert summary_of(cells, FOLDER, stopped="not begun: max_wall_s (9) is reached").splitlines() == [
        "5 cells: 2 complete, 1 partial, 1 failed, 1 missing",
        "  m/b: complete, but not reportable: NOT REPORTABLE: chance",
        "  m/c: failed: HELM",
        "  m/d: partial: gaps",
        "  m/e: missing",
        "not begun: max_wall_s (9) is reached",
        "the same command goes on: only what is missing is asked",
        "  why a cell failed: eval-factory suite logs /s CELL",
        "table: /s/suite_results.md",
    ]


@pytest.mark.parametrize("limit", ["max_cost", "max_requests", "max_tokens_total"])
def test_at_a_limit_that_stays_used_up_the_next_step_is_to_raise_it(limit: str) -> None:
    """Of max_wall_s the next command has all again."""
    budget = Budget(**{limit: 2})
    reached = limit_reached(budget, Spending(requests=2, tokens=2, cost=2.0), None)
    told = summary_of([cell("a", "missing", 1)], FOLDER, stopped=f"not begun: {reached}")
    assert told.splitlines()[2:4] == [
        f"not begun: {limit} (2) of the suite is reached",
        f"raise {limit} of the suite, and the same command goes on: only what is missing is asked",
    ]  # fmt: skip


def test_a_limit_that_the_last_request_reached_kept_nothing_from_being_asked() -> None:
    told = summary_of([cell("a", "complete"), cell("b", "complete", 1)], FOLDER, stopped="not begun: max_requests (8)")
    assert told == "2 cells: 2 complete\n  m/b: complete, but not reportable\ntable: /s/suite_results.md"


def test_an_interrupt_is_said() -> None:
    told = summary_of([cell("a", "missing", 130, "interrupted")], FOLDER)
    assert "interrupted; the same command goes on: only what is missing is asked" in told
    assert "suite logs" not in told


def test_not_all_of_many_are_named() -> None:
    told = summary_of([cell(f"c{number}", "failed", 3, "x") for number in range(14)], FOLDER)
    assert "  m/c11: failed: x\n  and 2 more: eval-factory suite check /s\n" in told
    assert "m/c12" not in told


def test_what_goes_on_in_slurm_is_no_failure() -> None:
    told = summary_of([cell("a", "complete"), cell("b", "waiting", 0, "queued in Slurm")], FOLDER).splitlines()
    assert told == [
        "2 cells: 1 complete, 1 waiting",
        "submitted to Slurm: the same command takes over what has ended, and --wait waits for all of it",
        "  where it stands: eval-factory suite status /s",
        "table: /s/suite_results.md",
    ]
