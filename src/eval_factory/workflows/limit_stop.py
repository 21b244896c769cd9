"""A run that came to a limit of its own: what was used, what is missing, how it goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.budget import MAX_COST, MAX_REQUESTS, MAX_TOKENS, MAX_WALL, Budget, Spending
from eval_factory.core.errors import NotReportableError
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.prices import budget_of, prices_of
from eval_factory.plan.run_plan import Plan

Events = Sequence[Mapping[str, Any]]


def raise_if_limit_reached(plan: Plan, events: Events, log: logging.Logger, *, shared: bool = False) -> None:
    """
    Args:
        shared: it ran within the limits of a suite.

    Raises:
        NotReportableError: a limit was reached, and something is missing.
    """
    reached = next((event for event in events if event["event"] == event_names.LIMIT_REACHED), None)
    if reached is None:
        return
    spent = spent_so_far(plan.rundir.cache_db, prices_of(plan).known)
    lacking = "; ".join(missing(events, reached["answered"]))
    limit, countable = reached["limit"], reached["countable"]
    of_suite = shared and countable and not own_is_used_up(limit, budget_of(plan), spent)
    lines = [
        used_of_suite(limit, spent) if of_suite else used(limit, budget_of(plan), spent, countable=countable),
        f"  {lacking}; no score is written, every answer is kept",
        f"  {how_to_go_on(limit, countable=countable, of_suite=of_suite)}",
    ]
    message = "\n".join(lines)
    log.error(message)
    raise NotReportableError(message)


def own_is_used_up(limit: str, budget: Budget, spent: Spending) -> bool:
    """Whether it is the run's own limit: a suite's is reached by all cells together, while each is below it."""
    most = getattr(budget, limit)
    taken = {MAX_COST: spent.cost, MAX_REQUESTS: spent.requests, MAX_TOKENS: spent.tokens}
    return most is not None and taken.get(limit, most) >= most


def used_of_suite(limit: str, spent: Spending) -> str:
    """What this cell has taken of a suite's limit, in all its runs."""
    return f"stopped: {limit} of the suite is reached; sent so far by this cell: {_taken(spent)}"


def used(limit: str, budget: Budget, spent: Spending, *, countable: bool) -> str:
    """Which limit, and what this folder has taken in all its runs."""
    most = getattr(budget, limit)
    if not countable:
        what = "cost" if limit == MAX_COST else "tokens"
        first = f"stopped: {limit} ({most:g}) cannot be held, for an answer came whose {what} nobody knows"
    else:
        first = f"stopped: {limit} ({most:g}) is reached" if most is not None else f"stopped: {limit} is reached"
    return f"{first}; sent so far: {_taken(spent, with_cost=limit == MAX_COST and countable)}"


def _taken(spent: Spending, *, with_cost: bool = False) -> str:
    cost = f", {spent.cost:.4f} USD" if spent.cost or with_cost else ""
    return f"{spent.requests} requests, {spent.tokens} tokens{cost}"


def missing(events: Events, answered: Mapping[str, int]) -> list[str]:
    """How many of the instances are answered, and how far the judges came. `answered`: by role."""
    phases = [event for event in events if event["event"] == event_names.PHASE]
    totals = {event["phase"]: event["total"] for event in phases if "total" in event}
    lines = [f"{answered.get(MODEL_ROLE, 0)} of {totals.get(event_names.ASKING, 0)} instances are answered"]
    if event_names.JUDGING in totals:
        of = totals[event_names.JUDGING]
        judges = [f"{role} {count}" for role, count in sorted(answered.items()) if role != MODEL_ROLE]
        lines.append(f"of {of} requests to judges are answered: {', '.join(judges) or 'none'}")
    return lines


def how_to_go_on(limit: str, *, countable: bool, of_suite: bool = False) -> str:
    """The next step."""
    if limit == MAX_WALL:
        return f"run the same command again, or raise {limit} where it is too short to begin: only the rest is asked"
    if not countable:
        return f"leave out {limit}, or count by max_requests, and run the same command again: only the rest is asked"
    whose = f"suite.{limit}" if of_suite else limit
    return f"raise {whose} and run the same command again: only the rest is asked"
