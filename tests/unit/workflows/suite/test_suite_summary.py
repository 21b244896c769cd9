from __future__ import annotations

from pathlib import Path
from typing import Any

from eval_factory.core.suite_dir import SuiteDir
from eval_factory.workflows.suite.suite_options import QUEUED, CellReport
from eval_factory.workflows.suite.suite_summary import summary_of

FOLDER = SuiteDir(Path("/s"))


def cell(name: str, status: Any, code: int = 0, reason: str | None = None, **more: Any) -> CellReport:
    return CellReport("m", name, status, Path("/s/m") / name, code, reason, **more)


def test_all_complete() -> None:
    told = summary_of([cell("a", "complete"), cell("b", "complete", collected=True)], FOLDER)
    assert told == "2 cells: 2 complete (1 finished before)\ntable: /s/suite_results.md"


def test_what_is_wrong_is_named_with_the_next_step() -> None:
    cells = [
        cell("a", "complete"), cell("b", "complete", 1, "NOT REPORTABLE: chance"), cell("c", "failed", 4, "HELM"),
        cell("d", "partial", 1, "gaps"), cell("e", "missing", 1),
    ]  # fmt: skip
    assert summary_of(cells, FOLDER, stopped="stopped: max_cost").splitlines() == [
        "5 cells: 2 complete, 1 partial, 1 failed, 1 missing",
        "  m/b: complete, but not reportable: NOT REPORTABLE: chance",
        "  m/c: failed: HELM",
        "  m/d: partial: gaps",
        "  m/e: missing",
        "stopped: max_cost",
        "the same command goes on: only what is missing is asked",
        "  why a cell failed: eval-factory suite logs /s CELL",
        "table: /s/suite_results.md",
    ]


def test_an_interrupt_is_said() -> None:
    told = summary_of([cell("a", "missing", 130, "interrupted")], FOLDER)
    assert "interrupted; the same command goes on: only what is missing is asked" in told
    assert "suite logs" not in told


def test_not_all_of_many_are_named() -> None:
    told = summary_of([cell(f"c{number}", "failed", 3, "x") for number in range(14)], FOLDER)
    assert "  m/c11: failed: x\n  and 2 more: eval-factory suite check /s\n" in told
    assert "m/c12" not in told


def test_a_long_reason_is_cut() -> None:
    told = summary_of([cell("a", "failed", 3, "x" * 1000)], FOLDER)
    assert len(told.splitlines()[1]) < 260


def test_what_goes_on_in_slurm_is_no_failure() -> None:
    told = summary_of([cell("a", "complete"), cell("b", "missing", 0, QUEUED)], FOLDER).splitlines()
    assert told == [
        "2 cells: 1 complete, 1 missing",
        "submitted to Slurm: the same command takes over what has ended, and --wait waits for all of it",
        "  where it stands: eval-factory suite status /s",
        "table: /s/suite_results.md",
    ]
