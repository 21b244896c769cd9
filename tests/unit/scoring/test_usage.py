"""What an evaluation used and cost, and figures of the responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Cost, Price
from eval_factory.core.paid_answers import write_prices
from eval_factory.core.results import Figures, RequestSpan, Spent, SpentByRole, Usage
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.scoring.usage import chosen_cost, response_statistics, tally_costs, usage_of, why_unknown, with_costs
from unit.builders import plan

THEN = Price(1.0, 0.0, source="genai-prices 1")
TABLE = Price(5.0, 0.0)
MILLION = 1_000_000


def answered(cache_db: Path, run: str, role: str, number: int, **usage: Any) -> None:
    cache = ResponseCache(cache_db, run)
    key, tokens = f"{run}{role}{number}", (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    cache.save(
        Answer(key, role, "m", {}, {"usage": usage}, float(number), 0.1),
        Attempt(key, role, 1, "answered", 200, None, float(number), 0.1, *tokens),
    )
    cache.close()


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache.db"
    tokens = {"prompt_tokens": MILLION, "completion_tokens": 1}
    answered(path, "old", "model", 1, **tokens)
    answered(path, "new", "model", 2, **tokens)
    answered(path, "new", "model", 3, **tokens, cost=0.25)
    answered(path, "new", "gpt", 4, **tokens)
    answered(path, "new", "gpt", 5, cost=0.5)
    write_prices(path, "old", {"model": THEN})
    write_prices(path, "new", {"model": Price(2.0, 0.0, source="genai-prices 2")})
    return path


def test_the_price_is_that_of_the_run_that_paid(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {})
    assert (
        chosen_cost(costs, "old", "model")
        == chosen_cost(costs, "old", None)
        == Cost(1.0, "genai-prices 1", 1, 0, price=THEN)
    )
    new = chosen_cost(costs, "new", "model")
    assert new == Cost(2.25, "endpoint, genai-prices 2", 2, 0, price=Price(2.0, 0.0, source="genai-prices 2"))
    assert chosen_cost(costs, "new", "gpt") == Cost(0.5, "endpoint", 1, 1)
    every = chosen_cost(costs, None, None)
    assert every == Cost(3.75, "endpoint, genai-prices 1, genai-prices 2", 4, 1, price=None)


def test_the_users_table_of_now_goes_before_the_price_of_then(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {"model": TABLE})
    assert chosen_cost(costs, "old", "model") == Cost(5.0, "table", 1, 0, price=TABLE)
    assert chosen_cost(costs, None, "model") == Cost(10.25, "endpoint, table", 3, 0, price=TABLE)


def test_why_a_cost_is_not_known_is_said_of_who_may_ask_for_money(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {})
    assert why_unknown(costs, lambda role: f"no price of {role}") == "gpt: no price of gpt"
    nobody: dict[str, str] = {}
    assert why_unknown(costs, nobody.get) is None
    assert why_unknown({}, str) is None


def test_a_result_has_its_costs_by_run_and_role(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path)})
    folder(tmp_path)
    one = Spent(2, 0, 0, 1, 1, None, None)
    spent = SpentByRole(one, {"model": one, "gpt": one})
    usage = with_costs(Usage(spent, spent, 2, 1.0), here, "new")
    assert usage.this_run.total.cost == Cost(
        2.75, "endpoint, genai-prices 2", 3, 1, price=Price(2.0, 0.0, source="genai-prices 2")
    )
    assert usage.this_run.roles["gpt"].cost == Cost(0.5, "endpoint", 1, 1)
    assert usage.all_runs.roles["model"].cost == Cost(
        3.25, "endpoint, genai-prices 1, genai-prices 2", 3, 0, price=None
    )
    assert usage.cost_unknown is None  # the judge is none of this plan
    answered(here.rundir.cache_db, "new", "model", 6)
    assert with_costs(usage, here, "new").cost_unknown == "model: no price is known of org/model at host.example"


def test_a_price_that_was_not_counted_by_is_not_named(tmp_path: Path) -> None:
    answered(tmp_path / "cache.db", "new", "model", 1, cost=0.25)
    assert chosen_cost(tally_costs(tmp_path / "cache.db", {"model": TABLE}), None, None) == Cost(0.25, "endpoint", 1, 0)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Attempts, as cache.db gives them."""
    attempts: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "eval_factory.scoring.journal.read_attempts", lambda path: attempts if path == Path("cache.db") else None
    )
    return attempts


