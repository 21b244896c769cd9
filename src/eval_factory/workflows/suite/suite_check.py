"""What a suite's table lacks: its configuration, cell by cell, against what stands in the cells' folders.

Not what its last run told: a cell that `run_eval` has finished since counts, and a result of another configuration, or
of another version, does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval_factory.config.suite import build_suite
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.plan.run_plan import Plan
from eval_factory.report.reader import load_result
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite.checked_cells import CheckedCell, checked
from eval_factory.workflows.suite.finished_cells import finished, has_partial_result, reads_own_data
from eval_factory.workflows.suite.suite_state import COMPLETE, FAILED, MISSING, PARTIAL, UNFINISHED, CellState
from eval_factory.workflows.suite.suite_status import GOES, RUN_IT, same_command, status_of

NO_RESULT = "there is no result"
ANOTHER = "the result in its folder is of another configuration or version"
OWN_DATA = "reads the user's own data: run_suite looks whether they have changed"
ASK_THE_REST = "the same command asks what is left"
LOOK = "its logs say why"


@dataclass(frozen=True)
class CellCheck:
    """One cell of the table."""

    target: str
    evaluation: str
    status: str
    reason: str | None
    """What is wrong with it; of a complete one, what a reader has to know."""
    to_do: tuple[str, ...]
    """Empty where it is complete."""
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"

    @property
    def is_complete(self) -> bool:
        return self.status == COMPLETE


@dataclass(frozen=True)
class SuiteCheck:
    """All cells that the configuration has."""

    folder: SuiteDir
    cells: tuple[CellCheck, ...]
    command: str
    """What goes on with the suite."""
    is_running: bool
    in_table: bool
    """Whether suite_results.yaml was written after the last of the results."""

    @property
    def is_complete(self) -> bool:
        return all(cell.is_complete for cell in self.cells)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "suite": str(self.folder.root),
            "complete": self.is_complete,
            "running": self.is_running,
            "in_table": self.in_table,
            "command": self.command,
            "total": len(self.cells),
            "missing": sum(not cell.is_complete for cell in self.cells),
            "cells": [{**asdict(cell), "to_do": list(cell.to_do), "folder": str(cell.folder)} for cell in self.cells],
        }


def check(folder: SuiteDir, *, env: Mapping[str, str]) -> SuiteCheck:
    """Look at every cell; nothing is started, asked or written.

    Raises:
        ConfigError: suite_config.yml is wrong.
        PrerequisiteError: there is none: no cell was ever begun.
    """
    if not folder.config.is_file():
        raise PrerequisiteError(
            f"{folder.config}: is not there: the suite was stopped before its first cell; run 'eval-factory run_suite'"
        )
    suite = build_suite(folder.config, flags={"suite.output_dir": str(folder.root.absolute())}, env=env)
    status = status_of(folder)
    told = {cell.state.name: cell.state for cell in status.cells}
    cells = tuple(_checked(cell, told.get(cell.cell.name)) for cell in checked(suite, env))
    table = _written(folder.results_yaml)
    last = max((_written(cell.folder / "evaluation_config.yaml") for cell in cells), default=0.0)
    return SuiteCheck(folder, cells, same_command(status), status.state == GOES, 0.0 < last <= table)


def _checked(one: CheckedCell, told: CellState | None) -> CellCheck:
    if one.plan is None:
        return _made(one, FAILED, "its configuration is wrong", one.problems)
    status, reason = _found(one.plan)
    if status == COMPLETE:
        return _made(one, status, reason, ())
    first = one.problems + one.missing
    if told is not None and told.status in UNFINISHED:
        return _made(one, told.status, reason, first or ("wait for it",))
    if told is not None and told.status == FAILED:
        return _made(one, FAILED, told.reason or reason, first or ((LOOK, RUN_IT) if told.attempt else (RUN_IT,)))
    return _made(one, status, reason, first or (ASK_THE_REST if status == PARTIAL else RUN_IT,))


def _found(plan: Plan) -> tuple[str, str | None]:
    """The status of what stands in the cell's folder, and what is wrong with it."""
    whole = finished(plan)
    if whole is not None:
        told = whole.not_reportable
        return COMPLETE, None if told is None else f"not reportable: {told.splitlines()[0]}"
    state = read_state(plan.rundir)
    if state is not None and state.complete and state.identity == plan.identity and reads_own_data(plan):
        return COMPLETE, OWN_DATA
    try:
        counts = load_result(plan.rundir.root).result.validity.instances
    except PrerequisiteError:
        return MISSING, NO_RESULT
    if has_partial_result(plan.rundir, plan.identity):
        return PARTIAL, f"{counts.requested - counts.scored} of {counts.requested} instances have no score"
    return MISSING, ANOTHER


def _made(one: CheckedCell, status: str, reason: str | None, to_do: tuple[str, ...]) -> CellCheck:
    return CellCheck(one.cell.target, one.cell.evaluation, status, reason, to_do, one.cell.folder)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
