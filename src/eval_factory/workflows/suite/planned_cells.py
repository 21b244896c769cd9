"""The cells of a suite with their plans: what is wrong with any of them is found before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eval_factory.config.suite import Cell, Suite
from eval_factory.core.errors import ConfigError
from eval_factory.plan.prices import how_to_say, prices_of
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.suite.checked_cells import CheckedCell, checked, refuse_unready


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
    if suite.budget.max_cost is not None:
        refuse_unknown_prices(cells)
    return tuple(
        PlannedCell(number, one.cell, one.plan, suite.limit_groups[one.cell.target])
        for number, one in enumerate(cells)
        if one.plan is not None
    )


def refuse_unknown_prices(cells: Iterable[CheckedCell]) -> None:
    """
    Raises:
        ConfigError: of some model or judge it is not known what it costs, and no limit of cost can be held.
    """
    unknown: dict[str, str] = {}
    for one in cells:
        if one.plan is not None:
            models = {endpoint.role: endpoint.model_id for endpoint in one.plan.endpoints}
            unknown |= {models[role]: why for role, why in prices_of(one.plan).unknown.items()}
    if unknown:
        raise ConfigError(
            [
                f"suite: max_cost cannot be held: {why}\n  {how_to_say(model, 'suite.prices')}"
                for model, why in unknown.items()
            ]
        )
