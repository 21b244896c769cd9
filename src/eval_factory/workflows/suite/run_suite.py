"""Runs a suite: plans its cells, collects finished results, runs the other cells, and writes the
table.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    ConfigError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.this_process import ignore_sighup
from eval_factory.helm.picture_metrics import uncomputed_metric_lines
from eval_factory.scoring.reportable import failure_in
from eval_factory.workflows.options import exit_code_of_error
from eval_factory.workflows.suite.cell_loop import Work
from eval_factory.workflows.suite.finished_cells import (
    FinishedResult,
    copy_finished_run,
    find_finished_runs,
    find_run_to_copy,
    finished_result,
    has_usable_partial_result,
)
from eval_factory.workflows.suite.planned_cells import (
    PlannedCell,
    plan_cells,
    redactor_of_all,
)
from eval_factory.workflows.suite.reused_results import (
    copy_reused_results,
    refuse_unreadable_results,
)
from eval_factory.workflows.suite.suite_executors import EXECUTORS
from eval_factory.workflows.suite.suite_folder import locked, write_configs
from eval_factory.workflows.suite.suite_journal import (
    SUITE_ENDED,
    SUITE_STARTED,
    SuiteJournal,
    SuiteObserver,
    cell_fields,
)
from eval_factory.workflows.suite.suite_report import (
    CellReport,
    SuiteOptions,
    SuiteReport,
    summary_of,
    write_table,
)


def run_suite(
    suite: Suite, options: SuiteOptions, *, env: Mapping[str, str], screen: SuiteObserver
) -> SuiteReport:
    """Run every cell of a suite, and return a report. `screen` gets all events.

    A cell that fails raises no error; the exit code of the report shows the failure.

    Raises:
        ConfigError: the configuration of the suite or of a cell is wrong.
        PrerequisiteError: a prerequisite of the suite or of a cell is missing, or the suite's
            folder cannot be written.
        BusyError: another process works on the suite.
        InterruptedRunError: the run was interrupted. On this machine, the running cells were ended,
            and the table contains the finished results. If the command was waiting for Slurm jobs,
            the table was not written; the jobs continue unless `suite cancel` has ended them.
    """
    if options.fresh and options.reuse:
        raise ConfigError(
            "run_suite: --fresh ignores earlier results and --reuse adopts them: use only one"
        )
    executor = EXECUTORS[suite.executor]
    executor.refuse_unsupported(suite, env)
    # The cells are planned before the folder is made: a suite that cannot start leaves no folder.
    cells = plan_cells(suite, env)
    plans = [planned.plan for planned in cells]
    for line in uncomputed_metric_lines(plans, env):
        screen.say(line)
    refuse_unreadable_results(suite)
    folders_of_identity = find_finished_runs(options.reuse)
    with locked(suite.folder):
        write_configs(suite)
        redactor = redactor_of_all(plans, env)
        journal = SuiteJournal(suite.folder, redactor, screen)
        work = Work(suite, options, env=env, journal=journal, cells=cells, redactor=redactor)
        cell_names = [cell_fields(planned.cell) for planned in cells]
        cell_names += [cell_fields(reused_cell) for reused_cell in suite.reused]
        interrupted = False
        work.journal.record(
            SUITE_STARTED,
            pid=os.getpid(),
            host=socket.gethostname(),
            cells=cell_names,
            total=len(cell_names),
        )
        try:
            work.reused += copy_reused_results(work)
            collect_finished(work, folders_of_identity)
            executor.run(work)
        except KeyboardInterrupt:
            interrupted = True
        with ignore_sighup():  # the table is still written if the terminal is closed now
            report = _finish(work, interrupted=interrupted)
        if interrupted:
            raise InterruptedRunError(report.summary)
        return report


def collect_finished(work: Work, folders_of_identity: Mapping[str, tuple[Path, ...]]) -> None:
    """Report each cell whose run is already complete, and copy complete runs from other folders.

    With the option `--fresh`, earlier results are ignored, and nothing is done.
    `folders_of_identity`: the output folders of complete runs, by the identity of the run.
    """
    if work.options.fresh:
        return
    for planned in work.cells:
        result = finished_result(planned.plan)
        source = None
        if result is None:
            source = find_run_to_copy(planned.plan, folders_of_identity)
        if source is not None:
            was_copied = copy_finished_run(source, planned.plan.rundir.root, work.suite.folder)
            if not was_copied:
                work.journal.say(
                    f"{planned.cell.name}: not reused: another process works in {source} "
                    f"or {planned.plan.rundir.root}"
                )
                continue
            result = finished_result(planned.plan)
        if result is not None:
            report = _report_of_finished(planned, result, source)
            work.reports[planned.number] = report
            work.record_end(report, planned.plan.identity)


def _report_of_finished(
    planned: PlannedCell, result: FinishedResult, source: Path | None
) -> CellReport:
    """Return the report of a cell whose complete result already exists.

    Args:
        planned: the cell.
        result: the complete result.
        source: the folder from which the result was copied; None if the result was not copied.
    """
    reason = None
    code = 0
    if result.why_not_reportable is not None:
        reason = result.why_not_reportable.split("\n")[0]
        # The result of a demo is not reportable, but does not count as a failure.
        if failure_in(result.why_not_reportable) is not None:
            code = NotReportableError.exit_code
    return CellReport.of(
        planned.cell,
        RunStatus.COMPLETE,
        reason,
        exit_code=code,
        collected=True,
        reused_from=source,
    )


def _finish(work: Work, *, interrupted: bool) -> SuiteReport:
    """Report the cells without a report, write the table and the last event, and return the report.

    Only an interrupt leaves cells without a report.
    """
    suite = work.suite
    for planned in work.unreported:
        status = RunStatus.PARTIAL if has_usable_partial_result(planned.plan) else RunStatus.MISSING
        code = InterruptedRunError.exit_code
        reason = "interrupted before it was started"
        work.reports[planned.number] = CellReport.of(planned.cell, status, reason, exit_code=code)
    reports_of_runs = [work.reports[planned.number] for planned in work.cells]
    try:
        reports, table_error = write_table([*reports_of_runs, *work.reused], suite.folder)
    except Exception as error:
        # without this event, the suite would count as killed
        work.journal.record(
            SUITE_ENDED, status=RunStatus.PARTIAL, exit_code=exit_code_of_error(error)
        )
        raise
    # `write_table` changes the report of a cell whose result cannot be read: record its end again.
    # The reports of reused results, which come last, are not recorded again.
    final_reports = reports[: len(reports_of_runs)]
    for planned, before, final in zip(work.cells, reports_of_runs, final_reports, strict=True):
        if final != before:
            work.record_end(final, planned.plan.identity)
    # Higher exit codes are worse: 70 is a defect, 4 a failure of HELM, 3 a missing prerequisite,
    # 2 a wrong configuration, 1 a partial result or a result that is not reportable.
    code = max((cell.exit_code for cell in reports), default=0)
    if table_error is not None:
        work.journal.say(table_error)
        code = max(code, PrerequisiteError.exit_code)
    if interrupted:
        code = InterruptedRunError.exit_code
    is_complete = table_error is None and all(cell.status == RunStatus.COMPLETE for cell in reports)
    status = RunStatus.COMPLETE if is_complete else RunStatus.PARTIAL
    work.journal.record(SUITE_ENDED, status=status, exit_code=code)
    summary = summary_of(reports, suite.folder, stopped=work.stopped, table_error=table_error)
    return SuiteReport(suite.folder, reports, exit_code=code, status=status, summary=summary)
