"""The cells of a suite with their plans: what is wrong with any of them is found before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eval_factory.config.evaluation import build_evaluation
from eval_factory.config.suite import Cell, Suite
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.evaluate import look_for_prerequisites
from eval_factory.workflows.prepare_data import find_bundle


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
    planned, wrong, missing = [], [], []
    for number, cell in enumerate(suite.cells):
        try:
            evaluation = build_evaluation(cell.request, load_framework(), env)
            plan = make_plan(evaluation)
            credentials_report(plan, env)
            look_for_prerequisites(evaluation, plan)
            find_bundle(plan, env)
        except ConfigError as error:
            wrong += [f"{cell.name}: {problem}" for problem in error.problems]
            continue
        except PrerequisiteError as error:
            missing.append(f"{cell.name}: {error}")
            continue
        planned.append(PlannedCell(number, cell, plan, suite.limit_groups[cell.target]))
    _raise_for(wrong, missing, len(suite.cells))
    return tuple(planned)


def _raise_for(wrong: Iterable[str], missing: Iterable[str], cells: int) -> None:
    lines = [*wrong, *missing]
    if not lines:
        return
    text = [*lines, f"  nothing was asked: correct this, or leave these out of the {cells} cells with exclude"]
    if any(wrong):
        raise ConfigError(text)
    raise PrerequisiteError("\n".join(text))
