"""A run that came to a limit of its own: what was used, what is missing, how it goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.core import events as event_names
from eval_factory.core.budget import MAX_COST, MAX_WALL, Budget, Spending
from eval_factory.core.errors import NotReportableError
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.prices import budget_of, prices_of
from eval_factory.plan.run_plan import Plan

Events = Sequence[Mapping[str, Any]]


def raise_if_limit_reached(plan: Plan, events: Events, log: logging.Logger) -> None:
    """
    Raises:
        NotReportableError: a limit was reached, and something is missing.
    """
    reached = next((event for event in events if event["event"] == event_names.LIMIT_REACHED), None)
    if reached is None:
        return
    spent = spent_so_far(plan.rundir.cache_db, prices_of(plan).known)
    lacking = "; ".join(missing(events, reached["answered"]))
    lines = [
        used(reached["limit"], budget_of(plan), spent, countable=reached["countable"]),
        f"  {lacking}; no score is written, every answer is kept",
        f"  {how_to_go_on(reached['limit'], countable=reached['countable'])}",
    ]
    message = "\n".join(lines)
    log.error(message)
    raise NotReportableError(message)


def used(limit: str, budget: Budget, spent: Spending, *, countable: bool) -> str:
    """Which limit, and what this folder has taken in all its runs."""
    most = getattr(budget, limit)
    if not countable:
        what = "cost" if limit == MAX_COST else "tokens"
        first = f"stopped: {limit} ({most:g}) cannot be held, for an answer came whose {what} nobody knows"
    else:
        first = f"stopped: {limit} ({most:g}) is reached" if most is not None else f"stopped: {limit} is reached"
    cost = f", {spent.cost:.4f} USD" if spent.cost or (limit == MAX_COST and countable) else ""
    return f"{first}; sent so far: {spent.requests} requests, {spent.tokens} tokens{cost}"


def missing(events: Events, answered: Mapping[str, int]) -> list[str]:
    """How many of the instances are answered, and how far the judges came. `answered`: by role."""
    phases = [event for event in events if event["event"] == event_names.PHASE]
    totals = {event["phase"]: event["total"] for event in phases if "total" in event}
    lines = [f"{answered.get(MODEL_ROLE, 0)} of {totals.get(event_names.ASKING, 0)} instances are answered"]
    if event_names.JUDGING in totals:
        of = totals[event_names.JUDGING]
        judges = [f"{role} {count}" for role, count in sorted(answered.items()) if role != MODEL_ROLE]
        lines.append(f"of {of} answers the judges saw: {', '.join(judges) or 'none'}")
    return lines


def how_to_go_on(limit: str, *, countable: bool) -> str:
    """The next step."""
    if limit == MAX_WALL:
        return f"run the same command again, or raise {limit} where it is too short to begin: only the rest is asked"
    if not countable:
        return f"leave out {limit}, or count by max_requests, and run the same command again: only the rest is asked"
    return f"raise {limit} and run the same command again: only the rest is asked"
