"""One purse for the model and all judges."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Purse, Spending
from eval_factory.core.cost import Price
from eval_factory.core.helm_run_settings import HelmRunSettings, SharedLimitsSettings
from eval_factory.endpoint.openai_api import Completion
from eval_factory.endpoint.paid_answers import read_prices
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.helm_plugin import run_spending
from eval_factory.helm_plugin.run_spending import RunSpending, purse_of

PRICES = {"model": Price(1_000_000.0, 0.0)}
"""A dollar a prompt token."""


def answer(prompt: int | None, completion: int | None, **usage: Any) -> Completion:
    return Completion({"usage": usage}, (), (prompt, completion))


def spending(tmp_path: Path, **limits: Any) -> tuple[RunSpending, Purse]:
    told = HelmRunSettings(budget=Budget(**limits), prices=PRICES)
    ResponseCache(tmp_path / "cache.db", "run").close()
    purse = Purse(told.budget)
    return RunSpending(told, tmp_path / "cache.db", "run", purse), purse


def test_an_answer_is_counted_by_what_it_says_or_by_its_price(tmp_path: Path) -> None:
    asked, purse = spending(tmp_path, max_cost=100.0)
    assert asked.begin() is None
    asked.answered("model", answer(7, 3))
    asked.answered("gpt", answer(5, 2, cost=0.5))
    assert purse.spent == Spending(1, 17, 7.5)
    assert asked.is_countable
    assert asked.begin() is None
    asked.answered("model", answer(93, 0))
    assert asked.begin() == "max_cost"


@pytest.mark.parametrize(
    ("limits", "role", "completion", "limit"),
    [
        ({"max_cost": 9.0}, "gpt", answer(5, 2), "max_cost"), ({"max_cost": 9.0}, "model", answer(None, 2), "max_cost"),
        ({"max_tokens_total": 9}, "model", answer(None, 2), "max_tokens_total"),
        ({"max_tokens_total": 9}, "model", answer(2, None, cost=1.0), "max_tokens_total"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_counted_is_not_passed(
    tmp_path: Path, limits: dict[str, Any], role: str, completion: Completion, limit: str
) -> None:
    asked, _ = spending(tmp_path, **limits)
    asked.answered(role, completion)
    assert asked.begin() == limit
    assert not asked.is_countable


def test_what_no_limit_counts_may_be_unknown(tmp_path: Path) -> None:
    asked, purse = spending(tmp_path, max_requests=9)
    asked.answered("gpt", answer(None, 2))
    assert asked.begin() is None
    assert purse.spent == Spending(1, 2, 0.0)


def test_a_run_without_limits_asks_nobody(tmp_path: Path) -> None:
    asked = RunSpending(HelmRunSettings(), tmp_path / "cache.db", "run", None)
    assert asked.begin() is None
    asked.answered("model", answer(None, None))
    asked.spend(tokens=1, cost=1.0)
    assert asked.begin() is None
    assert not (tmp_path / "cache.db").exists()


def test_the_prices_of_a_run_are_kept_beside_its_answers(tmp_path: Path) -> None:
    spending(tmp_path, max_requests=9)
    assert read_prices(tmp_path / "cache.db") == {("run", "model"): PRICES["model"]}


def test_what_earlier_runs_in_the_folder_took_counts(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.db", "before")
    cache.save(
        Answer("k", "model", "m", {}, {}, 1.0, 0.1), Attempt("k", "model", 1, "answered", 200, None, 1.0, 0.1, 3, 4)
    )
    cache.close()
    told = HelmRunSettings(budget=Budget(max_requests=2), prices=PRICES)
    purse = purse_of(told, cache.path)
    assert isinstance(purse, Purse)
    assert purse.spent == Spending(1, 7, 3.0)
    assert (purse.begin(), purse.begin()) == (None, "max_requests")
    assert purse_of(HelmRunSettings(prices=PRICES), cache.path) is None


def test_the_clock_runs_since_helm_run_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[float, tuple[str, ...]]] = []

    class Timer:
        daemon = False

        def __init__(self, seconds: float, _stop: object, args: tuple[str, ...]) -> None:
            started.append((seconds, args))

        def start(self) -> None:
            assert self.daemon

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(run_spending, "_BEGUN", 100.0)
    monkeypatch.setattr("eval_factory.helm_plugin.run_spending.time.monotonic", lambda: 103.0)
    for seconds in (10.0, 2.0, 1e12):
        spending(tmp_path, max_wall_s=seconds)[0].watch(print)
    assert started == [(7.0, ("max_wall_s",)), (0.0, ("max_wall_s",)), (threading.TIMEOUT_MAX, ("max_wall_s",))]
    spending(tmp_path, max_requests=1)[0].watch(print)
    assert len(started) == 3
    assert purse_of(HelmRunSettings(budget=Budget(max_wall_s=3.0)), tmp_path / "cache.db").begin() == "max_wall_s"  # type: ignore[union-attr]


def test_the_shards_of_a_run_count_in_one_purse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Purse(Budget(max_requests=3))

    class Shared:
        def __init__(self, settings: SharedLimitsSettings) -> None:
            assert settings == SharedLimitsSettings("/s", {})
            self.purse = one

    monkeypatch.setattr(run_spending, "SharedLimits", Shared)
    told = HelmRunSettings(budget=Budget(max_requests=3), purse="/s")
    assert purse_of(told, tmp_path / "cache.db") is one
    assert purse_of(HelmRunSettings(purse="/s"), tmp_path / "cache.db") is None
