"""What an evaluation used, from the journal of attempts: requests, tokens, times, costs, figures of the responses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any

from eval_factory.core.budget import BY_ENDPOINT, Cost, Price
from eval_factory.core.nouns import AttemptState
from eval_factory.core.paid_answers import cost_of, read_paid, read_prices
from eval_factory.core.results import MODEL_ROLE, ResponseStatistics, Spent, SpentByRole, Usage
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


def with_costs(usage: Usage, plan: Plan, run_id: str) -> Usage:
    """The same with what answers cost, as far as it is known, and with the judges in the order of the plan."""
    costs = tally_costs(plan.rundir.cache_db, table_prices(plan))
    hosted = hosted_roles(plan)
    asked = [endpoint.role for endpoint in plan.endpoints]
    unpriced = dict.fromkeys(role for (_, role), tally in sorted(costs.items()) if tally.unpriced and role in hosted)
    return replace(
        usage,
        this_run=_priced(usage.this_run, costs, run_id, asked),
        all_runs=_priced(usage.all_runs, costs, None, asked),
        cost_unknown="; ".join(f"{role}: {unknown_price(hosted[role])}" for role in unpriced) or None,
    )


def _priced(
    spent: SpentByRole, costs: Mapping[RunAndRole, CostTally], run_id: str | None, asked: Sequence[str]
) -> SpentByRole:
    order = [role for role in (*asked, *spent.roles) if role in spent.roles]
    roles = {role: replace(spent.roles[role], cost=chosen_cost(costs, run_id, role)) for role in order}
    return SpentByRole(replace(spent.total, cost=chosen_cost(costs, run_id, None)), roles)


def usage_of(cache_db: Path, run_id: str, wall_s: float) -> tuple[Usage, list[str]]:
    """The usage, and how requests were changed so that the endpoint took them, in the run that paid for them.

    Args:
        run_id: of the helm-run that made the result.
        wall_s: seconds that it took.
    """
    this_run: dict[str, _Tally] = defaultdict(_Tally)
    all_runs: dict[str, _Tally] = defaultdict(_Tally)
    run_ids, used = set(), set()
    adjusted: dict[str, set[str]] = defaultdict(set)
    for attempt in journal.read_attempts(cache_db):
        run_ids.add(attempt["run_id"])
        all_runs[attempt["role"]].add(attempt)
        if attempt["outcome"] == AttemptState.ANSWERED and attempt["error"]:
            adjusted[attempt["key"]].update(attempt["error"].split("; "))
        if attempt["run_id"] == run_id:
            this_run[attempt["role"]].add(attempt)
            if attempt["outcome"] in (AttemptState.ANSWERED, AttemptState.CACHED):
                used.add(attempt["key"])
    usage = Usage(_spent_by_role(this_run), _spent_by_role(all_runs), len(run_ids), wall_s)
    return usage, sorted({how for key in used for how in adjusted[key]})


def _spent_by_role(tallies: Mapping[str, _Tally]) -> SpentByRole:
    roles = sorted(tallies, key=lambda role: (role != MODEL_ROLE, role))
    return SpentByRole(_spent(tallies.values()), {role: _spent([tallies[role]]) for role in roles})


def _spent(tallies: Iterable[_Tally]) -> Spent:
    parts = list(tallies)
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
