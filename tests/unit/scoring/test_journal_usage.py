"""Tests of what an evaluation used and cost, and figures of the responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.budget import Cost, Price
from eval_factory.core.results import Spent, Usage
from eval_factory.endpoint.paid_answers import write_prices
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.scoring.journal import response_statistics, usage_of
from facts import says

THEN = Price(1.0, 0.0, source="genai-prices 1")
LATER = Price(2.0, 0.0, source="genai-prices 2")
TABLE = Price(5.0, 0.0)
MILLION = 1_000_000


def answered(cache_db: Path, run: str, role: str, number: int, **usage: Any) -> None:
    key = f"{run}{role}{number}"
    tokens = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    answer = Answer(key, role, "m", {}, {"usage": usage}, float(number), 0.1)
    with closing(ResponseCache(cache_db, run)) as cache:
        cache.save(
            answer, Attempt(key, role, 1, "answered", 200, None, float(number), 0.1, *tokens)
        )


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache.db"
    tokens = {"prompt_tokens": MILLION, "completion_tokens": 1}
    answered(path, "old", "model", 1, **tokens)
    answered(path, "new", "model", 2, **tokens)
    answered(path, "new", "model", 3, **tokens, cost=0.25)
    answered(path, "new", "gpt", 4, **tokens)
    answered(path, "new", "gpt", 5, cost=0.5)
    write_prices(path, "old", {"model": THEN})
    write_prices(path, "new", {"model": LATER})
    return path


def used(cache_db: Path, run: str) -> Usage:
    return usage_of(plan({"config.output_dir": str(cache_db.parent)}), run, 1.0)[0]


def test_the_price_is_that_of_the_run_that_paid(tmp_path: Path) -> None:
    path = folder(tmp_path)
    old = used(path, "old").this_run
    new = used(path, "new")
    assert (
        old.total.cost == old.roles["model"].cost == Cost(1.0, "genai-prices 1", 1, 0, price=THEN)
    )
    cost = Cost(2.25, "endpoint, genai-prices 2", 2, 0, price=LATER)
    assert new.this_run.roles["model"].cost == cost
    assert new.this_run.roles["gpt"].cost == Cost(0.5, "endpoint", 1, 1)
    every = Cost(3.75, "endpoint, genai-prices 1, genai-prices 2", 4, 1, price=None)
    assert new.all_runs.total.cost == every


def test_the_users_table_of_now_goes_before_the_price_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def price_in_user_table(_plan: Any, endpoint: Any, *, by_batch: bool) -> Price | None:
        assert not by_batch
        return TABLE if endpoint.role == "model" else None

    monkeypatch.setattr("eval_factory.scoring.journal.price_in_user_table", price_in_user_table)
    found = used(folder(tmp_path), "old")
    assert found.this_run.roles["model"].cost == Cost(5.0, "table", 1, 0, price=TABLE)
    assert found.all_runs.roles["model"].cost == Cost(10.25, "endpoint, table", 3, 0, price=TABLE)
    other = tmp_path / "other" / "cache.db"
    other.parent.mkdir()
    answered(other, "new", "model", 1, cost=0.25)
    uncounted = used(other, "new").all_runs.total.cost
    assert uncounted == Cost(0.25, "endpoint", 1, 0), "a price that was not counted by is not named"


def test_the_table_halves_what_came_by_batch_alone(tmp_path: Path) -> None:
    row = {"model_id": "org/model", "input_per_million": 4, "output_per_million": 0}
    table = {"config.params.extra.prices": [{**row, "batch_discount": 0.5}]}
    here = plan({"config.output_dir": str(tmp_path), **table})
    path = folder(tmp_path)
    write_prices(path, "new", {"model": replace(LATER, source="genai-prices 2, by batch")})
    usage, _, _ = usage_of(here, "new", 1.0)
    by_batch = usage.this_run.roles["model"].cost
    assert by_batch is not None
    assert by_batch.value == pytest.approx(2.25), "one answer says 0.25 of itself"
    all_runs = usage.all_runs.roles["model"].cost
    assert all_runs is not None
    assert all_runs.value == pytest.approx(6.25), "the old run's came at the usual price"


def test_a_result_has_its_costs_by_run_and_role(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path)})
    folder(tmp_path)
    usage, _, _ = usage_of(here, "new", 1.0)
    assert usage.this_run.total.cost == Cost(2.75, "endpoint, genai-prices 2", 3, 1, price=LATER)
    assert usage.this_run.roles["gpt"].cost == Cost(0.5, "endpoint", 1, 1)
    every = Cost(3.25, "endpoint, genai-prices 1, genai-prices 2", 3, 0, price=None)
    assert usage.all_runs.roles["model"].cost == every
    assert usage.cost_unknown is None  # the judge is none of this plan
    answered(here.rundir.cache_db, "new", "model", 6)
    usage, _, _ = usage_of(here, "new", 1.0)
    says(str(usage.cost_unknown), "model: no price", "org/model at host.example")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Attempts, as cache.db gives them."""
    attempts: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "eval_factory.scoring.journal.read_attempts",
        lambda path: attempts if path == plan().rundir.cache_db else None,
    )
    return attempts


