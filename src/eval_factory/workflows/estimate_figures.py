"""What estimates of a role, a run and a suite share: sums of which a part may not be known, and their words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from eval_factory.core.budget import MAX_COST, MAX_REQUESTS, MAX_TOKENS, MAX_WALL, Budget
from eval_factory.report.sentences import money

SECONDS_OF_HOUR, SECONDS_OF_MINUTE = 3600.0, 60.0


class Estimated(Protocol):
    """None: nobody knows."""

    @property
    def requests(self) -> float | None: ...

    @property
    def tokens(self) -> float | None: ...

    @property
    def cost(self) -> float | None:
        """US dollars."""
        ...

    @property
    def hours(self) -> float | None: ...


def sum_of(parts: Iterable[float | None]) -> float | None:
    """None where a part is not known."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def beyond(budget: Budget, of: Estimated) -> dict[str, float]:
    """Name of a limit that will be reached -> how much it would take."""
    seconds = None if of.hours is None else of.hours * SECONDS_OF_HOUR
    needed = {MAX_COST: of.cost, MAX_REQUESTS: of.requests, MAX_TOKENS: of.tokens, MAX_WALL: seconds}
    return {name: value for name, most in budget.stated.items() if (value := needed[name]) is not None and value > most}


def lines_beyond(budget: Budget, of: Estimated) -> list[str]:
    """The same in words."""
    return [f"  {name} ({budget.stated[name]:g}) will be reached before the end" for name in beyond(budget, of)]


def figures_in_words(of: Estimated) -> str:
    """`40 requests, 2,864 tokens, 0.02 USD, 1.5 min`."""
    cost = "unknown cost" if of.cost is None else money(of.cost)
    return f"{_count(of.requests)} requests, {_count(of.tokens)} tokens, {cost}, {_time(of.hours)}"


def _count(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,.0f}"


def _time(hours: float | None) -> str:
    if hours is None:
        return "unknown time"
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * SECONDS_OF_HOUR / SECONDS_OF_MINUTE:.1f} min"
