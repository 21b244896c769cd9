"""Checks a suite: which cells have no complete result, and whether the table matches the results.

The check reads the suite's configuration and the folders of the cells. A cell is complete if its
folder contains a complete result of the cell's configuration, also if the user made this result
with `run_eval`. A result of another version of eval-factory does not count.

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
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.run_statuses import ENDED, GOING_ON, WITH_RESULT
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import LEADS_OUT, is_within
from eval_factory.core.secrets import variables_in
from eval_factory.executors.progress import EventTail
from eval_factory.plan.run_plan import Plan
from eval_factory.report.field_differences import differences_of_files
from eval_factory.report.reader import load_result
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.finished_cells import (
    finished,
    has_partial_result,
    is_complete_run,
    reads_own_data,
)
from eval_factory.workflows.suite.planned_cells import CheckedCell, checked_cells
from eval_factory.workflows.suite.suite_journal import CellState, suite_state_of
from eval_factory.workflows.suite.suite_status import modified_at
from eval_factory.workflows.verify import WRONG_FILES, Finding, Verified, verify


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
    altered: tuple[Finding, ...] = ()  # the places at which the table differs from the results

    @property
    def missing(self) -> list[CellCheck]:
        """The cells that are not complete, of any other status: also partial and failed cells."""
        incomplete: list[CellCheck] = []
        for cell in self.cells:
            if not cell.is_complete:
                incomplete.append(cell)
        return incomplete

    def document(self) -> dict[str, Any]:
        """Return the check as a document for JSON output."""
        return {
            "suite": str(self.folder.root),
            "complete": not self.missing,
            "running": self.running,
            "in_table": self.in_table,
            "altered": [asdict(finding) for finding in self.altered],
            "command": self.command,
            "total": len(self.cells),
            "missing": len(self.missing),
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
    status = suite_status.status_of(folder)
    reported = {cell.name: cell for cell in status.cells}
    checked = [_checked(cell, reported.get(cell.cell.name)) for cell in checked_cells(suite, env)]
    cells = (*checked, *map(_checked_reused, suite.reused))
    table_time = modified_at(folder.results_yaml)
    result_times = [modified_at(RunDir(cell.folder).evaluation_config) for cell in cells]
    newest_result_time = max(result_times, default=0.0)  # 0 if there are no results
    # While a suite runs, and after it was stopped, its table may be older than the results: such a
    # table is not compared with them. `started` is None if the folder has no events.
    table_is_final = folder.results_yaml.exists() and (
        status.started is None or status.state == suite_status.ENDED
    )
    return SuiteCheck(
        folder,
        cells,
        command=suite_status.same_command(status),
        running=status.state == suite_status.RUNNING,
        in_table=0.0 < newest_result_time <= table_time,
        altered=tuple(altered_table(folder).findings) if table_is_final else (),
    )


def _suite_of(folder: SuiteDir, env: Mapping[str, str]) -> Suite:
    """Build the suite from suite_config.yml, with the current path of its folder."""
    return build_suite(
        folder.config, flags={"suite.output_dir": str(folder.root.absolute())}, env=env
    )


def _checked(checked_cell: CheckedCell, reported: CellState | None) -> CellCheck:
    """Return the check of a cell. `reported`: the cell's state by the suite's events, if known."""

    def check(status: RunStatus, reason: str | None) -> CellCheck:
        to_do = () if status == RunStatus.COMPLETE else checked_cell.problems + checked_cell.missing
        return CellCheck(
            checked_cell.cell.target,
            checked_cell.cell.evaluation,
            status,
            reason,
            to_do,
            checked_cell.cell.folder,
        )

    if checked_cell.plan is None:
        return check(RunStatus.FAILED, "its configuration is wrong")
    status, reason = _status_in_folder(checked_cell.plan)
    if (
        status != RunStatus.COMPLETE
        and reported is not None
        and reported.status in (*GOING_ON, RunStatus.FAILED)
    ):
        return check(reported.status, reported.reason or reason)
    return check(status, reason)


def _checked_reused(cell: ReusedCell) -> CellCheck:
    """Return the check of a cell whose result the suite reuses."""
    try:
        result = load_result(cell.folder).result
    except PrerequisiteError:
        status = RunStatus.MISSING
        reason: str | None = "the reused result was not copied yet"
    else:
        status = result.status
        reason = "; ".join(result.validity.short_reasons) or None
    return CellCheck(cell.target, cell.evaluation, status, reason, (), cell.folder)


def _status_in_folder(plan: Plan) -> tuple[RunStatus, str | None]:
    """Return the status of the cell by its folder, and the reason of the status.

    The reason is None if the cell has a complete and reportable result.
    """
    why_not_reportable = finished(plan)
    if why_not_reportable == "":
        return RunStatus.COMPLETE, None
    if why_not_reportable is not None:
        reason = why_not_reportable.splitlines()[0].removeprefix("NOT REPORTABLE: ")
        return RunStatus.COMPLETE, f"not reportable: {reason}"
    if is_complete_run(plan) and reads_own_data(plan):
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
    if read_state(plan.rundir) is None and result.provenance.run_identity == plan.identity:
        return RunStatus.MISSING, "the run was stopped while it wrote its result"
    return RunStatus.MISSING, "the result in its folder is of another configuration or version"


def verify_suite(folder: SuiteDir) -> Verified:
    """Verify a suite: its runs, its configuration and its table.

    The files of each run are compared with their checksums. The suite's configuration is compared
    with the configurations of the runs. The suite's table is compared with a table that is made
    again from the results of the runs.
    """
    state = suite_state_of(EventTail(folder.events, None).new())
    if state.started is not None and state.ended is None:
        return Verified(
            folder.root,
            unreadable="the suite has not ended: run the same command again, then verify",
        )
    table = altered_table(folder)
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
        if verified.unreadable and unreadable is None:
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
        # Each variable gets a placeholder value: a variable without value would be an error.
        env = dict.fromkeys(variables_in(parse_own(text)), "unknown")
        suite = _suite_of(folder, env)
    except (ConfigError, *WRONG_FILES) as error:
        return Verified(folder.root, (Finding(config, "", f"cannot be read: {error}"),))
    configured = {cell.cell.name: cell for cell in checked_cells(suite, env)}
    reused = {cell.name for cell in suite.reused}
    status_of = {}
    for cell in cells:
        if cell.name not in reused:
            status_of[cell.name] = cell.status
    for name in sorted(configured.keys() ^ status_of.keys()):
        findings.append(
            Finding(
                config, name, "this cell is either only in this file, or only in the suite's table"
            )
        )
    for name, checked_cell in configured.items():
        last = None
        if status_of.get(name) == RunStatus.COMPLETE:
            last = read_state(RunDir(checked_cell.cell.folder))
        if checked_cell.plan is None:
            notes.append(
                f"{name}: the configuration of the cell was not compared: "
                "files that the configuration names have changed, or are missing"
            )
        elif last is not None and last.identity != checked_cell.plan.identity:
            difference = (
                f"the configuration has the identity {checked_cell.plan.identity}; "
                f"the result is of a run with the identity {last.identity}"
            )
            findings.append(Finding(config, name, difference))
    return Verified(folder.root, tuple(findings), tuple(notes))


@dataclass
class _Table:
    """The cells of a suite's table, and the differences between the table and the results."""

    cells: list[FinishedCell] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def altered_table(folder: SuiteDir) -> _Table:
    """Make the table again from the results of the runs, and find the differences.

    The cells and their statuses come from the suite's events. The reason why a cell has no result
    is only in the table.
    """
    table = _Table()
    try:
        table.cells += _cells_of_table(folder)
    except WRONG_FILES as error:
        table.findings.append(
            Finding(
                folder.results_yaml.name, "", f"cannot be read: {type(error).__name__}: {error}"
            )
        )
        return table
    results = suite_results(table.cells)
    other_versions = {cell.collected_by for cell in results.cells} - {None, __version__}
    if other_versions:
        versions = ", ".join(map(str, other_versions))
        table.notes.append(
            f"eval-factory {versions} made some results: only the cells of the table were compared"
        )
    with tempfile.TemporaryDirectory(prefix="eval-factory-verify-") as name:
        remade_suite = SuiteDir(Path(name))
        write_suite_results(results, folder, into=remade_suite)
        for stored, made_again in zip(folder.table, remade_suite.table, strict=True):
            if not stored.is_file():
                table.findings.append(Finding(stored.name, "", "is missing"))
                continue
            for difference in differences_of_files(stored, made_again):
                # Another version may make the other parts of the table differently.
                is_compared = not other_versions or (
                    stored == folder.results_yaml and difference.field.startswith("cells")
                )
                # The numbers of attempts come from suite_usage.yaml; no result contains them.
                if is_compared and "attempts" not in difference.field:
                    altered = (
                        f"is {difference.stored}; "
                        f"made again from the runs' results it is {difference.made}"
                    )
                    table.findings.append(Finding(stored.name, difference.field, altered))
    return table


