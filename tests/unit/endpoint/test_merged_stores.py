"""A shard's store is put into cache.db whole, once, however often that is done."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.cost import Price
from eval_factory.endpoint import merged_stores
from eval_factory.endpoint.merged_stores import copy_changes, merge_store
from eval_factory.endpoint.paid_answers import read_prices, write_prices
from eval_factory.endpoint.response_cache import (
    Answer,
    Attempt,
    RequestChanges,
    ResponseCache,
    read_answers,
    read_attempts,
    read_changes,
)

CHANGES = RequestChanges("http://h/v1", "m", {"max_tokens": "max_completion_tokens"})


def attempt(key: str, started: float, outcome: str = "answered") -> Attempt:
    return Attempt(key, "model", 1, outcome, None, None, started, 0.5, 3, 4)


def answer(key: str, started: float, text: str = "t") -> Answer:
    return Answer(key, "model", "m", {}, {"text": text}, started, 0.5)


def make(path: Path, run: str, *keys: str, started: float = 10.1) -> ResponseCache:
    cache = ResponseCache(path, run)
    for key in keys:
        cache.save(answer(key, started, path.name), attempt(key, started))
    return cache


def content(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = ("responses", "attempts", "request_changes")
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def test_everything_comes_over_and_once(tmp_path: Path) -> None:
    whole, shard = tmp_path / "whole", tmp_path / "shard"
    make(whole, "run", "a", started=9.0).close()
    cache = make(shard, "run", "b", "a")
    cache.journal(attempt("c", 11.0, "retried"))
    cache.save(answer("d", 12.0), attempt("d", 12.0), CHANGES)
    cache.close()
    write_prices(shard, "run", {"model": Price(1.0, 2.0)})
    merge_store(whole, shard)
    once = content(whole)
    assert [(row["key"], row["response"]) for row in read_answers(whole)] == [
        ("a", '{"text": "whole"}'), ("b", '{"text": "shard"}'), ("d", '{"text": "t"}'),
    ]  # fmt: skip
    known = [(row["run_id"], row["key"], row["outcome"], row["completion_tokens"]) for row in read_attempts(whole)]
    assert known == [
        ("run", "a", "answered", 4), ("run", "b", "answered", 4), ("run", "a", "answered", 4),
        ("run", "c", "retried", 4), ("run", "d", "answered", 4),
    ]  # fmt: skip
    assert read_changes(whole, "http://h/v1", "m") == [dict(CHANGES.changes)]
    assert read_prices(whole) == {("run", "model"): Price(1.0, 2.0)}
    merge_store(whole, shard)
    assert content(whole) == once
    assert list(read_prices(shard)) == [("run", "model")]


def test_a_merge_that_fails_on_the_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "whole", "run", "a").close()
    make(tmp_path / "shard", "run", "b").close()
    before = content(tmp_path / "whole")
    monkeypatch.setattr(merged_stores, "_CHANGES_BACK", "INSERT INTO main.nowhere VALUES (1)")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        merge_store(tmp_path / "whole", tmp_path / "shard")
    assert content(tmp_path / "whole") == before


def test_an_answer_of_no_use_is_not_used_again(tmp_path: Path) -> None:
    """Wherever it was found to be so: it neither stays in cache.db nor comes back there."""
    whole, shard = tmp_path / "whole", tmp_path / "shard"
    make(whole, "run", "a").close()
    cache = make(shard, "run", "a")
    cache.archive_answer("a", attempt("a", 12.0, "unusable"))
    cache.close()
    merge_store(whole, shard)
    assert [row["key"] for row in read_answers(whole)] == ["a#10.1"]
    make(tmp_path / "other", "run", "a").close()
    merge_store(whole, tmp_path / "other")
    assert [row["key"] for row in read_answers(whole)] == ["a#10.1"]
    make(tmp_path / "newer", "run", "a", started=13.0).close()
    merge_store(whole, tmp_path / "newer")
    assert [row["key"] for row in read_answers(whole)] == ["a#10.1", "a"]


def test_a_new_store_knows_how_requests_are_changed(tmp_path: Path) -> None:
    whole, shard = tmp_path / "whole", tmp_path / "shard"
    cache = make(whole, "run", "a")
    cache.save(answer("d", 12.0), attempt("d", 12.0), CHANGES)
    cache.close()
    make(shard, "run").close()
    copy_changes(whole, shard)
    copy_changes(whole, shard)
    assert read_changes(shard, "http://h/v1", "m") == [dict(CHANGES.changes)]
    assert list(read_answers(shard)) == []
