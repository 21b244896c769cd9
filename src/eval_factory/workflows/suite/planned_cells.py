"""The cells of a suite with their plans: what is wrong with any of them is found before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval_factory.config.suite import Cell, Suite
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.suite.checked_cells import checked, refuse_unready


@dataclass(frozen=True)
class PlannedCell:
    """A cell, what it will run, and within which limits."""

    number: int
    """Its place in the suite."""
    cell: Cell
    plan: Plan
    group: str
    """The name of the limits of its model's endpoint."""


def plan_cells(suite: Suite, env: Mapping[str, str]) -> tuple[PlannedCell, ...]:
    """
    Raises:
        ConfigError, PrerequisiteError: cells are wrong; the message says what is wrong with each.
    """
    cells = checked(suite, env)
    refuse_unready(cells)
    return tuple(
        PlannedCell(number, one.cell, one.plan, suite.limit_groups[one.cell.target])
        for number, one in enumerate(cells)
        if one.plan is not None
    )