def attempt(outcome: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    usual = {
        "run_id": "this", "key": key, "role": "model", "outcome": outcome, "error": None, "latency_s": 1.0,
        "prompt_tokens": 10, "completion_tokens": 2,
    }  # fmt: skip
    return {**usual, **changes}


def total(journal: list[dict[str, Any]], *attempts: dict[str, Any]) -> Spent:
    journal[:] = attempts
    usage, _ = usage_of(Path("cache.db"), "this", 3.5)
    assert usage.wall_s == 3.5
    return usage.this_run.total


def test_each_outcome_counts_in_its_place(journal: list[dict[str, Any]]) -> None:
    """What came from the cache was not sent; of an answer that was given up nothing is sent either. A refused field was."""
    spent = total(
        journal, attempt("answered"), attempt("answered"), attempt("answered"), attempt("answered"),
        attempt("retried"), attempt("retried"), attempt("failed"), attempt("cached"), attempt("cached"), attempt("cached"),
        attempt("unusable"), attempt("unscorable"), attempt("refused"),
    )  # fmt: skip
    assert (spent.requests, spent.cached, spent.retries) == (8, 3, 2)
    assert (spent.prompt_tokens, spent.completion_tokens) == (40, 8)


def test_tokens_and_latencies_are_of_answers_that_were_paid_for(journal: list[dict[str, Any]]) -> None:
    answers = [attempt("answered", latency_s=seconds) for seconds in (1.0, 2.0, 3.0)]
    spent = total(journal, *answers, attempt("cached", latency_s=90.0), attempt("failed", latency_s=90.0))
    assert (spent.latency_p50_s, spent.latency_p95_s) == (2.0, 3.0)
    assert spent.prompt_tokens == 30


@pytest.mark.parametrize(
    ("counts", "expected"), [((), 0), ((None,), None), ((None, None), None), ((None, 3), 3), ((0,), 0), ((2, 3), 5)]
)
def test_tokens_are_unknown_where_the_endpoint_never_counted(
    counts: tuple[int | None, ...], expected: int | None, journal: list[dict[str, Any]]
) -> None:
    spent = total(journal, *(attempt("answered", prompt_tokens=count, completion_tokens=7) for count in counts))
    assert spent.prompt_tokens == expected
    assert spent.completion_tokens == 7 * len(counts)


def test_a_run_without_answers_has_no_latency(journal: list[dict[str, Any]]) -> None:
    spent = total(journal, attempt("failed"))
    assert (spent.latency_p50_s, spent.latency_p95_s, spent.prompt_tokens) == (None, None, 0)


def test_this_run_is_told_apart_from_all_runs(journal: list[dict[str, Any]]) -> None:
    journal[:] = [attempt("answered", run_id="first"), attempt("answered", run_id="second"), attempt("cached")]
    usage, _ = usage_of(Path("cache.db"), "this", 1.0)
    assert usage.runs == 3
    assert (usage.this_run.total.requests, usage.all_runs.total.requests) == (0, 2)
    assert (usage.this_run.total.cached, usage.all_runs.total.cached) == (1, 1)


def test_roles_are_the_model_and_then_the_judges_by_name(journal: list[dict[str, Any]]) -> None:
    journal[:] = [attempt("answered", role=role) for role in ("zeta", "alpha", "model", "alpha")]
    usage, _ = usage_of(Path("cache.db"), "this", 1.0)
    assert [(role, spent.requests) for role, spent in usage.this_run.roles.items()] == [
        ("model", 1), ("alpha", 2), ("zeta", 1),
    ]  # fmt: skip
    assert usage.this_run.total.requests == 4


def test_changes_of_requests_are_told_of_those_that_this_run_used(journal: list[dict[str, Any]]) -> None:
    """Also where an earlier run paid for the answer; not those of a retry, whose error is another."""
    journal[:] = [
        attempt("answered", "a", run_id="first", error="without top_p; max_tokens as max_completion_tokens"),
        attempt("answered", "b", run_id="first", error="without stop"),
        attempt("answered", "c", run_id="first", error="without seed"), attempt("retried", "d", error="HTTP 500"),
        attempt("answered", "d"), attempt("cached", "a"), attempt("failed", "b"),
        attempt("answered", "e", error="without top_p"),
    ]  # fmt: skip
    _, changes = usage_of(Path("cache.db"), "this", 1.0)
    assert changes == ["max_tokens as max_completion_tokens", "without top_p"]


NONE = Figures(None, None)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "cache.db", "first")
    yield cache
    cache.close()


