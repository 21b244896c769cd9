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
    used = {
        "max_cost": (spent.cost, budget.max_cost),
        "max_requests": (spent.requests, budget.max_requests),
        "max_tokens_total": (spent.tokens, budget.max_tokens_total),
    }
    reached = [(name, most) for name, (so_far, most) in used.items() if most is not None and so_far >= most]
    if budget.max_wall_s is not None and seconds_left == 0:
        reached.append(("max_wall_s", budget.max_wall_s))
    return next((f"{name} ({most:g}) of the suite is reached" for name, most in reached), None)
