"""Checks a suite: which cells have no complete result, and whether the table matches the results.

The check reads the suite's configuration and the folders of the cells. A cell is complete if its
folder contains a complete result of the cell's configuration, also if the user made this result
with `run_eval`. A result of another version of eval-factory does not count.

The table of a suite has the results of its cells (`suite_results.yaml` and its other formats).

Also verifies a suite: compares every file of its results with the stored checksums.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from eval_factory import __version__
from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.config.suite import ReusedCell, Suite, build_suite
from eval_factory.core.enums import CellRecord, RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.run_statuses import GOING_ON, NOT_GOING_ON, WITH_RESULT
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import LEADS_OUT, is_within
from eval_factory.core.secrets import variables_in
from eval_factory.executors.progress import EventTail
from eval_factory.plan.run_plan import Plan
from eval_factory.report.field_differences import differences_of_files
from eval_factory.report.reader import load_result
from eval_factory.workflows.resume import read_last_run_state
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.finished_cells import (
    finished_result,
    has_partial_result,
    is_complete_run,
    reads_local_data,
)
from eval_factory.workflows.suite.planned_cells import CheckedCell, checked_cells
from eval_factory.workflows.suite.suite_journal import CellState, SuiteState, suite_state_of
from eval_factory.workflows.suite.suite_status import modified_at
from eval_factory.workflows.verify import (
    WRONG_FILES,
    Finding,
    Verified,
    finding_about_file,
    verify,
)


@dataclass(frozen=True)
class CellCheck(CellRecord):
    """The result of checking one cell."""

    status: RunStatus
    # why the cell is not complete; for a complete cell, notes about its result
    reason: str | None
    # the problems that the user must solve before the cell can run; empty if the cell is complete
    to_do: tuple[str, ...]
    folder: Path

    @property
    def is_complete(self) -> bool:
        """True if the cell has a complete result."""
        return self.status == RunStatus.COMPLETE


@dataclass(frozen=True)
class SuiteCheck:
    """The result of checking a suite."""

    folder: SuiteDir
    cells: tuple[CellCheck, ...]
    command: str  # the command that continues the suite
    running: bool  # True if a process or a job works on the suite
    # True if there are results, and suite_results.yaml is at least as new as the newest result
    in_table: bool
    altered: tuple[Finding, ...] = ()  # the differences between the table and the results

    @property
    def incomplete(self) -> list[CellCheck]:
        """The cells that are not complete, for example missing, partial and failed cells."""
        incomplete: list[CellCheck] = []
        for cell in self.cells:
            if not cell.is_complete:
                incomplete.append(cell)
        return incomplete

    def document(self) -> dict[str, Any]:
        """Return the check as a document for JSON output."""
        return {
            "suite": str(self.folder.root),
            "complete": not self.incomplete,
            "running": self.running,
            "in_table": self.in_table,
            "altered": [asdict(finding) for finding in self.altered],
            "command": self.command,
            "total": len(self.cells),
            "missing": len(self.incomplete),
            "cells": [
                {**asdict(cell), "to_do": list(cell.to_do), "folder": str(cell.folder)}
                for cell in self.cells
            ],
        }


def check_suite(folder: SuiteDir, *, env: Mapping[str, str]) -> SuiteCheck:
    """Check every cell of a suite. The check starts no run, sends no request and changes no file.

    Raises:
        ConfigError: suite_config.yml is wrong.
        PrerequisiteError: there is no suite_config.yml, because the suite was stopped before its
            first cell.
    """
    if not folder.config.is_file():
        raise PrerequisiteError(
            f"{folder.config}: is missing: the suite was stopped before its first cell; "
            "run 'eval-factory run_suite'"
        )
    suite = _suite_of(folder, env)
    status = suite_status.read_suite_status(folder)
    reported = {cell.name: cell for cell in status.cells}
    checks = []
    for checked_cell in checked_cells(suite, env):
        checks.append(_check_of_cell(checked_cell, reported.get(checked_cell.cell.name)))
    for reused_cell in suite.reused:
        checks.append(_check_of_reused(reused_cell))
    # `modified_at` returns 0 for a missing file
    table_time = modified_at(folder.results_yaml)
    result_times = [modified_at(RunDir(check.folder).evaluation_config) for check in checks]
    newest_result_time = max(result_times, default=0.0)
    altered: tuple[Finding, ...] = ()
    # The table is compared with the results only if the suite has ended: while a suite runs, and
    # after it was stopped, the table may be older than the results. A suite without events
    # (`started` is None) counts as ended.
    has_ended = status.started is None or status.state == suite_status.ENDED
    if has_ended and folder.results_yaml.exists():
        altered = tuple(compare_table(folder).findings)
    return SuiteCheck(
        folder,
        tuple(checks),
        command=suite_status.resume_command(status),
        running=status.state == suite_status.RUNNING,
        in_table=0.0 < newest_result_time <= table_time,
        altered=altered,
    )


def _suite_of(folder: SuiteDir, env: Mapping[str, str]) -> Suite:
    """Build the suite from suite_config.yml, with the current path of its folder."""
    return build_suite(
        folder.config, flags={"suite.output_dir": str(folder.root.absolute())}, env=env
    )


def _check_of_cell(checked_cell: CheckedCell, reported: CellState | None) -> CellCheck:
    """Return the check of a cell. `reported`: the cell's state by the suite's events, if known."""
    status = RunStatus.FAILED
    reason: str | None = "its configuration is wrong"
    if checked_cell.plan is not None:
        status, reason = _status_in_folder(checked_cell.plan)
        # The folder does not show that a cell is waiting, is running or has failed: the events do.
        only_in_events = (*GOING_ON, RunStatus.FAILED)
        is_incomplete = status != RunStatus.COMPLETE
        if is_incomplete and reported is not None and reported.status in only_in_events:
            status = reported.status
            reason = reported.reason or reason
    to_do: tuple[str, ...] = ()
    if status != RunStatus.COMPLETE:
        to_do = checked_cell.problems + checked_cell.missing
    cell = checked_cell.cell
    return CellCheck(cell.target, cell.evaluation, status, reason, to_do, cell.folder)


def _check_of_reused(cell: ReusedCell) -> CellCheck:
    """Return the check of a cell whose result the suite reuses."""
    try:
        result = load_result(cell.folder).result
    except PrerequisiteError:
        status = RunStatus.MISSING
        reason: str | None = "the reused result was not copied yet"
    else:
        status = result.status
        reason = "; ".join(result.validity.short_reasons) or None
    return CellCheck(cell.target, cell.evaluation, status, reason, to_do=(), folder=cell.folder)


def _status_in_folder(plan: Plan) -> tuple[RunStatus, str | None]:
    """Return the status of the cell by its folder, and the reason of the status.

    The reason is None if the cell has a complete and reportable result.
    """
    finished = finished_result(plan)
    if finished is not None:
        if finished.why_not_reportable is None:
            return RunStatus.COMPLETE, None
        reason = finished.why_not_reportable.splitlines()[0].removeprefix("NOT REPORTABLE: ")
        return RunStatus.COMPLETE, f"not reportable: {reason}"
    # `finished_result` returns None for every run that reads the user's data: the data may have
    # changed after a complete run.
    if is_complete_run(plan) and reads_local_data(plan):
        return (
            RunStatus.COMPLETE,
            "the cell reads data of your own: run_suite checks whether the data have changed",
        )
    try:
        result = load_result(plan.rundir.root).result
    except PrerequisiteError:
        return RunStatus.MISSING, "there is no result"
    if has_partial_result(plan.rundir, plan.identity):
        counts = result.validity.instances
        gaps = f"{counts.requested - counts.scored} of {counts.requested} instances have no score"
        return RunStatus.PARTIAL, gaps
    # A run deletes the old state before it asks, and writes the new state after its result.
    if read_last_run_state(plan.rundir) is None and result.provenance.run_identity == plan.identity:
        return RunStatus.MISSING, "the run was stopped while it wrote its result"
    return RunStatus.MISSING, "the result in its folder is of another configuration or version"


def verify_suite(folder: SuiteDir) -> Verified:
    """Verify a suite: its runs, its configuration and its table.

    The files of each run are compared with their checksums. The suite's configuration is compared
    with the configurations of the runs. The suite's table is compared with a table that is made
    again from the results of the runs.
    """
    state = _state_by_events(folder)
    if state.started is not None and state.ended is None:
        return Verified(
            folder.root,
            unreadable="the suite has not ended: run the same command again, then verify",
        )
    table = compare_table(folder)
    findings = table.findings
    notes = table.notes
    unreadable = None
    for cell in table.cells:
        if cell.status not in WITH_RESULT:
            notes.append(f"{cell.name}: {cell.status}: there is no result to verify")
            continue
        verified = verify(cell.folder)
        for finding in verified.findings:
            findings.append(replace(finding, file=f"{cell.name}/{finding.file}"))
        notes += [f"{cell.name}: {note}" for note in verified.notes]
        if verified.unreadable and unreadable is None:  # the first such cell is reported
            unreadable = f"{cell.name}: {verified.unreadable}"
    compared = _compare_with_configuration(folder, table.cells)
    return Verified(
        folder.root,
        (*findings, *compared.findings),
        (*notes, *compared.notes),
        unreadable,
    )


def _compare_with_configuration(folder: SuiteDir, cells: Sequence[FinishedCell]) -> Verified:
    """Compare the cells of the table with suite_config.yml.

    The findings name cells that only the file or only the table has, and complete cells whose last
    run had another configuration.
    """
    config = folder.config.name
    findings: list[Finding] = []
    notes: list[str] = []
    try:
        text = folder.config.read_text(encoding="utf-8")
        # Each variable gets a placeholder value: a variable without a value would be an error.
        env = dict.fromkeys(variables_in(parse_own_text(text)), "unknown")
        suite = _suite_of(folder, env)
    except (ConfigError, *WRONG_FILES) as error:
        return Verified(folder.root, (finding_about_file(config, f"cannot be read: {error}"),))
    configured = {}
    for checked_cell in checked_cells(suite, env):
        configured[checked_cell.cell.name] = checked_cell
    reused_names = {cell.name for cell in suite.reused}
    status_in_table = {}
    for cell in cells:
        if cell.name not in reused_names:
            status_in_table[cell.name] = cell.status
    names_in_only_one = configured.keys() ^ status_in_table.keys()
    for name in sorted(names_in_only_one):
        findings.append(
            Finding(
                config, name, "this cell is either only in this file, or only in the suite's table"
            )
        )
    for name, checked_cell in configured.items():
        last_run = None
        if status_in_table.get(name) == RunStatus.COMPLETE:
            last_run = read_last_run_state(RunDir(checked_cell.cell.folder))
        if checked_cell.plan is None:
            notes.append(
                f"{name}: the configuration of the cell was not compared: "
                "files that the configuration names have changed, or are missing"
            )
        elif last_run is not None and last_run.identity != checked_cell.plan.identity:
            difference = (
                f"the configuration has the identity {checked_cell.plan.identity}; "
                f"the result is of a run with the identity {last_run.identity}"
            )
            findings.append(Finding(config, name, difference))
    return Verified(folder.root, tuple(findings), tuple(notes))


def _state_by_events(folder: SuiteDir) -> SuiteState:
    """Return the state of a suite after all events in its file."""
    events = EventTail(folder.events, run_id=None)
    return suite_state_of(events.read_new_events())  # the first call returns all events


@dataclass
class TableComparison:
    """The cells of a suite's table, and the differences between the table and the results."""

    cells: list[FinishedCell] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare_table(folder: SuiteDir) -> TableComparison:
    """Make the table again from the results of the runs, and find the differences."""
    comparison = TableComparison()
    try:
        comparison.cells += _ended_cells(folder)
    except WRONG_FILES as error:
        problem = f"cannot be read: {type(error).__name__}: {error}"
        comparison.findings.append(finding_about_file(folder.results_yaml.name, problem))
        return comparison
    results = suite_results(comparison.cells)
    other_versions = {cell.collected_by for cell in results.cells} - {None, __version__}
    if other_versions:
        versions = ", ".join(map(str, other_versions))
        comparison.notes.append(
            f"eval-factory {versions} made some results: only the cells of the table were compared"
        )
    with tempfile.TemporaryDirectory(prefix="eval-factory-verify-") as name:
        remade_suite = SuiteDir(Path(name))
        write_suite_results(results, folder, into=remade_suite)
        for stored, made_again in zip(folder.table_files, remade_suite.table_files, strict=True):
            if not stored.is_file():
                comparison.findings.append(finding_about_file(stored.name, "is missing"))
                continue
            for difference in differences_of_files(stored, made_again):
                is_of_cell = stored == folder.results_yaml and difference.field.startswith("cells")
                # Other versions may make everything but the cells differently.
                if other_versions and not is_of_cell:
                    continue
                # The results of the runs do not contain the numbers of attempts.
                if "attempts" in difference.field:
                    continue
                altered = (
                    f"is {difference.stored}; "
                    f"made again from the runs' results it is {difference.made}"
                )
                comparison.findings.append(Finding(stored.name, difference.field, altered))
    return comparison