def journalled(
    outcome: str = "answered", status: int | None = 200, started: float = 100.0, latency_s: float = 1.0,
    tokens: tuple[int | None, int | None] = (10, 2), **changes: Any,
) -> Attempt:  # fmt: skip
    usual: dict[str, Any] = {"key": "k", "role": "model", "attempt": 1, "error": None}
    return Attempt(
        **{**usual, **changes}, outcome=outcome, status=status, started=started, latency_s=latency_s,
        prompt_tokens=tokens[0], completion_tokens=tokens[1],
    )  # fmt: skip


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
    assert (found.responses, found.successful) == (4, 2)
    assert found.status_codes == {200: 2, 429: 1, 500: 1}
    assert found.latency_s == Figures(3.0, 6.0)
    assert found.prompt_tokens == Figures(15.0, 20)
    assert found.completion_tokens == Figures(4.0, 6)
    assert found.total_tokens == Figures(19.0, 26)


def test_tokens_that_nobody_counted_are_no_zeros(cache: ResponseCache) -> None:
    cache.journal(journalled(tokens=(10, None)))
    cache.journal(journalled(tokens=(None, 4)))
    found = response_statistics(cache.path)
    assert (found.prompt_tokens, found.completion_tokens) == (Figures(10.0, 10), Figures(4.0, 4))
    assert found.total_tokens == NONE
    assert found.successful == 2


def test_a_run_lasts_from_its_first_request_to_its_last_response(cache: ResponseCache, tmp_path: Path) -> None:
    for started, latency in ((105.0, 1.0), (100.0, 9.0), (104.0, 2.0)):
        cache.journal(journalled(started=started, latency_s=latency))
    cache.journal(journalled(started=50.0, latency_s=500.0, role="gpt"))
    cache.journal(journalled("cached", None, started=20.0))
    second = ResponseCache(cache.path, "second")
    second.journal(journalled("failed", None, started=60.0, latency_s=3.0))
    second.close()
    found = response_statistics(cache.path)
    assert found.runs == (RequestSpan(60.0, 63.0), RequestSpan(100.0, 109.0))
    assert [span.seconds for span in found.runs] == [3.0, 9.0]


def test_finish_reasons_are_of_the_models_answers(cache: ResponseCache) -> None:
    reasons = ("stop", "length", "stop", None)
    bodies: list[Any] = [{"choices": [{"finish_reason": reason}]} for reason in reasons]
    for number, body in enumerate([*bodies, {"choices": []}, "no JSON {"]):
        cache.save(Answer(f"k{number}", "model", "m", {}, body, 1.0, 1.0), journalled())
    cache.save(Answer("judge", "gpt", "m", {}, bodies[0], 1.0, 1.0), journalled(role="gpt"))
    assert response_statistics(cache.path).finish_reasons == {"stop": 2, "length": 1}
