"""Tests of budgets, of the spending that they limit, and of prices."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest

from eval_factory.core.budget import (
    Budget,
    LongPrompts,
    Price,
    Spending,
    SpendingTracker,
    SpendingTrackers,
)


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(max_requests=3), Spending(requests=3)),
        (Budget(max_tokens_total=100), Spending(tokens=100)),
        (Budget(max_cost=0.5), Spending(cost=0.5)),
    ],
)
def test_nothing_more_is_sent_once_a_limit_is_reached(budget: Budget, spent: Spending) -> None:
    tracker = SpendingTracker(budget, spent)
    (limit,) = (name for name, value in vars(budget).items() if value is not None)
    assert tracker.begin() == limit
    assert tracker.spent == spent


def test_a_request_is_counted_when_it_is_sent_and_what_it_took_when_its_answer_comes() -> None:
    tracker = SpendingTracker(Budget(max_tokens_total=100, max_cost=1.0), Spending(1, 10, 0.25))
    assert tracker.begin() is None
    tracker.spend(tokens=60, cost=0.25)
    assert tracker.spent == Spending(2, 70, 0.5)
    assert tracker.begin() is None
    tracker.spend(tokens=30, cost=0.125)
    assert tracker.begin() == "max_tokens_total"


def test_a_budget_names_its_limits_and_the_one_that_is_used_up() -> None:
    budget = Budget(max_requests=3, max_wall_s=9.0)
    assert (bool(Budget()), bool(budget)) == (False, True)
    assert budget.stated_limits == {"max_requests": 3, "max_wall_s": 9.0}
    spent = Spending(requests=2, tokens=10**6, cost=10.0**6)
    assert budget.find_reached_limit(spent.by_limit(8.9)) is None
    assert budget.find_reached_limit(spent.by_limit(9.0)) == "max_wall_s"
    assert budget.find_reached_limit(Spending(requests=3).by_limit(9.0)) == "max_requests"


def test_threads_together_send_no_request_too_many() -> None:
    tracker = SpendingTracker(Budget(max_requests=50))
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda _: tracker.begin(), range(200)))
    assert begun.count(None) == 50
    assert tracker.spent.requests == 50


def test_every_budget_has_to_allow_a_request_and_is_told_what_it_took() -> None:
    own = SpendingTracker(Budget(max_requests=9))
    shared = SpendingTracker(Budget(max_requests=1))
    both = SpendingTrackers([own, shared])
    assert both.begin() is None
    both.spend(tokens=5, cost=0.5)
    assert own.spent == shared.spent == Spending(1, 5, 0.5)
    assert both.begin() == "max_requests"
    assert shared.spent.requests == 1


def test_the_time_of_one_invocation_is_a_limit_too() -> None:
    clock = iter([105.0, 110.0, 112.0, 105.0, 200.0])
    tracker = SpendingTracker(Budget(max_wall_s=10.0), began=100.0, clock=lambda: next(clock))
    assert tracker.begin() is None
    assert tracker.begin() == "max_wall_s"
    assert tracker.begin() == "max_wall_s"
    assert tracker.seconds_left == 5.0
    assert tracker.seconds_left == 0.0
    assert tracker.spent == Spending(requests=1)


FLAT = Price(2.0, 10.0)
CACHED = Price(2.0, 10.0, 0.5)
LONG = Price(
    2.0,
    10.0,
    0.5,
    "genai-prices 1",
    (LongPrompts(4.0, 20.0, 1.0, above=200), LongPrompts(8.0, 40.0, above=400)),
)


@pytest.mark.parametrize(
    ("price", "tokens", "dollars"),
    [
        (FLAT, (1_000_000, 0), 2.0),
        (FLAT, (0, 1_000_000), 10.0),
        (FLAT, (500_000, 100_000), 2.0),
        (FLAT, (0, 0), 0.0),
        (FLAT, (1_000_000, 0, 400_000), 2.0),
        (CACHED, (1_000_000, 0, 400_000), 1.4),
        (CACHED, (1_000_000, 0, 9_000_000), 0.5),
        (LONG, (200, 1), 0.00041),
        (LONG, (201, 1), 0.000824),
        (LONG, (400, 0), 0.0016),
        (LONG, (401, 0), 0.003208),
        (LONG, (300, 0, 100), 0.0009),
        (LONG, (500, 0, 100), 0.004),
    ],
)
def test_each_kind_of_token_has_its_rate(
    price: Price, tokens: tuple[int, ...], dollars: float
) -> None:
    assert price.cost_of(*tokens) == pytest.approx(dollars, rel=1e-12)


@pytest.mark.parametrize("price", [FLAT, CACHED, LONG])
def test_a_price_survives_being_kept(price: Price) -> None:
    """`as_written` leaves out the fields without a value."""
    assert Price.from_dict(json.loads(json.dumps(asdict(price)))) == price
    written = price.as_written()
    assert written.get("cached_input_per_million") == (None if price is FLAT else 0.5)
    assert (
        written["long_prompts"][0]["above"] if price is LONG else written.get("long_prompts", 200)
    ) == 200
    assert price is not FLAT or written == {
        "input_per_million": 2.0,
        "output_per_million": 10.0,
        "source": "table",
    }
