from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from eval_factory.engine import store


def answer(key: str, text: str = "t") -> store.Answer:
    return store.Answer(key, "model", "m", {"prompt": "p"}, {"text": text}, time.time(), 0.5)


def attempt(key: str, outcome: str = "answered") -> store.Attempt:
    return store.Attempt(key, "model", 1, outcome, 200, None, time.time(), 0.5, 3, 4)


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    first = store.ResponseStore(path, "run1")
    assert first.get("k") is None
    first.save(answer("k"), attempt("k"))
    first.close()
    second = store.ResponseStore(path, "run2")
    found = second.get("k")
    assert found is not None
    assert found[0] == {"text": "t"}
    second.journal(attempt("k", "cached"))
    second.close()
    assert [(row["run_id"], row["outcome"]) for row in store.read_attempts(path)] == [
        ("run1", "answered"),
        ("run2", "cached"),
    ]
    assert [row["key"] for row in store.read_answers(path)] == ["k"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_many_threads(tmp_path: Path) -> None:
    kept = store.ResponseStore(tmp_path / "cache.db", "run")

    def save(number: int) -> None:
        for i in range(20):
            kept.save(answer(f"{number}-{i}"), attempt(f"{number}-{i}"))
            assert kept.get(f"{number}-{i}") is not None

    threads = [threading.Thread(target=save, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.close()
    assert len(list(store.read_answers(tmp_path / "cache.db"))) == 320


def test_a_saved_answer_is_on_disk_when_save_returns(tmp_path: Path) -> None:
    kept = store.ResponseStore(tmp_path / "cache.db", "run")
    kept.save(answer("k"), attempt("k"))
    with sqlite3.connect(tmp_path / "cache.db") as other:  # nothing was closed or flushed
        assert other.execute("SELECT count(*) FROM responses").fetchone() == (1,)
    other.close()
    kept.close()


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to look" * 20, b"SQLite format 3\x00" + b"\x07" * 900])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(content)
    with pytest.raises(store.DamagedStoreError):
        store.create_or_check(path)
    aside = store.set_aside(path)
    assert aside.read_bytes() == content
    store.create_or_check(path)


def test_a_foreign_database_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE unspecified (key, value)")
    foreign.close()
    with pytest.raises(store.DamagedStoreError, match="not written by this version"):
        store.create_or_check(path)
