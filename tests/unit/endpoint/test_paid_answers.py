"""Tests of what kept answers cost, and what an output folder has spent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Price, Spending
from eval_factory.endpoint import paid_answers
from eval_factory.endpoint.paid_answers import (
    cost_for_limit,
    cost_of,
    read_paid_answers,
    spent_so_far,
    write_prices,
)
from eval_factory.endpoint.response_cache import (
    Answer,
    Attempt,
    ResponseCache,
    read_origin,
    write_origin,
)

PRICE = Price(1.0, 10.0, 0.5)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    kept = ResponseCache(tmp_path / "cache.db", "run")
    yield kept
    kept.close()


def save(
    cache: ResponseCache, key: str, usage: Any, *, role: str = "model", started: float = 1.25
) -> None:
    tokens = (
        (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if isinstance(usage, dict)
        else (None, None)
    )
    cache.save(
        Answer(key, role, "m", {}, {"usage": usage}, started, 0.1),
        Attempt(key, role, 1, "answered", 200, None, started, 0.1, *tokens),
    )


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 1}, 1.0),
        ({"cost": 0}, 0.0),
        ({"cost": True}, None),
        ({"cost": -1}, None),
        ({"cost": "0.25"}, None),
        ({"cost": {"total_cost": 1}}, None),
        ({"cost": float("inf")}, None),
        ({}, None),
        (None, None),
        ([], None),
        ({"cost": float("nan")}, None),
        ({"cost": 10**400}, None),
        ({"cost": 1e308}, None),
        ({"cost": 1_000_000}, 1e6),
        ({"cost": 1_000_001}, None),
    ],
)
def test_an_answer_may_say_what_it_cost(usage: Any, told: float | None) -> None:
    assert paid_answers.stated_cost(usage) == told


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
        ({"prompt_tokens_details": {"cached_tokens": -7}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": True}}, 0),
        ({"prompt_tokens_details": None}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_an_answer_may_say_what_of_its_prompt_was_cached(usage: Any, cached: int) -> None:
    assert paid_answers.tokens_from_cache(usage) == cached


@pytest.mark.parametrize(
    ("usage", "tokens", "price", "cost"),
    [
        ({"cost": 0.25}, (1000, 100), PRICE, (0.25, "endpoint")),
        ({"cost": 0.25}, (None, None), None, (0.25, "endpoint")),
        ({}, (1000, 100), PRICE, (0.002, "table")),
        ({"prompt_tokens_details": {"cached_tokens": 1000}}, (1000, 0), PRICE, (0.0005, "table")),
        ({}, (1, 1), None, None),
        ({}, (None, 1), PRICE, None),
        ({}, (1, None), PRICE, None),  # what nobody knows is not 0
    ],
)
def test_what_the_answer_says_goes_before_any_price(
    usage: Any, tokens: Any, price: Price | None, cost: Any
) -> None:
    assert cost_of(usage, tokens, price) == cost


@pytest.mark.parametrize(
    ("counted", "sizes", "tokens"),
    [
        ((3, 5), (12, 20), (3, 5)),
        ((None, None), (12, 21), (3, 6)),
        ((0, 0), (0, 0), (0, 0)),
        ((0, 7), (9, 0), (3, 7)),
        ((25, 24), (400, 400), (25, 100)),
        ((900, 1), (4, 4), (900, 1)),
    ],
)
def test_a_limit_counts_an_estimate_where_tokens_are_missing_or_too_few(
    counted: tuple[int | None, int | None], sizes: tuple[int, int], tokens: tuple[int, int]
) -> None:
    assert paid_answers.tokens_for_limit(counted, sizes) == tokens


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        ({"cost": 0}, PRICE, 0.002),
        ({"cost": 1e-300}, PRICE, 0.002),
        ({"cost": 0.25}, PRICE, 0.25),
        (None, PRICE, 0.002),
        ({"cost": 0.25}, None, 0.25),
        ({}, None, None),
    ],
)
def test_a_limit_counts_the_larger_of_what_is_said_and_the_price(
    usage: Any, price: Price | None, cost: Any
) -> None:
    assert cost_for_limit(usage, (1000, 100), price) == cost


def test_what_was_kept_is_counted_as_it_was_when_it_came(cache: ResponseCache) -> None:
    thought = {"message": {"content": "é" * 200, "reasoning_content": "a" * 40}}
    kept: list[Any] = [
        ({"prompt": "a" * 400}, [thought]),
        ({"messages": ["a" * 396]}, [{"text": "b" * 440}]),
    ]
    for number, (request, choices) in enumerate(kept):
        reply = {"choices": choices, "usage": {"cost": 0, "prompt_tokens": 0}}
        answer = Answer(str(number), "model", "m", request, reply, float(number), 0.1)
        cache.save(
            answer,
            Attempt(str(number), "model", 1, "answered", 200, None, float(number), 0.1, 0, None),
        )
    assert [one.sizes for one in read_paid_answers(cache.path, with_sizes=True)] == [
        (400, 440),
        (400, 440),
    ]
    spent = spent_so_far(cache.path, {"model": PRICE})
    assert spent.tokens == 420
    assert spent.cost == pytest.approx(2 * (100 * 1.0 + 110 * 10.0) / 1e6)


def test_an_answer_that_was_set_aside_was_paid_for_too(cache: ResponseCache) -> None:
    save(cache, "a", {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.5}, started=0.1)
    cache.archive_answer("a", Attempt("a", "model", 0, "unusable", None, "no JSON", 2.0, 0.0))
    save(cache, "a", {"prompt_tokens": 3, "completion_tokens": 5, "cost": 0.75}, started=3.3)
    save(cache, "b", "no usage", role="gpt")
    cache.journal(Attempt("b", "gpt", 0, "cached", None, None, 4.0, 0.0, 3, 4))
    paid = list(read_paid_answers(cache.path, with_sizes=True))
    assert [(one.role, paid_answers.stated_cost(one.usage), one.tokens) for one in paid] == [
        ("model", 0.5, (3, 4)),
        ("model", 0.75, (3, 5)),
        ("gpt", None, (None, None)),
    ]


def test_prices_are_kept_with_the_run_that_paid_them(cache: ResponseCache) -> None:
    assert paid_answers.read_prices(cache.path) == {}
    write_prices(cache.path, "one", {})
    assert paid_answers.read_prices(cache.path) == {}
    other = Price(3.0, 4.0, source="genai-prices 9")
    write_prices(cache.path, "one", {"model": PRICE})
    write_prices(cache.path, "two", {"model": other})
    assert paid_answers.read_prices(cache.path) == {
        ("one", "model"): PRICE,
        ("two", "model"): other,
    }


def test_a_folder_has_spent_what_all_its_runs_did(cache: ResponseCache) -> None:
    assert spent_so_far(cache.path, {}) == Spending()
    save(cache, "a", {"prompt_tokens": 100, "completion_tokens": 10})
    save(cache, "b", {"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.5}, role="gpt")
    save(cache, "c", {"prompt_tokens": 100}, role="gpt")
    for outcome in ("retried", "failed", "refused", "cached", "unusable", "unscorable"):
        cache.journal(Attempt("d", "model", 1, outcome, None, None, 5.0, 0.0, 7, 7))
    of_library = Price(1.0, 10.0, source="genai-prices 9")
    dear = Price(10.0, 100.0)
    assert spent_so_far(cache.path, {}) == Spending(6, 320, 0.5)
    assert spent_so_far(cache.path, {"model": of_library}) == Spending(6, 320, 0.5002)
    write_prices(cache.path, "run", {"model": dear})  # what held when it was asked
    assert spent_so_far(cache.path, {"model": of_library}).cost == pytest.approx(0.502)
    assert spent_so_far(cache.path, {}).cost == pytest.approx(0.502)
    # but for the user's own table of now, as in the result: a limit and the cost that is shown are of the same money
    assert spent_so_far(cache.path, {"model": PRICE}).cost == pytest.approx(0.5002)


def test_answers_that_were_copied_are_none_that_this_folder_paid(cache: ResponseCache) -> None:
    save(cache, "a", {"prompt_tokens": 100, "completion_tokens": 10})
    write_origin(cache.path, "v1-x", "then")
    save(cache, "b", {"prompt_tokens": 7, "completion_tokens": 3}, role="gpt")
    assert (spent_so_far(cache.path, {}), read_origin(cache.path) is None) == (
        Spending(1, 10),
        False,
    )
    save(cache, "c", {"prompt_tokens": 1, "completion_tokens": 1})
    assert read_origin(cache.path) is None, "the model was asked in this folder"
    assert spent_so_far(cache.path, {}) == Spending(2, 12), "the copied answers stay free"


def test_a_folder_without_answers_has_spent_nothing(tmp_path: Path) -> None:
    assert spent_so_far(tmp_path / "none.db", {}) == Spending()
    assert list(read_paid_answers(tmp_path / "none.db")) == []
    assert not (tmp_path / "none.db").exists()


def test_a_body_that_is_no_json_has_no_usage(cache: ResponseCache) -> None:
    save(cache, "a", {"prompt_tokens": 1, "completion_tokens": 1})
    with sqlite3.connect(cache.path) as connection:
        connection.execute("UPDATE responses SET response = '{', request = '{'")
    connection.close()
    assert [one.usage for one in read_paid_answers(cache.path)] == [None]
