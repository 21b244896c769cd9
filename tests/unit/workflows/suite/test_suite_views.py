"""A suite's report as data frames, in a notebook and in a line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.report.result_views import _MAX_NOTES, INSTANCE_COLUMNS
from eval_factory.workflows.suite.suite_report import CELL_COLUMNS, CellReport, SuiteReport
from stored_results import instance, result, written


def types_of(found: Any) -> dict[str, str]:
    return {name: str(kind).partition("[")[0] for name, kind in found.dtypes.items()}


def rows_of(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.astype("object").where(found.notna(), None).to_dict("records")
    return rows


def cell(folder: Path, status: RunStatus, **changes: Any) -> CellReport:
    told = CellReport("small", "pubmed_qa", status, folder, 0 if status == "complete" else 3)
    return replace(told, **changes)


@pytest.fixture
def report(tmp_path: Path) -> SuiteReport:
    """One complete, one partial and not reportable, one failed."""
    whole = result([instance("q0", 1.0, categories={"field": "x"})])
    main = whole.scores["exact_match"]
    whole = replace(
        whole,
        scores={"exact_match": replace(main, value=0.75, stats=replace(main.stats, ci_low=0.5, ci_high=1.0, count=9))},
    )
    part = replace(result([instance("q1", 0.5, "f1"), instance("q2", None, "f1")], ("f1",)), reportable=False)
    cells = (
        cell(written(tmp_path / "a", whole), RunStatus.COMPLETE, collected=True),
        cell(
            written(tmp_path / "b", part),
            RunStatus.PARTIAL,
            evaluation="medec",
            reason="1 failed",
            attempts=2,
            exit_code=1,
        ),
        cell(tmp_path / "c", RunStatus.FAILED, target="large", reason="no <b>key</b>", attempts=1),
    )
    return SuiteReport(SuiteDir(tmp_path), cells, 3, "partial", "summary")


def test_a_row_a_cell(report: SuiteReport) -> None:
    found = report.to_frame()
    assert types_of(found) == dict(CELL_COLUMNS)
    first, second, third = rows_of(found)
    assert first == {
        "target": "small", "evaluation": "pubmed_qa", "status": "complete", "task": "pubmed_qa", "model": "org/model",
        "metric": "exact_match", "value": 0.75, "ci_low": 0.5, "ci_high": 1.0, "n": 9, "reportable": True,
        "reason": None, "exit_code": 0, "attempts": 0, "collected": True, "folder": str(report.cells[0].folder),
    }  # fmt: skip
    assert (second["metric"], second["value"], second["reportable"]) == ("f1", 0.5, False)
    assert (second["reason"], second["exit_code"], second["attempts"]) == ("1 failed", 1, 2)
    known = {"target": "large", "evaluation": "pubmed_qa", "status": "failed", "reason": "no <b>key</b>",
             "exit_code": 3, "attempts": 1, "collected": False, "folder": str(report.cells[2].folder)}  # fmt: skip
    assert third == {**dict.fromkeys(CELL_COLUMNS), **known}


def test_the_instances_of_all_cells(report: SuiteReport) -> None:
    found = report.to_frame(instances=True)
    assert found.equals(report.instances_frame())
    of_cells = {"exact_match": "float64", "extra.field": "object", "f1": "float64"}
    assert types_of(found) == {"target": "string", "evaluation": "string", **INSTANCE_COLUMNS, **of_cells}
    rows = [(row["evaluation"], row["id"], row["exact_match"], row["f1"]) for row in rows_of(found)]
    assert rows == [("pubmed_qa", "q0", 1.0, None), ("medec", "q1", None, 0.5), ("medec", "q2", None, None)]
    assert set(found["target"]) == {"small"}


def test_a_notebook_shows_every_cell_and_what_is_missing(report: SuiteReport) -> None:
    html = report._repr_html_()
    assert re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", html)[7:] == [
        "small", "pubmed_qa", "complete", "exact_match", "0.7500", "0.5000 .. 1.0000", "9",
        "small", "medec", "partial, NOT REPORTABLE", "f1", "0.5000", "-", "4",
        "large", "pubmed_qa", "failed", "-", "-", "-", "-",
    ]  # fmt: skip
    assert "<b>1 of 3 cells complete</b>" in html
    assert "<ul>\n<li>small/medec: 1 failed</li>\n<li>large/pubmed_qa: no &lt;b&gt;key&lt;/b&gt;</li>\n</ul>" in html
    assert f"<p>table: {report.folder.results_html}</p>" in html
    many = replace(report, cells=tuple(cell(Path("x"), RunStatus.MISSING) for _ in range(_MAX_NOTES + 1)))
    assert "<li>small/pubmed_qa: missing</li>" in many._repr_html_()
    assert "<li>1 more</li>" in many._repr_html_()


def test_a_line(report: SuiteReport) -> None:
    assert repr(report) == f"<SuiteReport 1 of 3 cells complete; exit code 3; {report.folder.root}>"
