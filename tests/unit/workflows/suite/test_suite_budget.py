from __future__ import annotations

import pytest

from eval_factory.core.budget import Budget, Spending
from eval_factory.workflows.suite.suite_budget import limit_reached, total


def test_all_cells_together() -> None:
    assert total([]) == Spending()
    assert total([Spending(1, 20, 0.5), Spending(3, 4, 0.25)]) == Spending(4, 24, 0.75)


@pytest.mark.parametrize(
    ("budget", "left", "said"),
    [
        (Budget(), None, None),
        (Budget(max_cost=2.0), None, None),
        (Budget(max_cost=1.5), None, "max_cost (1.5) of the suite is reached"),
        (Budget(max_requests=11), None, None),
        (Budget(max_requests=10), None, "max_requests (10) of the suite is reached"),
        (Budget(max_tokens_total=99, max_wall_s=60.0), 0.0, "max_tokens_total (99) of the suite is reached"),
        (Budget(max_wall_s=60.5), 0.5, None),
        (Budget(max_wall_s=60.0), 0.0, "max_wall_s (60) of the suite is reached"),
    ],
    ids=str,
)
def test_the_limit_that_is_used_up(budget: Budget, left: float | None, said: str | None) -> None:
    assert limit_reached(budget, Spending(10, 100, 1.5), left) == said