def _ended_cells(folder: SuiteDir) -> list[FinishedCell]:
    """Return the cells of the suite, which have ended, but not always with a result.

    The cells come from the suite's events; without events, from the table. If the events record the
    end of a cell, the cell's status comes from the events, otherwise from the table. The reasons
    always come from the table.

    Raises:
        OSError, YamlError, KeyError, TypeError: suite_results.yaml cannot be read.
        ValueError: the folder of a cell is outside of the suite, or a cell has a status that no
            ended cell has.
    """
    document = parse_own_text(folder.results_yaml.read_text(encoding="utf-8"))
    # `rows` has each cell's row in the table. `states` has each cell's state by the events. Both
    # dicts have the keys (target, evaluation).
    rows = {(str(row["target"]), str(row["evaluation"])): row for row in document["cells"]}
    states = _state_by_events(folder).cells
    ended = []
    for key in states or rows:
        cell_folder = folder.cell_folder(*key)
        if not is_within(cell_folder, folder.chosen_folder):
            raise ValueError(LEADS_OUT.format(folder=folder.chosen_folder))
        row = rows.get(key, {})
        status: Any = row.get("status", RunStatus.MISSING)
        state = states.get(key)
        if state is not None and state.status not in GOING_ON:
            status = state.status
        if status not in NOT_GOING_ON:
            raise ValueError(f"{'/'.join(key)}: no cell ends as {status}")
        reason = None
        if row.get("reason") is not None:
            reason = str(row["reason"])
        ended.append(FinishedCell(*key, status, cell_folder, reason))
    return ended
