"""The journal of attempts -> figures of the evaluated model's responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.response_figures import Figures, RequestSpan
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.scoring.response_statistics import response_statistics

NONE = Figures(None, None)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "cache.db", "first")
    yield cache
    cache.close()


def attempt(
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
        attempt(tokens=(10, 2), latency_s=1.0),
        attempt(tokens=(20, 6), latency_s=2.0),
        attempt("retried", 429, tokens=(None, None), latency_s=6.0),
        attempt("retried", None, tokens=(None, None), latency_s=90.0),  # nobody answered
        attempt("failed", 500, tokens=(None, None), latency_s=3.0),
        attempt("cached", None, latency_s=70.0),
        attempt("unusable", None, latency_s=70.0),
        attempt(role="gpt", tokens=(500, 500), latency_s=80.0),
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
    cache.journal(attempt(tokens=(10, None)))
    cache.journal(attempt(tokens=(None, 4)))
    found = response_statistics(cache.path)
    assert (found.prompt_tokens, found.completion_tokens) == (Figures(10.0, 10), Figures(4.0, 4))
    assert found.total_tokens == NONE
    assert found.successful == 2


def test_a_run_lasts_from_its_first_request_to_its_last_response(cache: ResponseCache, tmp_path: Path) -> None:
    for started, latency in ((105.0, 1.0), (100.0, 9.0), (104.0, 2.0)):
        cache.journal(attempt(started=started, latency_s=latency))
    cache.journal(attempt(started=50.0, latency_s=500.0, role="gpt"))
    cache.journal(attempt("cached", None, started=20.0))
    second = ResponseCache(cache.path, "second")
    second.journal(attempt("failed", None, started=60.0, latency_s=3.0))
    second.close()
    found = response_statistics(cache.path)
    assert found.runs == (RequestSpan(60.0, 63.0), RequestSpan(100.0, 109.0))
    assert [span.seconds for span in found.runs] == [3.0, 9.0]


def test_finish_reasons_are_of_the_models_answers(cache: ResponseCache) -> None:
    reasons = ("stop", "length", "stop", None)
    bodies: list[Any] = [{"choices": [{"finish_reason": reason}]} for reason in reasons]
    for number, body in enumerate([*bodies, {"choices": []}, "no JSON {"]):
        cache.save(Answer(f"k{number}", "model", "m", {}, body, 1.0, 1.0), attempt())
    cache.save(Answer("judge", "gpt", "m", {}, bodies[0], 1.0, 1.0), attempt(role="gpt"))
    assert response_statistics(cache.path).finish_reasons == {"stop": 2, "length": 1}


def test_without_a_journal_nothing_is_known(tmp_path: Path) -> None:
    found = response_statistics(tmp_path / "none.db")
    assert (found.responses, found.successful, found.runs, found.status_codes) == (0, 0, (), {})
    assert {found.prompt_tokens, found.completion_tokens, found.total_tokens, found.latency_s} == {NONE}
    assert found.finish_reasons == {}
