"""Sums of what may not be known, limits that will be reached, and the words for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from eval_factory.core.budget import Budget
from eval_factory.workflows.estimate import beyond, figures_in_words, lines_beyond, sum_or_none


@dataclass(frozen=True)
class Figures:
    requests: float | None = 40
    tokens: float | None = 2000.0
    cost: float | None = 0.5
    hours: float | None = 0.5


def test_a_sum_with_an_unknown_part_is_not_known() -> None:
    assert sum_or_none([1.5, 2.0]) == 3.5
    assert sum_or_none([]) == 0.0
    assert sum_or_none([1.5, None]) is None
    assert sum_or_none([0.0, 0.0]) == 0.0


@pytest.mark.parametrize(
    ("limit", "needed"),
    [("max_cost", 0.5), ("max_requests", 40), ("max_tokens_total", 2000.0), ("max_wall_s", 1800.0)],
)
def test_a_limit_is_reached_by_more_than_it_allows(limit: str, needed: Any) -> None:
    assert beyond(Budget(**{limit: needed}), Figures()) == {}
    below = Budget(**{limit: needed / 2})
    assert beyond(below, Figures()) == {limit: needed}
    assert lines_beyond(below, Figures()) == [f"  {limit} ({needed / 2:g}) will be reached before the end"]


def test_nothing_is_said_of_what_nobody_knows_or_limits() -> None:
    everything = Budget(max_cost=0.1, max_requests=1, max_tokens_total=1, max_wall_s=1.0)
    assert beyond(everything, Figures(None, None, None, None)) == {}
    assert beyond(Budget(), Figures()) == {}
    assert list(beyond(everything, Figures())) == ["max_cost", "max_requests", "max_tokens_total", "max_wall_s"]


def test_words() -> None:
    assert figures_in_words(Figures(cost=None)) == "40 requests, 2,000 tokens, unknown cost, 30.0 min"
    assert figures_in_words(Figures(None, None, None, None)) == (
        "unknown requests, unknown tokens, unknown cost, unknown time"
    )
    assert figures_in_words(Figures(hours=1.0)).endswith(", 1.0 h")
    assert "0.5" in figures_in_words(Figures())
