"""What an evaluation cost, from the journal of attempts: of the run that made the result, and of all runs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval_factory.core.results import MODEL_ROLE, Spent, SpentByRole, Usage
from eval_factory.endpoint import response_cache
from eval_factory.plan.prices import hosted_roles, table_prices, unknown_price
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.costs import CostTally, RunAndRole, chosen, tally_costs, why_unknown
from eval_factory.scoring.statistics import percentile

ANSWERED, CACHED, RETRIED, FAILED = "answered", "cached", "retried", "failed"
REFUSED = "refused"
"""Sent, and sent again at once: without a field, or with a new token; or none can be answered."""


@dataclass
class _Tally:
    """Attempts of one role."""

    requests: int = 0
    cached: int = 0
    retries: int = 0
    tokens: list[tuple[int | None, int | None]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def add(self, attempt: Mapping[str, Any]) -> None:
        outcome = attempt["outcome"]
        self.requests += outcome in (ANSWERED, RETRIED, FAILED, REFUSED)
        self.cached += outcome == CACHED
        self.retries += outcome == RETRIED
        if outcome == ANSWERED:
            self.tokens.append((attempt["prompt_tokens"], attempt["completion_tokens"]))
            self.latencies.append(attempt["latency_s"])


def with_costs(usage: Usage, plan: Plan, run_id: str) -> Usage:
    """The same with what answers cost, as far as it is known, and with the judges in the order of the plan."""
    costs = tally_costs(plan.rundir.cache_db, table_prices(plan))
    hosted = hosted_roles(plan)
    asked = [endpoint.role for endpoint in plan.endpoints]
    return replace(
        usage,
        this_run=_priced(usage.this_run, costs, run_id, asked),
        all_runs=_priced(usage.all_runs, costs, None, asked),
        cost_unknown=why_unknown(costs, lambda role: unknown_price(hosted[role]) if role in hosted else None),
    )


def _priced(
    spent: SpentByRole, costs: Mapping[RunAndRole, CostTally], run_id: str | None, asked: Sequence[str]
) -> SpentByRole:
    order = [role for role in (*asked, *spent.roles) if role in spent.roles]
    roles = {role: replace(spent.roles[role], cost=chosen(costs, run_id, role)) for role in order}
    return SpentByRole(replace(spent.total, cost=chosen(costs, run_id, None)), roles)


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
    for attempt in response_cache.read_attempts(cache_db):
        run_ids.add(attempt["run_id"])
        all_runs[attempt["role"]].add(attempt)
        if attempt["outcome"] == ANSWERED and attempt["error"]:
            adjusted[attempt["key"]].update(attempt["error"].split("; "))
        if attempt["run_id"] == run_id:
            this_run[attempt["role"]].add(attempt)
            if attempt["outcome"] in (ANSWERED, CACHED):
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