def _cells_of_table(folder: SuiteDir) -> list[FinishedCell]:
    """Return the cells by the suite's events, or by the table if there are no events.

    Raises:
        OSError, YamlError, KeyError, TypeError: suite_results.yaml cannot be read.
        ValueError: the folder of a cell is outside of the suite, or a cell has a status that no
            ended cell has.
    """
    document = parse_own(folder.results_yaml.read_text(encoding="utf-8"))
    table = {(str(cell["target"]), str(cell["evaluation"])): cell for cell in document["cells"]}
    reported = suite_state_of(EventTail(folder.events, None).new()).cells
    finished = []  # these cells have ended, but not always with a result
    for key in reported or table:
        cell_folder = folder.cell(*key)
        row = table.get(key, {})
        cell = reported.get(key)
        if not is_within(cell_folder, folder.chosen_folder):
            raise ValueError(LEADS_OUT.format(folder=folder.chosen_folder))
        status: Any = row.get("status", RunStatus.MISSING)
        reason = row.get("reason")
        if cell is not None and cell.status not in GOING_ON:
            status = cell.status
        if status not in ENDED:
            raise ValueError(f"{'/'.join(key)}: no cell ends as {status}")
        finished.append(
            FinishedCell(*key, status, cell_folder, None if reason is None else str(reason))
        )
    return finished
