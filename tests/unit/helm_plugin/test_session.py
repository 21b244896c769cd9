"""One tracker for the model and all judges; what helm-run writes down of itself always holds the latest."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.budget import Budget, Price, Spending, SpendingTracker
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.endpoint.openai_answers import Completion, completion_of
from eval_factory.endpoint.paid_answers import read_prices
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.session import RunRecord, RunSpending, tracker_of

PRICES = {"model": Price(1_000_000.0, 0.0)}
"""A dollar a prompt token."""
BODY = {"messages": [{"role": "user", "content": "a" * 20}]}


def answer(prompt: int | None, completion: int | None, **usage: Any) -> Completion:
    return Completion({"usage": usage}, (), (prompt, completion))


def spending(tmp_path: Path, **limits: Any) -> tuple[RunSpending, SpendingTracker]:
    told = HelmRunSettings(budget=Budget(**limits), prices=PRICES)
    ResponseCache(tmp_path / "cache.db", "run").close()
    tracker = SpendingTracker(told.budget, began=session.STARTED, clock=lambda: time.monotonic())
    return RunSpending(told, tmp_path / "cache.db", "run", tracker), tracker


def test_an_answer_is_counted_by_what_it_says_or_by_its_price(tmp_path: Path) -> None:
    asked, tracker = spending(tmp_path, max_cost=100.0)
    assert asked.begin() is None
    asked.count_answer("model", BODY, answer(7, 3))
    asked.count_answer("gpt", BODY, answer(5, 2, cost=0.5))
    assert tracker.spent == Spending(1, 17, 7.5)
    assert asked.is_countable
    assert asked.begin() is None
    asked.count_answer("model", BODY, answer(93, 0))
    assert asked.begin() == "max_cost"


ODD = st.one_of(
    st.none(), st.integers(-9, 9), st.floats(), st.text(max_size=3), st.booleans(), st.just(10**400)
)
USAGES = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": ODD,
            "completion_tokens": ODD,
            "cost": st.one_of(ODD, st.just(1e-300)),
            "prompt_tokens_details": st.one_of(ODD, st.fixed_dictionaries({"cached_tokens": ODD})),
        },
    ),
)


@given(st.lists(USAGES, min_size=1, max_size=5))
def test_with_a_known_price_a_limit_is_held_whatever_answers_say_of_themselves(
    usages: list[Any],
) -> None:
    """4000 bytes of prompt and 400 of answer are 1000 and 100 tokens, of which a quarter is the least that counts."""
    budget = Budget(max_cost=100.0, max_tokens_total=10**9)
    tracker = SpendingTracker(budget)
    price = Price(10_000.0, 20_000.0)  # 12 dollars an answer
    asked = RunSpending(HelmRunSettings(budget=budget, prices={}), Path("none"), "run", tracker)
    asked._prices = {"model": price}
    body = {"messages": [{"role": "user", "content": "a" * 4000}]}
    sent = 0
    while asked.begin() is None:
        reply = {
            "choices": [{"message": {"content": "b" * 400}}],
            "usage": usages[sent % len(usages)],
        }
        asked.count_answer("model", body, completion_of(reply, "chat"))
        sent += 1
        assert sent <= 100.0 / 3.0 + 1
    assert asked.is_countable
    assert tracker.spent.tokens >= sent * 275


def test_what_no_limit_counts_may_be_unknown_and_the_prices_are_kept_beside_the_answers(
    tmp_path: Path,
) -> None:
    asked, tracker = spending(tmp_path, max_requests=9)
    asked.count_answer("gpt", BODY, answer(None, 2))
    assert asked.begin() is None
    assert tracker.spent == Spending(1, 7, 0.0)
    assert read_prices(tmp_path / "cache.db") == {("run", "model"): PRICES["model"]}


def test_a_run_without_limits_asks_nobody(tmp_path: Path) -> None:
    asked = RunSpending(HelmRunSettings(), tmp_path / "cache.db", "run", None)
    assert asked.begin() is None
    asked.count_answer("model", BODY, answer(None, None))
    asked.spend(tokens=1, cost=1.0)
    assert asked.begin() is None
    assert not (tmp_path / "cache.db").exists()


def test_what_earlier_runs_in_the_folder_took_counts(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.db", "before")
    attempt = Attempt("k", "model", 1, "answered", 200, None, 1.0, 0.1, 3, 4)
    cache.save(Answer("k", "model", "m", {}, {}, 1.0, 0.1), attempt)
    cache.close()
    told = HelmRunSettings(budget=Budget(max_requests=2), prices=PRICES)
    tracker = tracker_of(told, cache.path)
    assert isinstance(tracker, SpendingTracker)
    assert tracker.spent == Spending(1, 7, 3.0)
    assert (tracker.begin(), tracker.begin()) == (None, "max_requests")
    assert tracker_of(HelmRunSettings(prices=PRICES), cache.path) is None


def test_the_clock_runs_since_helm_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[float, tuple[str, ...]]] = []

    class Timer:
        def __init__(self, seconds: float, _stop: object, args: tuple[str, ...]) -> None:
            started.append((seconds, args))

        def start(self) -> None:
            assert vars(self)["daemon"]

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(session, "STARTED", 100.0)
    monkeypatch.setattr("eval_factory.helm_plugin.session.time.monotonic", lambda: 103.0)
    for seconds in (10.0, 2.0, 1e12):
        spending(tmp_path, max_wall_s=seconds)[0].watch(print)
    assert started == [
        (7.0, ("max_wall_s",)),
        (0.0, ("max_wall_s",)),
        (threading.TIMEOUT_MAX, ("max_wall_s",)),
    ]
    spending(tmp_path, max_requests=1)[0].watch(print)
    assert len(started) == 3
    tracker = tracker_of(HelmRunSettings(budget=Budget(max_wall_s=3.0)), tmp_path / "cache.db")
    assert tracker is not None
    assert tracker.begin() == "max_wall_s"


def test_the_file_holds_the_latest_and_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    record = RunRecord()
    file = tmp_path / "x.json"
    record.count_ended()  # before somebody says where
    file.write_text('{"of": "an earlier run"}')
    record.write_to(file)
    assert json.loads(file.read_text()) == {"ended": 1}
    record.count_ended()
    record.note(executed_by=["bubblewrap"])
    assert json.loads(file.read_text()) == {"ended": 2, "executed_by": ["bubblewrap"]}
    assert file.read_text().endswith("}\n")
    record.write_to(other := tmp_path / "of the next run.json")
    assert json.loads(other.read_text()) == record.entries


def test_templates_of_judges_prompts_are_written_as_hashes(tmp_path: Path) -> None:
    record = RunRecord()
    record.write_to(tmp_path / "x.json")
    for annotator, text in (("b", "z"), ("b", "a"), ("a", "z"), ("b", "z")):
        record.note_prompt(annotator, text)
    a, z = (hashlib.sha256(text).hexdigest() for text in (b"a", b"z"))
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "judge_prompts": {"b": sorted([a, z]), "a": [z]}
    }
