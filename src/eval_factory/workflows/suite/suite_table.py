"""The table at the end of a suite, whatever has become of the folders that it is made of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import CellResult, FinishedCell, suite_results
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.cell_outcome import FAILED
from eval_factory.workflows.suite.suite_options import CellReport


@dataclass(frozen=True)
class WrittenTable:
    """What came of writing it."""

    cells: tuple[CellReport, ...]
    """As the table has them: a result that cannot be read has failed."""
    problem: str | None = None
    """Why the table could not be written."""


def write_table(cells: Sequence[CellReport], folder: SuiteDir) -> WrittenTable:
    """Write the table of what is there. A full disk raises nothing: the results of the cells are kept all the same."""
    told = [FinishedCell(one.target, one.evaluation, one.status, one.folder, one.reason, one.attempts) for one in cells]
    results = suite_results(told)
    found = tuple(_as_read(cell, result, folder) for cell, result in zip(cells, results.cells, strict=True))
    try:
        write_suite_results(results, folder)
    except OSError as error:
        return WrittenTable(
            found,
            f"the table cannot be written to {folder.root}: {error.strerror or error}; the results of the cells are"
            " kept\n  make room or give the right to write there, and run the same command again: it writes the table",
        )
    return WrittenTable(found)


def _as_read(cell: CellReport, result: CellResult, folder: SuiteDir) -> CellReport:
    """A result that cannot be read is none, whatever its run said; collected again, it is written again."""
    if result.status == cell.status:
        return cell
    again = shlex.join(
        ["eval-factory", "run_eval", "--run_config", str(folder.cell_config(cell.target, cell.evaluation))]
    )
    reason = f"{result.reason}; write its files again: {again}"
    return replace(cell, status=FAILED, exit_code=PrerequisiteError.exit_code, reason=reason)
