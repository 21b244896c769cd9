"""A suite's report as data frames, in a notebook, in a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eval_factory.core.foreign_text import one_line
from eval_factory.report import result_views as html
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.report.result_views import COUNT, FLAG, INSTANCE_COLUMNS, NUMBER, TEXT, frame, instance_table

if TYPE_CHECKING:
    from pandas import DataFrame

    from eval_factory.workflows.suite.suite_options import CellReport, SuiteReport

CELL_COLUMNS: Mapping[str, str] = {
    "target": TEXT,
    "evaluation": TEXT,
    "status": TEXT,
    "task": TEXT,
    "model": TEXT,
    "metric": TEXT,
    "value": NUMBER,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "n": COUNT,
    "reportable": FLAG,
    "reason": TEXT,
    "exit_code": COUNT,
    "attempts": COUNT,
    "collected": FLAG,
    "folder": TEXT,
}
_OF_CELL: Mapping[str, str] = {"target": TEXT, "evaluation": TEXT}


def cells_frame(report: SuiteReport) -> DataFrame:
    """A row a cell, with its main score where it has one.

    Raises:
        PrerequisiteError: pandas is not installed, or a result cannot be read.
    """
    return frame(CELL_COLUMNS, [_cell_row(cell) for cell in report.cells])


def suite_instances_frame(report: SuiteReport) -> DataFrame:
    """The instances of all cells with a result: target and evaluation, then what the cells' own frames hold.

    Raises:
        PrerequisiteError: pandas is not installed, or a result cannot be read.
    """
    columns: dict[str, str] = {**_OF_CELL, **INSTANCE_COLUMNS}
    rows: list[dict[str, Any]] = []
    for cell, stored in _results(report):
        more, found = instance_table(stored.result)
        columns |= more
        rows += [{**row, "target": cell.target, "evaluation": cell.evaluation} for row in found]
    return frame(columns, rows)


def _results(report: SuiteReport) -> Iterator[tuple[CellReport, StoredResult]]:
    for cell in report.cells:
        if cell.status in ("complete", "partial"):
            yield cell, load_result(cell.folder)


def _cell_row(cell: CellReport) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(cell, name)
        for name in ("target", "evaluation", "status", "reason", "exit_code", "attempts", "collected")
    }
    row["folder"] = str(cell.folder)
    if cell.status not in ("complete", "partial"):
        return row
    result = load_result(cell.folder).result
    row |= {"task": result.task, "model": result.provenance.target, "metric": result.main_metric}
    row["reportable"] = result.reportable
    if main := result.scores.get(result.main_metric):
        stats = main.stats
        row |= {"value": main.value, "ci_low": stats.ci_low, "ci_high": stats.ci_high, "n": stats.count}
    return row


def suite_html(report: SuiteReport) -> str:
    """The cells with their scores, and what is missing."""
    head = ("target", "evaluation", "status", "metric", "value", "95 % interval", "n")
    rows = [_cells_of(_cell_row(cell)) for cell in report.cells]
    wrong = [f"{cell.name}: {cell.reason or cell.status}" for cell in report.cells if cell.exit_code]
    parts = [html.table(head, rows), *html.listed(wrong), html.paragraph(f"table: {report.folder.results_html}")]
    return html.block(_title(report), parts)


def _cells_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    count = row.get("n")
    return (
        row["target"],
        row["evaluation"],
        row["status"] if row.get("reportable", True) else f"{row['status']}, NOT REPORTABLE",
        row.get("metric") or "-",
        html.number(row.get("value")),
        html.interval(row.get("ci_low"), row.get("ci_high")),
        "-" if count is None else str(count),
    )


def _title(report: SuiteReport) -> str:
    done = sum(cell.status == "complete" for cell in report.cells)
    return f"{done} of {len(report.cells)} cells complete"


def in_a_line(report: SuiteReport) -> str:
    """For `repr`."""
    return f"<SuiteReport {one_line(f'{_title(report)}; exit code {report.exit_code}; {report.folder.root}')}>"
