"""Adds existing results to a suite: the results that the suite's file names under `reuse`.

The suite's table shows these results, but no evaluation runs for them. Imported results become part
of a suite in this way.
"""

from __future__ import annotations

from eval_factory.config.suite import ReusedCell, Suite
from eval_factory.config.suite_layers import SUITE_KEY
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    BusyError,
    EvalFactoryError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.rundir import RunDir, SuiteDir, sha256_of
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.suite.cell_loop import Work
from eval_factory.workflows.suite.finished_cells import copy_finished_run
from eval_factory.workflows.suite.suite_report import CellReport


def refuse_unreadable_results(suite: Suite) -> None:
    """Check that each reused folder contains a readable result.

    Raises:
        PrerequisiteError: a reused folder contains no readable result; the message lists all such
            folders.
    """
    problems = []
    for number, cell in enumerate(suite.reused):
        try:
            load_result(cell.source)
        except PrerequisiteError as error:
            problems.append(f"{SUITE_KEY}.reuse[{number}]: {error}")
    if problems:
        raise PrerequisiteError("\n".join([*problems, "nothing was asked"]))


def copy_reused_results(work: Work) -> list[CellReport]:
    """Copy each reused result that is new or changed into the suite's folder.

    Returns a report for each reused result, also if the copy failed. Each report is written to the
    suite's journal.
    """
    reports = []
    for cell in work.suite.reused:
        try:
            report, identity = _copy_if_needed(cell, work.suite.folder)
        except EvalFactoryError as error:
            reason = str(error).split("\n")[0]
            # the identity of the run is unknown, because the result could not be read or copied
            report = _report(cell, RunStatus.FAILED, reason, error.exit_code)
            identity = None
        reports.append(report)
        work.record_end(report, identity)
    return reports


def _copy_if_needed(cell: ReusedCell, suite: SuiteDir) -> tuple[CellReport, str]:
    """Copy the result if it is new or changed; return its report and the identity of its run.

    Raises:
        BusyError: another process works in the folder of the result, or in the folder of the copy.
        PrerequisiteError: the result cannot be read or copied.
    """
    if not _is_copied(cell):
        has_copied = copy_finished_run(cell.source, cell.folder, suite)
        if not has_copied:
            raise BusyError(f"not reused: another process works in {cell.source} or {cell.folder}")
    stored = load_result(cell.folder)
    result = stored.result
    code = 0 if result.reportable else NotReportableError.exit_code
    return _report(cell, result.status, _reason(stored), code), result.provenance.run_identity


def _is_copied(cell: ReusedCell) -> bool:
    """Return True if the suite's folder contains a copy of the result, and the result is unchanged.

    Only the two files of checksums are compared: they differ if the results differ.
    """
    checksums_of_copy = RunDir(cell.folder).checksums
    checksums_of_source = RunDir(cell.source).checksums
    if not checksums_of_copy.is_file() or not checksums_of_source.is_file():
        return False
    return sha256_of(checksums_of_copy) == sha256_of(checksums_of_source)


def _reason(stored: StoredResult) -> str | None:
    """Return the first reason why the result is not reportable.

    Returns None if the result is reportable, or if it states no reason.
    """
    reasons = stored.result.validity.short_reasons
    if stored.result.reportable or not reasons:
        return None
    return reasons[0]


def _report(cell: ReusedCell, status: RunStatus, reason: str | None, code: int) -> CellReport:
    """Return the report of a cell whose result is reused."""
    return CellReport(
        cell.target,
        cell.evaluation,
        status,
        cell.folder,
        reason,
        exit_code=code,
        collected=True,
        reused_from=cell.source,
    )
