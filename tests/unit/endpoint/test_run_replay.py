"""What the shards of a run were told is told again, each once, and only to that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.endpoint.endpoint_errors import RequestFailed
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.endpoint.run_replay import RunReplay, Told


def attempt(key: str, outcome: str, started: float = 10.0, error: str | None = None) -> Attempt:
    return Attempt(key, "model", 1, outcome, None, error, started, 0.5)


def saved(cache: ResponseCache, key: str, text: str, started: float) -> None:
    cache.save(Answer(key, "model", "m", {}, {"text": text}, started, 0.5), attempt(key, "answered", started))


def test_another_run_is_told_nothing(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.db", "before")
    saved(cache, "k", "t", 10.0)
    cache.close()
    replay = RunReplay(tmp_path / "cache.db", "now")
    assert replay.next_of("k") is None
    assert RunReplay().next_of("k") is None


def test_a_request_ends_as_often_as_it_did_and_then_as_the_last_time(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.db", "run")
    cache.journal(attempt("k", "retried", 9.0))
    saved(cache, "k", "t", 11.0)
    cache.journal(attempt("k", "cached", 12.0))
    cache.close()
    replay = RunReplay(tmp_path / "cache.db", "run")
    told = [replay.next_of("k") for _ in range(3)]
    assert told == [Told("answered", None, 11.0), Told("cached", None, 12.0), Told("cached", None, 12.0)]
    assert [one.was_kept for one in told if one is not None] == [False, True, True]
    assert replay.next_of("other") is None
    for one in told:
        assert one is not None
        assert replay.answer("k", one) == ({"text": "t"}, 0.5, 11.0)


def test_a_failure_is_the_same_failure(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.db", "run")
    cache.journal(attempt("k", "failed", error="HTTP 500: no"))
    cache.close()
    replay = RunReplay(tmp_path / "cache.db", "run")
    told = replay.next_of("k")
    assert told is not None
    with pytest.raises(RequestFailed, match=r"^HTTP 500: no$"):
        replay.answer("k", told)


def test_an_answer_that_was_of_no_use_is_that_answer(tmp_path: Path) -> None:
    """It lies under another key; a later one to the same question has its place."""
    cache = ResponseCache(tmp_path / "cache.db", "run")
    saved(cache, "k", "babble", 10.5)
    cache.archive_answer("k", attempt("k", "unusable"))
    replay = RunReplay(tmp_path / "cache.db", "run")
    told = replay.next_of("k")
    assert told is not None
    assert replay.answer("k", told) == ({"text": "babble"}, 0.5, 10.5)
    saved(cache, "k", "better", 11.5)
    assert replay.answer("k", told) == ({"text": "babble"}, 0.5, 10.5)
    assert replay.answer("k", Told("answered", None, 11.5)) == ({"text": "better"}, 0.5, 11.5)
    assert replay.answer("k", Told("answered", None, 99.0)) is not None  # of another shard, taken once
    assert replay.answer("gone", Told("answered", None, 10.5)) is None
    cache.close()


def test_the_time_of_earlier_runs_is_that_in_which_they_asked(tmp_path: Path) -> None:
    """What lies between two runs is nobody's time."""
    for run, *began in (("first", 100.0, 104.0, 102.0), ("second", 1000.0), ("now", 5000.0, 9000.0)):
        cache = ResponseCache(tmp_path / "cache.db", str(run))
        for number, started in enumerate(began):
            cache.journal(attempt(f"{run}{number}", "answered", started))
        cache.close()
    now = RunReplay(tmp_path / "cache.db", "now")
    assert (now.seconds_before(), now.seconds_asked()) == (4.5 + 0.5, 4000.5)
    other = RunReplay(tmp_path / "cache.db", "other")
    assert (other.seconds_before(), other.seconds_asked()) == (4005.5, 0.0)
    assert (RunReplay().seconds_before(), RunReplay().seconds_asked()) == (0.0, 0.0)
