"""How much of a suite's budget is used: what its cells have asked so far, in every invocation."""

from __future__ import annotations

from collections.abc import Iterable

from eval_factory.core.budget import Budget, Spending


def total(parts: Iterable[Spending]) -> Spending:
    """Of all cells together."""
    known = list(parts)
    return Spending(
        requests=sum(part.requests for part in known),
        tokens=sum(part.tokens for part in known),
        cost=sum(part.cost for part in known),
    )


def limit_reached(budget: Budget, spent: Spending, seconds_left: float | None) -> str | None:
    """The limit that is used up, with its number; None where there is something left.

    Args:
        seconds_left: of max_wall_s; None where there is no such limit.
    """
    most = budget.max_wall_s
    elapsed = 0.0 if most is None or seconds_left is None else most - seconds_left
    name = budget.reached(spent.by_limit(elapsed))
    return None if name is None else f"{name} ({budget.stated[name]:g}) of the suite is reached"
