from __future__ import annotations

from typing import Any

from eval_factory.workflows.suite.cell_loop import next_cell
from eval_factory.workflows.suite.planned_cells import PlannedCell

NOTHING: Any = None


def ready(number: int, group: str) -> PlannedCell:
    return PlannedCell(number, NOTHING, NOTHING, group)


def waiting(*groups: str) -> list[PlannedCell]:
    return [ready(number, group) for number, group in enumerate(groups)]


def test_cells_are_begun_in_the_order_of_the_suite() -> None:
    assert next_cell(waiting("a", "a"), [], []) == ready(0, "a")
    assert next_cell(list(reversed(waiting("a", "a"))), [], []) == ready(0, "a")


def test_the_endpoint_that_has_least_to_do_comes_first() -> None:
    cells = waiting("a", "a", "b")
    assert next_cell(cells, ["a"], []) == ready(2, "b")
    assert next_cell(cells, ["a", "b"], []) == ready(0, "a")
    assert next_cell(cells, ["a", "b", "b"], []) == ready(0, "a")


def test_a_paused_endpoint_is_passed_over() -> None:
    assert next_cell(waiting("a", "b"), [], {"a"}) == ready(1, "b")
    assert next_cell(waiting("a"), [], {"a"}) is None
    assert next_cell([], [], []) is None
