from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.endpoint import bridge, response_cache
from eval_factory.endpoint.openai_answers import UnusableAnswer
from eval_factory.endpoint.openai_api import SetTo
from eval_factory.endpoint.response_cache import GroupCommit, ResponseCache, Statement
from eval_factory.scoring import journal
from facts import naming


def answer(key: str, text: str = "t") -> response_cache.Answer:
    return response_cache.Answer(
        key, "model", "m", {"prompt": "p"}, {"text": text}, time.time(), 0.5
    )


def attempt(key: str, outcome: str = "answered") -> response_cache.Attempt:
    return response_cache.Attempt(key, "model", 1, outcome, 200, None, time.time(), 0.5, 3, 4)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ResponseCache]:
    with closing(ResponseCache(tmp_path / "cache.db", "run1")) as made:
        yield made


def test_what_is_saved_is_found_again(kept: ResponseCache) -> None:
    path = kept.path
    assert kept.get("k") is None
    kept.save(answer("k"), attempt("k"))
    assert committed(path, "SELECT count(*) FROM responses") == [(1,)], (
        "on disk when `save` returns"
    )
    kept.close()
    with closing(ResponseCache(path, "run2")) as second:
        found = second.get("k")
        assert found is not None
        assert found[0] == {"text": "t"}
        second.journal(attempt("k", "cached"))
    assert [(row["run_id"], row["outcome"]) for row in journal.read_attempts(path)] == [
        ("run1", "answered"),
        ("run2", "cached"),
    ]
    assert [row["key"] for row in journal.read_answers(path)] == ["k"]
    (one,) = journal.typed_answers(path)
    assert (one.key, one.response) == ("k", {"text": "t"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_who_answered_before(kept: ResponseCache) -> None:
    assert not kept.has_answers("model", "m")
    kept.save(answer("k"), attempt("k"))
    questions = [("model", "m"), ("gpt", "m"), ("model", "other")]
    assert [kept.has_answers(*one) for one in questions] == [True, False, False]


def test_half_a_surrogate_pair_in_a_prompt_is_kept(kept: ResponseCache) -> None:
    kept.save(replace(answer("k"), request={"prompt": "\ud83d"}), attempt("k"))
    (row,) = journal.read_answers(kept.path)
    assert json.loads(row["request"]) == {"prompt": "\ud83d"}


def test_what_is_no_json_is_not_given(kept: ResponseCache) -> None:
    kept.save(replace(answer("k"), response={"x": float("nan")}), attempt("k"))
    with pytest.raises(UnusableAnswer, match="not finite"):
        kept.get("k")
    assert (kept.holds("k"), kept.holds("l")) == (True, False)


@pytest.mark.parametrize(
    "content",
    [
        b"not a database at all, but long enough to look" * 20,
        b"SQLite format 3\x00" + b"\x07" * 900,
        None,
    ],
    ids=["text", "damaged", "of another program"],
)
def test_a_file_that_is_not_ours_is_not_used(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cache.db"
    if content is None:
        connection_to(path).close()
    else:
        path.write_bytes(content)
    with pytest.raises(
        response_cache.DamagedCacheError, match=None if content else naming("by this version")
    ):
        response_cache.create_or_check(path)


def test_how_requests_were_changed_is_kept_once_and_by_endpoint(
    kept: ResponseCache, tmp_path: Path
) -> None:
    for key in ("a", "b"):
        kept.save(answer(key), attempt(key), ("u", {"temperature": None, "top_p": None}))
    kept.save(answer("c"), attempt("c"), ("u", {"max_tokens": "max_completion_tokens"}))
    kept.save(answer("d"), attempt("d"), ("v", {"stop": None}))
    kept.save(answer("e"), attempt("e"), ("u", {"temperature": SetTo(1)}))
    assert response_cache.read_changes(kept.path, "u", "m") == [
        {"temperature": None, "top_p": None},
        {"max_tokens": "max_completion_tokens"},
        {"temperature": SetTo(1)},
    ]
    assert response_cache.read_changes(kept.path, "u", "other") == []
    assert response_cache.read_changes(tmp_path / "none.db", "u", "m") == []


def test_a_file_of_an_older_version_gets_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    ResponseCache(path, "run").close()
    committed(path, "DROP TABLE request_changes")
    with closing(ResponseCache(path, "run")) as kept:
        kept.save(answer("a"), attempt("a"), ("u", {"stop": None}))
    assert response_cache.read_changes(path, "u", "m") == [{"stop": None}]


def test_a_file_that_is_whole_is_not_written_to_when_it_is_checked(kept: ResponseCache) -> None:
    """Its checksum is part of a result, which the same command finds unchanged."""
    kept.save(answer("k"), attempt("k"))
    kept.close()
    path = kept.path
    before = kept.path.read_bytes()
    response_cache.create_or_check(path)
    assert [row["key"] for row in journal.read_answers(path)] == ["k"]
    assert path.read_bytes() == before


NUMBER = "INSERT INTO numbers VALUES (?, ?)"
WORD = "INSERT OR REPLACE INTO words VALUES (?)"


def connection_to(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, number)")
    connection.execute("CREATE TABLE words (word UNIQUE)")
    return connection


def committed(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as other, other:
        return other.execute(query).fetchall()


def commit_together(
    group: GroupCommit, jobs: Sequence[Sequence[Statement]]
) -> list[BaseException | None]:
    """Commit each job in a thread of its own, all in one transaction, in their order. Returns what each was told."""
    told: list[BaseException | None] = [None] * len(jobs)

    def commit(place: int) -> None:
        try:
            group.commit(jobs[place])
        except BaseException as error:
            told[place] = error

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(len(jobs))]
    with group._writing:
        for number, thread in enumerate(threads, start=1):
            thread.start()
            while len(group._waiting) < number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return told


def test_a_good_batch_is_one_transaction(tmp_path: Path) -> None:
    connection = connection_to(tmp_path / "a.db")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert (
        commit_together(GroupCommit(connection), [[(NUMBER, (None, n))] for n in range(20)])
        == [None] * 20
    )
    assert [statement.split()[0] for statement in statements] == [
        "BEGIN",
        *["INSERT"] * 20,
        "COMMIT",
    ]
    rows = committed(tmp_path / "a.db", "SELECT number FROM numbers ORDER BY id")
    assert rows == [(n,) for n in range(20)]


def test_what_cannot_be_written_costs_no_other_its_rows(tmp_path: Path) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))
    told = commit_together(
        group, [[(WORD, (n,)), (NUMBER, (None, 10**30 if n == 3 else n))] for n in range(5)]
    )
    assert [type(error) for error in told] == [type(None)] * 3 + [OverflowError] + [type(None)]
    assert committed(tmp_path / "a.db", "SELECT number FROM numbers ORDER BY id") == [
        (0,),
        (1,),
        (2,),
        (4,),
    ]
    assert committed(tmp_path / "a.db", "SELECT word FROM words ORDER BY word") == [
        (0,),
        (1,),
        (2,),
        (4,),
    ]


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))
    group.commit([(WORD, ("a",))])
    group.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        group.commit([(WORD, ("b",))])
    assert committed(tmp_path / "a.db", "SELECT word FROM words") == [("a",)]


def test_in_the_loop_those_that_come_together_are_one_transaction(tmp_path: Path) -> None:
    """One that cannot be written costs no other its place."""
    connection = connection_to(tmp_path / "a.db")
    statements: list[str] = []
    group = GroupCommit(connection)
    told = []

    def process(number: int) -> None:
        if number == 5:
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                group.commit([("INSERT INTO nowhere VALUES (?)", (number,))])
        else:
            group.commit([(NUMBER, (None, number))])
        told.append(number)
        assert number == 5 or (number,) in committed(
            tmp_path / "a.db", "SELECT number FROM numbers"
        )

    bridge.map_at_once(process, range(20), 20)
    assert sorted(told) == list(range(20))
    assert len(committed(tmp_path / "a.db", "SELECT * FROM numbers")) == 19
    connection.set_trace_callback(statements.append)
    bridge.map_at_once(lambda number: group.commit([(NUMBER, (None, number))]), range(20), 20)
    assert [statement.split()[0] for statement in statements] == [
        "BEGIN",
        *["INSERT"] * 20,
        "COMMIT",
    ]
