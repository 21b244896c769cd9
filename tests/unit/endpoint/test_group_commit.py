from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from eval_factory.endpoint import bridge
from eval_factory.endpoint.response_cache import GroupCommit, Statement

NUMBER = "INSERT INTO numbers VALUES (?, ?)"
WORD = "INSERT OR REPLACE INTO words VALUES (?)"


def connection_to(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, number)")
    connection.execute("CREATE TABLE words (word UNIQUE)")
    return connection


def committed(path: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as other:
        rows = other.execute(query).fetchall()
    other.close()
    return rows


def commit_together(group: GroupCommit, jobs: Sequence[Sequence[Statement]]) -> list[BaseException | None]:
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
    assert commit_together(GroupCommit(connection), [[(NUMBER, (None, n))] for n in range(20)]) == [None] * 20
    assert [statement.split()[0] for statement in statements] == ["BEGIN", *["INSERT"] * 20, "COMMIT"]
    rows = committed(tmp_path / "a.db", "SELECT number FROM numbers ORDER BY id")
    assert rows == [(n,) for n in range(20)]


def test_what_cannot_be_written_costs_no_other_its_rows(tmp_path: Path) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))
    told = commit_together(group, [[(WORD, (n,)), (NUMBER, (None, 10**30 if n == 3 else n))] for n in range(5)])
    assert [type(error) for error in told] == [type(None)] * 3 + [OverflowError] + [type(None)]
    assert committed(tmp_path / "a.db", "SELECT number FROM numbers ORDER BY id") == [(0,), (1,), (2,), (4,)]
    assert committed(tmp_path / "a.db", "SELECT word FROM words ORDER BY word") == [(0,), (1,), (2,), (4,)]


def test_whoever_writes_for_all_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))

    def interrupted(jobs: list[object]) -> None:
        if jobs:
            raise KeyboardInterrupt

    monkeypatch.setattr(group, "_write", interrupted)
    told = commit_together(group, [[(WORD, (n,))] for n in range(5)])
    assert sum(isinstance(error, sqlite3.OperationalError) for error in told) == 4
    assert sum(isinstance(error, KeyboardInterrupt) for error in told) == 1


def test_a_file_that_another_program_holds_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))
    tried = []

    def locked(jobs: list[object]) -> None:
        tried.append(len(jobs))
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(group, "_write", locked)
    told = commit_together(group, [[(WORD, (n,))] for n in range(5)])
    assert [str(error) for error in told] == ["database is locked"] * 5
    assert tried == [5]


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    group = GroupCommit(connection_to(tmp_path / "a.db"))
    group.commit([(WORD, ("a",))])
    group.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        group.commit([(WORD, ("b",))])
    assert committed(tmp_path / "a.db", "SELECT word FROM words") == [("a",)]


def test_the_loop_waits_for_a_thread_that_writes(tmp_path: Path) -> None:
    group, seen = GroupCommit(connection_to(tmp_path / "a.db")), []

    def process(number: int) -> None:
        group.commit([(NUMBER, (None, number))])
        seen.append("committed")

    def let_go() -> None:
        seen.append("let go")
        group._writing.release()

    group._writing.acquire()
    threading.Timer(0.05, let_go).start()
    bridge.map_at_once(process, [1], 1)
    assert seen == ["let go", "committed"]


def test_in_the_loop_those_that_come_together_are_one_transaction(tmp_path: Path) -> None:
    """One that cannot be written costs no other its place."""
    connection = connection_to(tmp_path / "a.db")
    statements: list[str] = []
    group, told = GroupCommit(connection), []

    def process(number: int) -> None:
        if number == 5:
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                group.commit([("INSERT INTO nowhere VALUES (?)", (number,))])
        else:
            group.commit([(NUMBER, (None, number))])
        told.append(number)
        assert number == 5 or (number,) in committed(tmp_path / "a.db", "SELECT number FROM numbers")

    bridge.map_at_once(process, range(20), 20)
    assert sorted(told) == list(range(20))
    assert len(committed(tmp_path / "a.db", "SELECT * FROM numbers")) == 19
    connection.set_trace_callback(statements.append)
    bridge.map_at_once(lambda number: group.commit([(NUMBER, (None, number))]), range(20), 20)
    assert [statement.split()[0] for statement in statements] == ["BEGIN", *["INSERT"] * 20, "COMMIT"]
