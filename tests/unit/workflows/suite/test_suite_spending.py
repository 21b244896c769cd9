"""What cells have asked, read from their journals now and then."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.budget import Spending
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.workflows.suite.suite_budget import SpendingReader
from eval_factory.workflows.suite.suite_journal import COMPLETE, RUNNING


def test_a_journal_that_is_none(tmp_path: Path) -> None:
    RunDir(tmp_path).cache_db.write_text("no database, and long enough to be looked at" * 100)
    assert SpendingReader().look(tmp_path, RUNNING) == Spending()


def asked(journal: Path, *keys: str) -> None:
    cache = ResponseCache(journal, "run")
    for key in keys:
        cache.save(
            Answer(key, "model", "m", {}, {}, 1.0, 0.1), Attempt(key, "model", 1, "answered", 200, None, 1.0, 0.1)
        )
    cache.close()


def test_what_was_asked_since_is_seen_after_five_seconds_and_at_the_end_at_once(tmp_path: Path) -> None:
    now = [0.0]
    reader = SpendingReader(lambda: now[0])
    asked(RunDir(tmp_path).cache_db, "a")
    assert reader.look(tmp_path, RUNNING).requests == 1
    asked(RunDir(tmp_path).cache_db, "b")
    now[0] = 4.9
    assert reader.look(tmp_path, RUNNING).requests == 1
    now[0] = 5.0
    assert reader.look(tmp_path, RUNNING).requests == 2
    asked(RunDir(tmp_path).cache_db, "c")
    assert reader.look(tmp_path, RUNNING).requests == 2
    assert reader.look(tmp_path, COMPLETE).requests == 3
