"""A suite's report as data frames and in a few lines; and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Spending
from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.report.reader import INSTANCE_COLUMNS
from eval_factory.workflows.suite import suite_report
from eval_factory.workflows.suite.suite_report import (
    CELL_COLUMNS,
    CellReport,
    SuiteReport,
    summary_of,
    write_table,
)
from eval_factory.workflows.suite.suite_status import reached_limit_text
from facts import each_says, says
from stored_results import instance, result, written
from stored_suite import cell as stored_cell


def types_of(found: Any) -> dict[str, str]:
    return {name: str(kind).partition("[")[0] for name, kind in found.dtypes.items()}


def rows_of(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        found.astype("object").where(found.notna(), None).to_dict("records")
    )
    return rows


@pytest.fixture
def report(tmp_path: Path) -> SuiteReport:
    """One complete, one partial and not reportable, one failed."""
    whole = result([instance("q0", 1.0, categories={"field": "x"})])
    main = whole.scores["exact_match"]
    stats = replace(main.stats, ci_low=0.5, ci_high=1.0, count=9)
    whole = replace(whole, scores={"exact_match": replace(main, value=0.75, stats=stats)})
    part = replace(
        result([instance("q1", 0.5, "f1"), instance("q2", None, "f1")], ("f1",)), reportable=False
    )
    complete = RunStatus.COMPLETE
    failed = RunStatus.FAILED
    a = tmp_path / "a"
    b = tmp_path / "b"
    cells = (
        CellReport("small", "pubmed_qa", complete, written(a, whole), exit_code=0, collected=True),
        CellReport(
            "small", "medec", RunStatus.PARTIAL, written(b, part), "1 failed", 2, exit_code=1
        ),
        CellReport("large", "pubmed_qa", failed, tmp_path / "c", "no <b>key</b>", 1, exit_code=3),
    )
    return SuiteReport(SuiteDir(tmp_path), cells, 3, "partial", "summary")


def test_a_row_a_cell(report: SuiteReport) -> None:
    found = report.to_frame()
    assert types_of(found) == dict(CELL_COLUMNS)
    first, second, third = rows_of(found)
    assert first == {
        "target": "small",
        "evaluation": "pubmed_qa",
        "status": "complete",
        "task": "pubmed_qa",
        "model": "org/model",
        "metric": "exact_match",
        "value": 0.75,
        "ci_low": 0.5,
        "ci_high": 1.0,
        "n": 9,
        "reportable": True,
        "reason": None,
        "exit_code": 0,
        "attempts": 0,
        "collected": True,
        "folder": str(report.cells[0].folder),
    }
    assert (second["metric"], second["value"], second["reportable"]) == ("f1", 0.5, False)
    assert (second["reason"], second["exit_code"], second["attempts"]) == ("1 failed", 1, 2)
    known = {
        "target": "large",
        "evaluation": "pubmed_qa",
        "status": "failed",
        "reason": "no <b>key</b>",
        "exit_code": 3,
        "attempts": 1,
        "collected": False,
        "folder": str(report.cells[2].folder),
    }
    assert third == {**dict.fromkeys(CELL_COLUMNS), **known}


def test_the_instances_of_all_cells(report: SuiteReport) -> None:
    found = report.to_frame(instances=True)
    assert found.equals(report.instances_frame())
    of_cells = {"exact_match": "float64", "extra.field": "object", "f1": "float64"}
    assert types_of(found) == {
        "target": "string",
        "evaluation": "string",
        **INSTANCE_COLUMNS,
        **of_cells,
    }
    rows = [(row["evaluation"], row["id"], row["exact_match"], row["f1"]) for row in rows_of(found)]
    assert rows == [
        ("pubmed_qa", "q0", 1.0, None),
        ("medec", "q1", None, 0.5),
        ("medec", "q2", None, None),
    ]
    assert set(found["target"]) == {"small"}


def test_a_report_in_a_line(report: SuiteReport) -> None:
    says(repr(report), "SuiteReport", "1 of 3 cells", "exit code 3", str(report.folder.root))


FOLDER = SuiteDir(Path("/s"))


def cell(
    name: str, status: Any, code: int = 0, reason: str | None = None, **more: Any
) -> CellReport:
    return CellReport("m", name, status, Path("/s/m") / name, reason, exit_code=code, **more)


def test_what_is_wrong_is_counted_with_the_next_step() -> None:
    cells = [
        cell("a", "complete"),
        cell("b", "complete", 1, "NOT REPORTABLE: chance"),
        cell("c", "failed", 4, "HELM"),
        cell("d", "partial", 1, "gaps"),
        cell("e", "missing", 1),
    ]
    each_says(
        summary_of(cells, FOLDER, stopped="not started: max_wall_s (9) is reached").splitlines(),
        ["5 cells", "2 complete", "1 not reportable", "1 partial", "1 failed", "1 missing"],
        ["max_wall_s (9)"],
        ["same command continues"],
        ["eval-factory suite logs /s CELL"],
        ["table: /s/suite_results.md"],
    )


@pytest.mark.parametrize(
    ("cells", "stopped", "lines"),
    [
        (
            [("a", "complete", 0), ("b", "complete", 1)],
            "not started: max_requests (8)",
            [
                "2 cells: 2 complete",
                "table: /s/suite_results.md",
            ],
        ),
        (
            [("a", "missing", 130, "interrupted")],
            None,
            [
                "1 cell: 1 missing",
                (
                    "interrupted; the same command continues the suite: only missing answers are "
                    "requested"
                ),
                "table: /s/suite_results.md",
            ],
        ),
        (
            [("a", "failed", 3, "x")],
            None,
            [
                "1 cell: 1 failed",
                "the same command continues the suite: only missing answers are requested",
                "  why a cell failed: eval-factory suite logs /s CELL",
                "table: /s/suite_results.md",
            ],
        ),
        (
            [("a", "complete"), ("b", "waiting", 0, "queued in Slurm")],
            None,
            [
                "2 cells: 1 complete, 1 waiting",
                (
                    "submitted to Slurm: the same command collects the jobs that have ended, and "
                    "--wait waits for all jobs"
                ),
                "  the state of the jobs: eval-factory suite status /s",
                "table: /s/suite_results.md",
            ],
        ),
    ],
    ids=["the last request reached a limit", "an interrupt", "a failure", "Slurm goes on"],
)
def test_the_next_step(cells: list[Any], stopped: str | None, lines: list[str]) -> None:
    assert summary_of([cell(*one) for one in cells], FOLDER, stopped=stopped).splitlines() == lines


@pytest.mark.parametrize("limit", ["max_cost", "max_requests", "max_tokens_total"])
def test_at_a_limit_that_stays_used_up_the_next_step_is_to_raise_it(limit: str) -> None:
    """Of max_wall_s the next command has all again."""
    budget = Budget(**{limit: 2})
    reached = reached_limit_text(budget, Spending(requests=2, tokens=2, cost=2.0), None)
    told = summary_of([cell("a", "missing", 1)], FOLDER, stopped=f"not started: {reached}")
    each_says(
        told.splitlines()[1:3], ["not started", f"{limit} (2)"], [f"raise {limit}", "same command"]
    )


def reported(root: Path, target: str, status: Any = "complete") -> CellReport:
    stored = stored_cell(root, target, "medec", "1110")
    return CellReport(target, "medec", status, stored.folder, attempts=2, exit_code=0)


def test_a_result_that_cannot_be_read_has_failed(tmp_path: Path) -> None:
    missing = CellReport(
        "other", "medec", RunStatus.MISSING, tmp_path / "other", "why", exit_code=1
    )
    cells = (reported(tmp_path, "small"), reported(tmp_path, "big"), missing)
    (cells[1].folder / "instances.jsonl").write_text("null\n" * 4)
    found, table_error = write_table(cells, SuiteDir(tmp_path))
    assert table_error is None
    assert (found[0], found[2]) == (cells[0], missing), "the others stay as they are"
    assert SuiteDir(tmp_path).results_md.read_text().count("why") == 1
    broken = found[1]
    assert (broken.status, broken.exit_code, broken.attempts) == ("failed", 3, 2)
    says(str(broken.reason), "its result", "(TypeError")


def test_a_folder_that_takes_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(suite_report, "write_suite_results", full)
    cells = (reported(tmp_path, "small"),)
    found, table_error = write_table(cells, SuiteDir(tmp_path))
    assert found == cells
    says(str(table_error), f"written to {tmp_path}", "No space left", "same command again")
    assert summary_of(cells, SuiteDir(tmp_path), table_error=table_error).splitlines() == [
        "1 cell: 1 complete",
        table_error,
    ]
