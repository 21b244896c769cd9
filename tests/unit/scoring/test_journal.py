from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builders import plan
from eval_factory.endpoint import response_cache
from eval_factory.scoring import journal


def answer(key: str, text: str = "t") -> response_cache.Answer:
    return response_cache.Answer(
        key, "model", "m", {"prompt": "p"}, {"text": text}, time.time(), 0.5
    )


def attempt(key: str, outcome: str = "answered") -> response_cache.Attempt:
    return response_cache.Attempt(key, "model", 1, outcome, 200, None, time.time(), 0.5, 3, 4)


def test_answers_are_read_from_the_oldest_on(tmp_path: Path) -> None:
    """Whatever the order in which they were kept; of those of one moment the key decides."""
    kept = response_cache.ResponseCache(tmp_path / "cache.db", "run")
    for key, role, created in (
        ("c", "model", 2.0),
        ("b", "model", 3.0),
        ("a", "judge", 2.0),
        ("d", "model", 1.0),
    ):
        kept.save(replace(answer(key, f"of {key}"), role=role, created=created), attempt(key))
    kept.close()
    read = [
        (row["key"], json.loads(row["response"])["text"]) for row in journal.read_answers(kept.path)
    ]
    assert read == [("d", "of d"), ("a", "of a"), ("c", "of c"), ("b", "of b")]
    assert [row["key"] for row in journal.read_answers(kept.path, "model")] == ["d", "c", "b"]


def test_kept_answers_are_read_once_for_all_uses(tmp_path: Path) -> None:
    kept = response_cache.ResponseCache(tmp_path / "cache.db", "run")
    saved = replace(
        answer("k"), response={"usage": {"prompt_tokens": 3, "completion_tokens": 4}}, created=1.0
    )
    judged = replace(answer("j"), role="gpt", created=2.0)
    for one in (judged, saved):
        kept.save(one, attempt(one.key))
    assert list(journal.typed_answers(kept.path)) == [saved, judged]
    assert [found.tokens for found in journal.typed_answers(kept.path)] == [(3, 4), (None, None)]
    assert list(journal.typed_answers(tmp_path / "none.db")) == []


@pytest.mark.parametrize("body", ["[" * 100_000 + "]" * 100_000, "1" * 5000])
def test_a_body_that_python_cannot_take_apart_is_text(tmp_path: Path, body: str) -> None:
    kept = response_cache.ResponseCache(tmp_path / "cache.db", "run")
    kept.save(answer("k"), attempt("k"))
    with sqlite3.connect(kept.path) as connection:
        connection.execute("UPDATE responses SET response = ?", (body,))
    connection.close()
    (found,) = journal.typed_answers(kept.path)
    assert (found.request, found.response, found.tokens) == ('{"prompt":"p"}', body, (None, None))


def test_the_answers_of_a_run_are_those_that_it_got_or_took(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    before = response_cache.ResponseCache(path, "before")
    for key in ("old", "used again", "failed later"):
        before.save(answer(key), attempt(key))
    before.close()
    kept = response_cache.ResponseCache(path, "run")
    for key in ("new", "unusable"):
        kept.save(answer(key), attempt(key))
    kept.archive_answer("unusable", attempt("unusable", "unusable"))
    for key, outcome in (
        ("used again", "cached"),
        ("used again", "cached"),
        ("failed later", "failed"),
    ):
        kept.journal(attempt(key, outcome))
    kept.close()
    here = plan({"config.output_dir": str(tmp_path)})
    _, _, used = journal.usage_of(here, "run", 1.0)
    assert [found.key for found in journal.typed_answers(path) if found.key in used] == [
        "used again",
        "new",
    ]
    assert len(journal.usage_of(here, "before", 1.0)[2]) == 3
    assert (
        journal.usage_of(plan({"config.output_dir": str(tmp_path / "none")}), "run", 1.0)[2]
        == set()
    )
