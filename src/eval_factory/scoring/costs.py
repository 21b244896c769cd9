"""What the answers of an output folder cost, by run and role: from cache.db, so that it is always the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path

from eval_factory.core.cost import BY_ENDPOINT, Cost, Price
from eval_factory.endpoint.paid_answers import Paid, cost_of, read_paid, read_prices

RunAndRole = tuple[str, str]


@dataclass
class CostTally:
    """Of answers that were paid for: of one role or several, of one run or several."""

    values: list[float] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    prices: set[Price] = field(default_factory=set)
    unpriced: int = 0

    def add(self, paid: Paid, price: Price | None) -> None:
        known = cost_of(paid.usage, (paid.prompt_tokens, paid.completion_tokens), price)
        if known is None:
            self.unpriced += 1
            return
        value, source = known
        self.values.append(value)
        self.sources.add(source)
        if price is not None and source != BY_ENDPOINT:
            self.prices.add(price)


def tally_costs(cache_db: Path, table: Mapping[str, Price]) -> dict[RunAndRole, CostTally]:
    """(run id, role) -> what its answers cost.

    Args:
        table: role -> what the user's own table says now; else holds the price that was kept when the run asked.
    """
    kept = read_prices(cache_db)
    found: dict[RunAndRole, CostTally] = defaultdict(CostTally)
    for paid in read_paid(cache_db):
        place = (paid.run_id, paid.role)
        found[place].add(paid, table.get(paid.role) or kept.get(place))
    return dict(found)


def cost_of_all(tallies: Iterable[CostTally]) -> Cost | None:
    """None where the cost of no answer is known, also where there was none."""
    parts = list(tallies)
    values = [value for tally in parts for value in tally.values]
    if not values:
        return None
    prices = {price for tally in parts for price in tally.prices}
    return Cost(
        value=fsum(values),
        source=", ".join(sorted({source for tally in parts for source in tally.sources})),
        priced_requests=len(values),
        unpriced_requests=sum(tally.unpriced for tally in parts),
        price=prices.pop() if len(prices) == 1 else None,
    )


def chosen(costs: Mapping[RunAndRole, CostTally], run_id: str | None, role: str | None) -> Cost | None:
    """Of one run, or of all (None), and of one role, or of all."""
    return cost_of_all(tally for (run, of), tally in costs.items() if run_id in (None, run) and role in (None, of))


def why_unknown(costs: Mapping[RunAndRole, CostTally], price_of: Callable[[str], str | None]) -> str | None:
    """Why answers that somebody may have paid for have no cost.

    Args:
        price_of: role -> that no price of its model is known; None where nobody may have to pay.
    """
    unpriced = {role: count for (_, role), tally in sorted(costs.items()) if (count := tally.unpriced)}
    reasons = [f"{role}: {why}" for role in unpriced if (why := price_of(role)) is not None]
    return "; ".join(reasons) or None
