"""Defines the options and the report of a suite's run, and writes the suite's table and summary.

A cell of a suite is one target with one evaluation. Each cell has one run, in its own folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.config.suite import Cell
from eval_factory.core import formats
from eval_factory.core.budget import MAX_COST, MAX_REQUESTS, MAX_TOKENS
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import InterruptedRunError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.run_statuses import WITH_RESULT
from eval_factory.core.rundir import SuiteDir
from eval_factory.report.reader import (
    COUNT,
    FLAG,
    INSTANCE_COLUMNS,
    NUMBER,
    TEXT,
    data_frame,
    instance_table,
    load_result,
)
from eval_factory.workflows.suite.suite_status import CellFigures

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class SuiteOptions:
    """The options of one invocation of a suite."""

    fresh: bool = False  # delete the answers and results in the cells' folders
    debug: bool = False
    no_preflight: bool = False  # do not probe the endpoints before the first cell
    reuse: tuple[Path, ...] = ()
    """Folders of suites or runs. Complete runs with the configuration of a cell are copied."""
    overrides: tuple[str, ...] = ()
    """Values that override all other settings, as `path.to.key=value,...`, like `--overrides`.

    Only `eval_factory.run_suite` sets this option.
    """
    # with executor slurm, True: return when all jobs have ended; False: when they are submitted
    wait: bool = False


@dataclass(frozen=True, kw_only=True)
class CellReport(FinishedCell):
    """The report of one cell.

    `reason` says in one line why the cell is not complete, or why its result is not reportable.
    """

    exit_code: int
    """The exit code that `run_eval` would have had.

    A cell that was not started has the exit code of the error that kept it from starting, 1 if a
    limit of the suite was reached, 130 after an interrupt, or 0 while its Slurm job is queued.
    """
    collected: bool = False  # True if the run was finished before this invocation
    reused_from: Path | None = None

    @classmethod
    def of(
        cls, cell: Cell, status: RunStatus, reason: str | None, attempts: int = 0, **fields: Any
    ) -> CellReport:
        """Return a report of this cell.

        `attempts`: the number of times that the cell was started. `fields`: the fields that only a
        `CellReport` has.
        """
        return cls(cell.target, cell.evaluation, status, cell.folder, reason, attempts, **fields)


@dataclass(frozen=True, repr=False)
class SuiteReport:
    """The report of one invocation of a suite."""

    folder: SuiteDir
    cells: tuple[CellReport, ...]
    exit_code: int
    status: str  # `complete` if every cell is complete, else `partial`
    summary: str  # text for the screen: the counts of cells, missing results and the next step

    def to_frame(self, *, instances: bool = False) -> DataFrame:
        """Return a data frame with a row for each cell, which contains the cell's main score.

        With `instances`, return the frame of `instances_frame`.

        Raises:
            PrerequisiteError: pandas is not installed, or a result cannot be read.
        """
        if instances:
            return self.instances_frame()
        return data_frame(CELL_COLUMNS, list(map(_cell_row, self.cells)))

    def instances_frame(self) -> DataFrame:
        """Return a data frame with a row for each instance of all cells that have a result.

        The columns are target and evaluation, followed by the columns of the cells' own frames.

        Raises:
            PrerequisiteError: pandas is not installed, or a result cannot be read.
        """
        columns: dict[str, str] = {"target": TEXT, "evaluation": TEXT, **INSTANCE_COLUMNS}
        rows: list[dict[str, Any]] = []
        for cell in self.cells:
            if cell.status in WITH_RESULT:
                further_columns, instances = instance_table(load_result(cell.folder).result)
                columns |= further_columns
                for row in instances:
                    rows.append({**row, "target": cell.target, "evaluation": cell.evaluation})
        return data_frame(columns, rows)

    def __repr__(self) -> str:
        complete = sum(cell.status == RunStatus.COMPLETE for cell in self.cells)
        counts = f"{complete} of {len(self.cells)} cells complete"
        return (
            f"<SuiteReport {one_line(f'{counts}; exit code {self.exit_code}; {self.folder.root}')}>"
        )


CELL_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("target", "evaluation", "status", "task", "model", "metric"), TEXT),
    **dict.fromkeys(("value", "ci_low", "ci_high"), NUMBER),
    "n": COUNT,
    "reportable": FLAG,
    "reason": TEXT,
    "exit_code": COUNT,
    "attempts": COUNT,
    "collected": FLAG,
    "folder": TEXT,
}


def _cell_row(cell: CellReport) -> dict[str, Any]:
    """Return the row of a cell in the data frame; a cell without result has no figures."""
    # `row` first has all fields of the report and of the figures; only the columns are returned.
    row: dict[str, Any] = {**vars(cell), "folder": str(cell.folder)}
    if cell.status in WITH_RESULT:
        result = load_result(cell.folder).result
        for name, value in vars(CellFigures.of(result)).items():
            if value is not None:
                row[name] = value
        row |= {"model": result.provenance.target, "metric": result.main_metric}
    return {name: value for name, value in row.items() if name in CELL_COLUMNS}


def summary_of(
    cells: Sequence[CellReport],
    folder: SuiteDir,
    *,
    stopped: str | None = None,
    table_error: str | None = None,
) -> str:
    """Return the text that is shown below the list of cells.

    Args:
        cells: the reports of all cells.
        folder: the folder of the suite.
        stopped: why cells were not started; None if all cells could be started.
        table_error: why the table could not be written; None if the table was written.
    """
    counts = Counter(cell.status for cell in cells)
    collected = sum(cell.collected for cell in cells)
    not_reportable = []
    for cell in cells:
        if cell.status == RunStatus.COMPLETE and cell.reason:
            not_reportable.append(cell)
    parts = []
    for status in RunStatus:
        if counts[status]:
            parts.append(f"{counts[status]} {status}")
    if not_reportable:  # the first part is then the number of complete cells
        parts[0] += f", of which {len(not_reportable)} not reportable"
    finished_before = ""
    if collected:
        finished_before = f" ({collected} finished before)"
    lines = [f"{formats.counted(len(cells), 'cell')}: {', '.join(parts)}{finished_before}"]
    # If all cells are complete, a limit may have been reached by the last request of the suite:
    # `stopped` is then of no interest.
    if counts[RunStatus.COMPLETE] < len(cells):
        if stopped is not None:
            lines.append(stopped)
        lines += _next_steps(cells, counts, folder, stopped)
    return "\n".join([*lines, table_error or f"table: {folder.results_md}"])


def _next_steps(
    cells: Sequence[CellReport],
    counts: Mapping[RunStatus, int],
    folder: SuiteDir,
    stopped: str | None,
) -> list[str]:
    """Return the lines that tell the user how to get the missing results.

    Args:
        cells: the reports of all cells.
        counts: the number of cells of each status.
        folder: the folder of the suite.
        stopped: why cells were not started; None if all cells could be started.
    """
    first = ""
    # A reached limit must be raised. max_wall_s need not be raised: this limit counts from the
    # start of each command.
    for limit in (MAX_COST, MAX_REQUESTS, MAX_TOKENS):
        if stopped is not None and limit in stopped:
            first = f"raise {limit} of the suite, and "
            break
    step = f"{first}the same command continues the suite: only missing answers are requested"
    details = []
    if counts[RunStatus.WAITING]:
        step = (
            "submitted to Slurm: the same command collects the jobs that have ended, "
            "and --wait waits for all jobs"
        )
        details.append(f"  the state of the jobs: eval-factory suite status {folder.root}")
    if counts[RunStatus.FAILED]:
        details.append(f"  why a cell failed: eval-factory suite logs {folder.root} CELL")
    if any(cell.exit_code == InterruptedRunError.exit_code for cell in cells):
        step = f"interrupted; {step}"
    return [step, *details]


def write_table(
    cells: Sequence[CellReport], folder: SuiteDir
) -> tuple[tuple[CellReport, ...], str | None]:
    """Write the table with the results of the cells.

    Returns:
        A tuple (reports, reason). A report differs from the report in `cells` if the result of its
        cell cannot be read: the cell has then failed. The reason says why the table could not be
        written; None if the table was written.
    """
    results = suite_results(cells)
    final_reports = []
    for cell, result in zip(cells, results.cells, strict=True):
        # `suite_results` changes the status if the result of a complete cell cannot be read
        if result.status != cell.status:
            code = PrerequisiteError.exit_code
            cell = replace(cell, status=RunStatus.FAILED, exit_code=code, reason=result.reason)
        final_reports.append(cell)
    try:
        write_suite_results(results, folder)
    except OSError as error:
        return tuple(final_reports), (
            f"the table cannot be written to {folder.root}: {error.strerror or error}; "
            "no result of a cell is lost: free disk space or make the folder writable, "
            "and run the same command again"
        )
    return tuple(final_reports), None
