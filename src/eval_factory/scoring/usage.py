"""What an evaluation used, from the journal of attempts: requests, tokens, times, costs, figures of the responses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import Any

from eval_factory.core.budget import BY_ENDPOINT, Cost, Price
from eval_factory.core.nouns import AttemptState
from eval_factory.core.results import MODEL_ROLE, ResponseStatistics, Spent, SpentByRole, Usage
from eval_factory.endpoint.paid_answers import cost_of, read_paid, read_prices
from eval_factory.plan.prices import hosted_roles, table_prices, unknown_price
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import journal
from eval_factory.scoring.intervals import percentile

RunAndRole = tuple[str, str]


@dataclass
class CostTally:
    """Of answers that were paid for: of one role or several, of one run or several."""

    values: list[float] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    prices: set[Price] = field(default_factory=set)
    unpriced: int = 0


def tally_costs(cache_db: Path, table: Mapping[str, Price]) -> dict[RunAndRole, CostTally]:
    """(run id, role) -> what its answers cost.

    Args:
        table: role -> what the user's own table says now; else holds the price that was stored when the run asked.
    """
    stored = read_prices(cache_db)
    found: dict[RunAndRole, CostTally] = defaultdict(CostTally)
    for paid in read_paid(cache_db):
        tally = found[paid.run_id, paid.role]
        price = table.get(paid.role) or stored.get((paid.run_id, paid.role))
        known = cost_of(paid.usage, paid.tokens, price)
        if known is None:
            tally.unpriced += 1
            continue
        value, source = known
        tally.values.append(value)
        tally.sources.add(source)
        if price is not None and source != BY_ENDPOINT:
            tally.prices.add(price)
    return dict(found)


def chosen_cost(costs: Mapping[RunAndRole, CostTally], run_id: str | None, role: str | None) -> Cost | None:
    """Of one run, or of all (None), and of one role, or of all; None where the cost of no answer is known."""
    parts = [tally for (run, of), tally in costs.items() if run_id in (None, run) and role in (None, of)]
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


_ENDED = (AttemptState.ANSWERED, AttemptState.RETRIED, AttemptState.FAILED)


@dataclass
class _Tally:
    requests: int = 0
    cached: int = 0
    retries: int = 0
    tokens: list[tuple[int | None, int | None]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def add(self, attempt: Mapping[str, Any]) -> None:
        outcome = attempt["outcome"]
        self.requests += outcome in (*_ENDED, AttemptState.REFUSED)
        self.cached += outcome == AttemptState.CACHED
        self.retries += outcome == AttemptState.RETRIED
        if outcome == AttemptState.ANSWERED:
            self.tokens.append((attempt["prompt_tokens"], attempt["completion_tokens"]))
            self.latencies.append(attempt["latency_s"])


def usage_of(plan: Plan, run_id: str, wall_s: float) -> tuple[Usage, list[str], set[str]]:
    """The usage, with what answers cost as far as it is known; how requests were changed so that the endpoint took
    them, in the run that paid for them; and the keys of the answers that this run got or took from the cache.

    Others in the file may be of another endpoint's. The key of one that was archived since still stands here.

    Args:
        run_id: of the helm-run that made the result.
        wall_s: seconds that it took.
    """
    this_run: dict[str, _Tally] = defaultdict(_Tally)
    all_runs: dict[str, _Tally] = defaultdict(_Tally)
    run_ids = set()
    used: set[str] = set()
    adjusted: dict[str, set[str]] = defaultdict(set)
    for attempt in journal.read_attempts(plan.rundir.cache_db):
        run_ids.add(attempt["run_id"])
        all_runs[attempt["role"]].add(attempt)
        if attempt["outcome"] == AttemptState.ANSWERED and attempt["error"]:
            adjusted[attempt["key"]].update(attempt["error"].split("; "))
        if attempt["run_id"] == run_id:
            this_run[attempt["role"]].add(attempt)
            if attempt["outcome"] in (AttemptState.ANSWERED, AttemptState.CACHED):
                used.add(attempt["key"])
    costs, hosted = tally_costs(plan.rundir.cache_db, table_prices(plan)), hosted_roles(plan)
    unpriced = dict.fromkeys(role for (_, role), tally in sorted(costs.items()) if tally.unpriced and role in hosted)
    cost_unknown = "; ".join(f"{role}: {unknown_price(hosted[role])}" for role in unpriced) or None
    asked = [endpoint.role for endpoint in plan.endpoints]
    spent = _spent_by_role(this_run, costs, run_id, asked), _spent_by_role(all_runs, costs, None, asked)
    changes = sorted({how for key in used for how in adjusted[key]})
    return Usage(*spent, len(run_ids), wall_s, cost_unknown=cost_unknown), changes, used


def _spent_by_role(
    tallies: Mapping[str, _Tally], costs: Mapping[RunAndRole, CostTally], run_id: str | None, asked: Sequence[str]
) -> SpentByRole:
    """The model and its judges in the order of the plan, then others by name."""
    known = dict.fromkeys((*asked, *sorted(tallies, key=lambda role: (role != MODEL_ROLE, role))))
    roles = {role: _spent([tallies[role]], chosen_cost(costs, run_id, role)) for role in known if role in tallies}
    return SpentByRole(_spent(list(tallies.values()), chosen_cost(costs, run_id, None)), roles)


def _spent(parts: Sequence[_Tally], cost: Cost | None) -> Spent:
    tokens = [counted for tally in parts for counted in tally.tokens]
    latencies = [latency for tally in parts for latency in tally.latencies]
    return Spent(
        requests=sum(tally.requests for tally in parts),
        cached=sum(tally.cached for tally in parts),
        retries=sum(tally.retries for tally in parts),
        prompt_tokens=_sum_known(prompt for prompt, _ in tokens),
        completion_tokens=_sum_known(completion for _, completion in tokens),
        latency_p50_s=percentile(latencies, 0.50),
        latency_p95_s=percentile(latencies, 0.95),
        cost=cost,
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    """0 of no answer; None where there were answers and the endpoint counted none."""
    counts = list(values)
    known = [value for value in counts if value is not None]
    return sum(known) if known or not counts else None


def response_statistics(cache_db: Path) -> ResponseStatistics:
    """Of all runs in the folder; judges are no part of it, as they are none of what EvalFactory counts."""
    spans: dict[str, tuple[float, float]] = {}
    codes: Counter[int] = Counter()
    latencies: list[float] = []
    tokens: list[tuple[int | None, int | None]] = []
    for attempt in journal.read_attempts(cache_db):
        if attempt["role"] != MODEL_ROLE or attempt["outcome"] not in _ENDED:
            continue
        started, ended = attempt["started"], attempt["started"] + attempt["latency_s"]
        first, last = spans.get(attempt["run_id"], (started, ended))
        spans[attempt["run_id"]] = (min(first, started), max(last, ended))
        if attempt["status"] is None:  # nothing came back
            continue
        codes[attempt["status"]] += 1
        latencies.append(attempt["latency_s"])
        if attempt["outcome"] == AttemptState.ANSWERED:
            tokens.append((attempt["prompt_tokens"], attempt["completion_tokens"]))
    return ResponseStatistics(
        responses=codes.total(),
        successful=len(tokens),
        prompt_tokens=_figures(prompt for prompt, _ in tokens),
        completion_tokens=_figures(completion for _, completion in tokens),
        total_tokens=_figures(one + other for one, other in tokens if one is not None and other is not None),
        latency_s=_figures(latencies),
        status_codes=dict(sorted(codes.items())),
        finish_reasons=journal.finish_reasons(cache_db, MODEL_ROLE),
        runs=tuple(sorted(spans.values())),
    )


def _figures(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    return (sum(known) / len(known), max(known)) if known else (None, None)
