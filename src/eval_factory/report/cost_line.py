"""What a result cost, in one line."""

from __future__ import annotations

from eval_factory.core.budget import Cost
from eval_factory.core.results import Usage

DIGITS = 4
"""Significant digits of an amount below a dollar; cents of one above."""


def cost_line(usage: Usage) -> str | None:
    """Of this run, and of all runs where there are others; None where there is nothing to say."""
    now, ever = usage.this_run.total.cost, usage.all_runs.total.cost
    if ever is None:
        return None if usage.cost_unknown is None else f"Cost: not known ({usage.cost_unknown})"
    parts = [f"{amount(now)} in this run"] if now is not None else []
    if now is None or usage.runs > 1:
        parts.append(f"{amount(ever)} in all runs")
    line = f"Cost: {', '.join(parts)} ({ever.source})"
    if not ever.unpriced_requests:
        return line
    why = f" ({usage.cost_unknown})" if usage.cost_unknown is not None else ""
    return f"{line}; without the {ever.unpriced_requests} answers whose cost is not known{why}"


def amount(cost: Cost) -> str:
    return money(cost.value)


def money(dollars: float) -> str:
    """0.01234 USD, 12.34 USD."""
    shown = f"{dollars:,.2f}" if dollars >= 1 else f"{dollars:.{DIGITS}g}"
    return f"{shown} USD"
