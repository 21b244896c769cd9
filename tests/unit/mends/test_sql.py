"""A model's SQL: what it may not do, tried on a database made here."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from eval_factory.mends import sql
from eval_factory.mends.sql import QueryFailed, execute


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "with space & ü" / "eicu.sqlite"
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE patient (id INTEGER, age INTEGER)")
        connection.execute("CREATE INDEX by_age ON patient (age)")
        connection.executemany("INSERT INTO patient VALUES (?, ?)", [(n, 20 + n) for n in range(10)])
    connection.close()
    return file


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*) FROM patient", [(10,)]),
        ("SELECT id FROM patient WHERE age > 27 ORDER BY id;", [(8,), (9,)]),
        ("WITH old AS (SELECT * FROM patient WHERE age > 28) SELECT max(age), strftime('%Y', '2020-01-01') FROM old", [(29, "2020")]),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT sum(x) FROM n", [(6,)]),
        ("SELECT id FROM patient WHERE age < 0", []),
    ],
)
def test_what_only_reads(query: str, rows: list[tuple[object, ...]], database: Path) -> None:
    assert execute(database, query) == rows


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE patient",
        "DELETE FROM patient",
        "UPDATE patient SET age = 0",
        "INSERT INTO patient VALUES (1, 1)",
        "CREATE TABLE mine (x)",
        "CREATE TEMP TABLE mine (x)",
        "ATTACH DATABASE '/tmp/other.sqlite' AS other",
        "VACUUM INTO '/tmp/copy.sqlite'",
        "PRAGMA writable_schema = 1",
        "PRAGMA database_list",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT length(zeroblob(1000000000))",
        "SELECT 1; DROP TABLE patient",
        "BEGIN; DELETE FROM patient; COMMIT",
        "REINDEX",
        "I cannot answer that.",
        "SELECT * FROM nothing",
        "SELECT '\x00'",
    ],
)
def test_what_may_not_be_done(query: str, database: Path) -> None:
    before = database.read_bytes()
    with pytest.raises(QueryFailed):
        execute(database, query)
    assert database.read_bytes() == before
    assert [file.name for file in database.parent.iterdir()] == ["eicu.sqlite"]


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "SELECT count(*) FROM patient a, patient b, patient c, patient d, patient e, patient f, patient g, patient h, patient i",
    ],
)
def test_a_query_without_end_is_ended(query: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "TIME_LIMIT_S", 0.3)
    with pytest.raises(QueryFailed, match=r"no end within 0\.3 s"):
        execute(database, query)


def test_rows_without_end_are_cut(database: Path) -> None:
    with pytest.raises(QueryFailed, match="more than 100000 rows"):
        execute(database, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n")


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"), reason="needs Python 3.11: SQLite's limits")
def test_a_value_without_end_is_refused(database: Path) -> None:
    doubling = "WITH RECURSIVE n(x) AS (SELECT 'abcdefgh' UNION ALL SELECT x || x FROM n) SELECT max(length(x)) FROM n"
    with pytest.raises(QueryFailed, match="too big"):
        execute(database, doubling)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("Here: <sql> SELECT 1 </sql>", "SELECT 1"),
        ("SELECT `a` FROM t", "SELECT a FROM t"),
        ("", ""),
    ],
)
def test_the_query_is_found_as_helm_finds_it(text: str, query: str) -> None:
    assert sql._query_in(text).strip() == query