def attempt(outcome: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    usual = {
        "run_id": "this",
        "key": key,
        "role": "model",
        "outcome": outcome,
        "error": None,
        "latency_s": 1.0,
        "prompt_tokens": 10,
        "completion_tokens": 2,
    }
    return {**usual, **changes}


def total(journal: list[dict[str, Any]], *attempts: dict[str, Any]) -> Spent:
    journal[:] = attempts
    usage, _, _ = usage_of(plan(), "this", 3.5)
    assert usage.wall_s == 3.5
    return usage.this_run.total


def test_each_outcome_counts_in_its_place(journal: list[dict[str, Any]]) -> None:
    """What came from the cache was not sent; of an answer that was given up nothing is sent either. A refused field was."""
    outcomes = (
        ["answered"] * 4
        + ["retried"] * 2
        + ["failed"]
        + ["cached"] * 3
        + ["unusable", "unscorable", "refused"]
    )
    spent = total(journal, *map(attempt, outcomes))
    assert (spent.requests, spent.cached, spent.retries) == (8, 3, 2)
    assert (spent.prompt_tokens, spent.completion_tokens) == (40, 8)


def test_tokens_and_latencies_are_of_answers_that_were_paid_for(
    journal: list[dict[str, Any]],
) -> None:
    answers = [attempt("answered", latency_s=seconds) for seconds in (1.0, 2.0, 3.0)]
    spent = total(
        journal, *answers, attempt("cached", latency_s=90.0), attempt("failed", latency_s=90.0)
    )
    assert (spent.latency_p50_s, spent.latency_p95_s, spent.prompt_tokens) == (2.0, 3.0, 30)
    without = total(journal, attempt("failed"))
    assert (without.latency_p50_s, without.latency_p95_s, without.prompt_tokens) == (None, None, 0)


def test_tokens_are_unknown_where_the_endpoint_never_counted(journal: list[dict[str, Any]]) -> None:
    sums: dict[tuple[int | None, ...], int | None] = {
        (): 0,
        (None,): None,
        (None, None): None,
        (None, 3): 3,
        (0,): 0,
        (2, 3): 5,
    }
    for counts, expected in sums.items():
        spent = total(
            journal,
            *(attempt("answered", prompt_tokens=count, completion_tokens=7) for count in counts),
        )
        assert (spent.prompt_tokens, spent.completion_tokens) == (expected, 7 * len(counts))


def test_this_run_is_told_apart_from_all_runs(journal: list[dict[str, Any]]) -> None:
    journal[:] = [
        attempt("answered", run_id="first"),
        attempt("answered", run_id="second"),
        attempt("cached"),
    ]
    usage, _, _ = usage_of(plan(), "this", 1.0)
    here = usage.this_run.total
    every = usage.all_runs.total
    assert (usage.runs, here.requests, every.requests, here.cached, every.cached) == (3, 0, 2, 1, 1)


def test_roles_are_the_model_and_then_the_judges_by_name(journal: list[dict[str, Any]]) -> None:
    journal[:] = [attempt("answered", role=role) for role in ("zeta", "alpha", "model", "alpha")]
    usage, _, _ = usage_of(plan(), "this", 1.0)
    requests = [(role, spent.requests) for role, spent in usage.this_run.roles.items()]
    assert (requests, usage.this_run.total.requests) == (
        [("model", 1), ("alpha", 2), ("zeta", 1)],
        4,
    )


def test_changes_of_requests_are_told_of_those_that_this_run_used(
    journal: list[dict[str, Any]],
) -> None:
    """Also where an earlier run paid for the answer; not those of a retry, whose error is another."""
    journal[:] = [
        attempt(
            "answered",
            "a",
            run_id="first",
            error="without top_p; max_tokens as max_completion_tokens",
        ),
        attempt("answered", "b", run_id="first", error="without stop"),
        attempt("answered", "c", run_id="first", error="without seed"),
        attempt("retried", "d", error="HTTP 500"),
        attempt("answered", "d"),
        attempt("cached", "a"),
        attempt("failed", "b"),
        attempt("answered", "e", error="without top_p"),
    ]
    _, changes, _ = usage_of(plan(), "this", 1.0)
    assert changes == ["max_tokens as max_completion_tokens", "without top_p"]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    with closing(ResponseCache(tmp_path / "cache.db", "first")) as made:
        yield made


def journalled(
    outcome: str = "answered",
    status: int | None = 200,
    tokens: tuple[int | None, int | None] = (10, 2),
    **changes: Any,
) -> Attempt:
    made = Attempt("k", "model", 1, outcome, status, None, 100.0, 1.0, *tokens)
    return replace(made, **changes)


def test_responses_are_what_came_back_and_answers_are_successful(cache: ResponseCache) -> None:
    for one in (
        journalled(tokens=(10, 2), latency_s=1.0),
        journalled(tokens=(20, 6), latency_s=2.0),
        journalled("retried", 429, tokens=(None, None), latency_s=6.0),
        journalled("retried", None, tokens=(None, None), latency_s=90.0),  # nobody answered
        journalled("failed", 500, tokens=(None, None), latency_s=3.0),
        journalled("cached", None, latency_s=70.0),
        journalled("unusable", None, latency_s=70.0),
        journalled(role="gpt", tokens=(500, 500), latency_s=80.0),
    ):
        cache.journal(one)
    found = response_statistics(cache.path)
    assert (found.responses, found.successful, found.status_codes) == (
        4,
        2,
        {200: 2, 429: 1, 500: 1},
    )
    assert (found.latency_s, found.prompt_tokens) == ((3.0, 6.0), (15.0, 20))
    assert (found.completion_tokens, found.total_tokens) == ((4.0, 6), (19.0, 26))


def test_tokens_that_nobody_counted_are_no_zeros(cache: ResponseCache) -> None:
    for tokens in ((10, None), (None, 4)):
        cache.journal(journalled(tokens=tokens))
    found = response_statistics(cache.path)
    assert (found.prompt_tokens, found.completion_tokens) == ((10.0, 10), (4.0, 4))
    assert (found.total_tokens, found.successful) == ((None, None), 2)


def test_a_run_lasts_from_its_first_request_to_its_last_response(
    cache: ResponseCache, tmp_path: Path
) -> None:
    for started, latency in ((105.0, 1.0), (100.0, 9.0), (104.0, 2.0)):
        cache.journal(journalled(started=started, latency_s=latency))
    cache.journal(journalled(started=50.0, latency_s=500.0, role="gpt"))
    cache.journal(journalled("cached", None, started=20.0))
    with closing(ResponseCache(cache.path, "second")) as second:
        second.journal(journalled("failed", None, started=60.0, latency_s=3.0))
    found = response_statistics(cache.path)
    assert found.runs == ((60.0, 63.0), (100.0, 109.0))


def test_finish_reasons_are_of_the_models_answers(cache: ResponseCache) -> None:
    bodies: list[Any] = [
        {"choices": [{"finish_reason": one}]} for one in ("stop", "MAX_TOKENS", "STOP", None)
    ]
    for number, body in enumerate([*bodies, {"choices": []}, "no JSON {"]):
        cache.save(Answer(f"k{number}", "model", "m", {}, body, 1.0, 1.0), journalled())
    cache.save(Answer("judge", "gpt", "m", {}, bodies[0], 1.0, 1.0), journalled(role="gpt"))
    assert response_statistics(cache.path).finish_reasons == {"stop": 2, "length": 1}
