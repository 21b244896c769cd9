"""The journal of attempts -> what an evaluation cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.results import Spent
from eval_factory.endpoint import response_cache
from eval_factory.scoring.usage import usage_of


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Attempts, as cache.db gives them."""
    attempts: list[dict[str, Any]] = []
    monkeypatch.setattr(response_cache, "read_attempts", lambda path: attempts if path == Path("cache.db") else None)
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
        attempt("answered", "c", run_id="first", error="without seed"),
        attempt("retried", "d", error="HTTP 500"),
        attempt("answered", "d"),
        attempt("cached", "a"),
        attempt("failed", "b"),
        attempt("answered", "e", error="without top_p"),
    ]
    _, changes = usage_of(Path("cache.db"), "this", 1.0)
    assert changes == ["max_tokens as max_completion_tokens", "without top_p"]
