"""A model's SQL: what it may not do, tried on a database made here."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.annotation import ehr_sql_annotator
from helm.benchmark.annotation.ehr_sql_annotator import EhrSqlAnnotator

from eval_factory.helm_plugin.patches import executed_queries, sql_worker
from eval_factory.helm_plugin.patches.executed_queries import QueryFailed, execute
from facts import naming
from patching import ApplyPatch

COUNTING = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
ASKS_AND_WAITS = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE)
worker.stdin.write(sys.argv[2].encode() + b'\\n')
worker.stdin.flush()
time.sleep(600)
"""
ENDLESS = f"{COUNTING} SELECT count(*) FROM n"
INSIDE_ONE_INSTRUCTION = (
    "SELECT instr(printf('%.*c', 9999990, 'a'), printf('%.*c', 4999990, 'a') || 'b')"
)


Annotate = Callable[[str, str], dict[str, Any]]


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    executed_queries.end_workers()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "with space & ü" / "eicu.sqlite"
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE patient (id INTEGER, age INTEGER)")
        connection.execute("CREATE INDEX by_age ON patient (age)")
        connection.executemany(
            "INSERT INTO patient VALUES (?, ?)", [(n, 20 + n) for n in range(10)]
        )
    connection.close()
    return file


def started() -> Any:
    """The process that has executed queries."""
    return next(
        worker.process for worker in executed_queries._workers if worker.process is not None
    )


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*) FROM patient", [(10,)]),
        ("SELECT id FROM patient WHERE age > 27 ORDER BY id;", [(8,), (9,)]),
        (
            "WITH o AS (SELECT * FROM patient WHERE age > 28) SELECT max(age), strftime('%Y', '2020-01-01') FROM o",
            [(29, "2020")],
        ),
        (
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT sum(x) FROM n",
            [(6,)],
        ),
        ("SELECT id FROM patient WHERE age < 0", []),
        ("SELECT x'00', 'ä', NULL, 0.5", [("X'00'", "ä", None, 0.5)]),
        ("SELECT 9e999, -9e999", [("Inf", "-Inf")]),
        ("-- nothing to ask", None),
        (";", None),
        (f"{COUNTING} SELECT x FROM n LIMIT 20000", [(n,) for n in range(1, 20001)]),
    ],
)
def test_what_only_reads(query: str, rows: list[tuple[object, ...]] | None, database: Path) -> None:
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
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT length(zeroblob(1000000000))",
        "SELECT 1; DROP TABLE patient",
        "BEGIN; DELETE FROM patient; COMMIT",
        "REINDEX",
        "I cannot answer that.",
        "SELECT * FROM nothing",
        "SELECT '\x00'",
        "SELECT '\ud800'",
        "SELECT CAST(x'ff' AS TEXT)",
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
        ENDLESS,
        "SELECT count(*) FROM patient a, patient b, patient c, patient d, patient e, patient f, patient g, patient h, patient i",
        INSIDE_ONE_INSTRUCTION,
    ],
)
def test_a_query_without_end_is_ended(query: str, database: Path) -> None:
    execute(database, "SELECT 1")
    with pytest.raises(QueryFailed, match=naming("0.3 s")):
        execute(database, query, seconds=0.3)
    assert execute(database, "SELECT 2") == [(2,)]  # by a process that is not the ended one


LIMITS_OF_SQLITE = pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "setlimit"), reason="needs Python 3.11"
)
DOUBLED = "WITH RECURSIVE n(x) AS (SELECT 'abcdef' UNION ALL SELECT x || x FROM n) SELECT max(length(x)) FROM n"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        *(
            (query, "the result has more than 2 MB")
            for query in (
                f"{COUNTING} SELECT x FROM n",
                f"{COUNTING} SELECT printf('%.*c', 9999990, 'x') FROM n",
                "SELECT printf('%.*c', 9999990, 'x')",
                "SELECT hex(printf('%.*c', 1500000, 'x'))",
            )
        ),
        (
            f"{COUNTING} SELECT x, printf('%.*c', 100000, 'a') || x FROM n ORDER BY 2",
            "out of memory",
        ),
        pytest.param(DOUBLED, "too big", marks=LIMITS_OF_SQLITE),
        pytest.param(
            "SELECT 'a' LIKE printf('%.*c', 1001, 'a')", "too complex", marks=LIMITS_OF_SQLITE
        ),
    ],
)
def test_what_is_too_large_is_refused(query: str, message: str, database: Path) -> None:
    with pytest.raises(QueryFailed, match=message):
        execute(database, query)


def test_an_error_is_told_in_short(database: Path) -> None:
    with pytest.raises(QueryFailed) as failed:
        execute(database, "SELECT json_extract('{}', printf('%.*c', 999999, 'a'))")
    assert 0 < len(str(failed.value)) <= 500


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
def test_the_process_is_bounded_even_where_nobody_ends_it(database: Path) -> None:
    for _ in range(2):  # the limit of processor time is one query's
        execute(database, "SELECT 1")
    limits = [resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE]
    assert [resource.prlimit(started().pid, limit)[0] for limit in limits] == [
        12,
        1_000_000_000,
        0,
        0,
    ]


def test_the_process_knows_no_key(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary")
    execute(database, "SELECT 1")
    environment = Path(f"/proc/{started().pid}/environ")
    if not environment.exists():
        pytest.skip("needs Linux: /proc")
    assert b"sk-canary" not in environment.read_bytes()


def test_a_process_that_dies_of_a_query_costs_that_query(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(database, "SELECT 1")
    process = started()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    monkeypatch.setattr(process, "poll", lambda: None)  # as it is just before its death is noticed
    with pytest.raises(QueryFailed, match="the query was ended"):
        execute(database, "SELECT 2")
    assert execute(database, "SELECT 3") == [(3,)]


def test_a_query_ends_with_the_process_that_asked_it(database: Path, tmp_path: Path) -> None:
    """Killed, helm-run cannot end it; with hours to go, nothing else does."""
    patient = tmp_path / "worker.py"
    text = Path(sql_worker.__file__).read_text("utf-8")
    patient.write_text(
        text.replace("TIME_LIMIT_S = 10.0", "TIME_LIMIT_S = 9999.0"), encoding="utf-8"
    )
    assert "9999.0" in patient.read_text("utf-8")
    question = json.dumps([f"{database.as_uri()}?mode=ro", ENDLESS])
    argv = [sys.executable, "-c", ASKS_AND_WAITS, str(patient), question]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == sql_worker.READY
        process.kill()
        # the worker held the other end of the pipe
        assert process.communicate(timeout=60)[0] == b""


def test_many_threads_get_each_its_own_answer(database: Path) -> None:
    def ask(number: int) -> list[object]:
        return [execute(database, f"SELECT {number}, {n}") for n in range(20)]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == [
            [[(number, n)] for n in range(20)] for number in range(12)
        ]
    assert (
        sum(worker.process is not None for worker in executed_queries._workers)
        <= executed_queries.MAX_WORKERS
    )


def test_a_database_that_cannot_be_read_is_no_wrong_answer(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no database" * 100)
    for name in ("none", "other"):
        with pytest.raises(RuntimeError, match=f"{name} cannot be read"):
            execute(tmp_path / name, "SELECT 1")


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_changes_beside_the_database_are_not_passed_over(suffix: str, database: Path) -> None:
    beside = database.with_name(database.name + suffix)
    beside.touch()
    assert executed_queries.checked_database(database) == database
    executed_queries.checked_database.cache_clear()
    beside.write_bytes(b"changes")
    with pytest.raises(RuntimeError, match=naming("holds changes")):
        executed_queries.checked_database(database)


@pytest.fixture
def annotation_of(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Annotate:
    """Of an answer, on `database`, which is moved to where HELM keeps it."""
    folder = tmp_path / "scenarios" / "ehr_sql"
    folder.mkdir(parents=True)
    database.rename(folder / "eicu.sqlite")
    monkeypatch.setattr(ehr_sql_annotator, "get_benchmark_output_path", lambda: str(tmp_path))

    def annotate(completion: str, gold: str) -> dict[str, Any]:
        reference = SimpleNamespace(output=SimpleNamespace(text=gold))
        state = SimpleNamespace(
            instance=SimpleNamespace(references=[reference], extra_data={"value": {}}),
            result=SimpleNamespace(completions=[SimpleNamespace(text=completion)]),
        )
        annotation = executed_queries.execute_ehr_sql_read_only(None, state)
        json.dumps(annotation, allow_nan=False)
        return annotation

    return annotate


@pytest.mark.parametrize(
    ("completion", "written", "error"),
    [
        ("SELECT count(*) FROM patient", True, None),
        ("no such thing", True, 'near "no": syntax error'),
        ("<sql></sql>", False, "No query generated"),
        ("```sql\n```", False, "No query generated"),
        ("-- it cannot be answered", False, None),
        ("", False, "No query generated"),
    ],
)
def test_an_annotation_says_if_it_had_a_query(
    completion: str, written: bool, error: Any, annotation_of: Any
) -> None:
    annotation = annotation_of(completion, "SELECT x'00' FROM patient WHERE id < 1")
    assert (annotation["query_written"], annotation["query_error"]) == (written, error)
    assert annotation["ground_truth_rows"] == annotation["ground_truth_result"] == [("X'00'",)]
    # the benchmark's evaluation changes nothing in these queries
    assert "as_evaluated" not in annotation


@pytest.mark.parametrize(
    ("completion", "gold", "evaluated"),
    [
        ("SELECT sao2_lower", "SELECT sao2_upper", ([(95.0,)], None, [(100.0,)])),
        ("SELECT 95.0", "SELECT sao2_lower", ([(95.0,)], None, [(95.0,)])),
        ("SELECT sao2_lower", "SELECT none", ([(95.0,)], None, None)),
        ("SELECT none", "SELECT sao2_lower", ([], "no such column: none", [(95.0,)])),
        ("", "SELECT sao2_lower", ([], "No query generated", [(95.0,)])),
    ],
)
def test_what_the_benchmark_itself_executes(
    completion: str, gold: str, evaluated: Any, annotation_of: Any
) -> None:
    annotation = annotation_of(completion, gold)
    fields = ("predicted_result", "query_error", "ground_truth_rows")
    assert annotation["as_evaluated"] == dict(zip(fields, evaluated, strict=True))
    # HELM's own values are of the queries as they are written
    assert annotation["ground_truth_rows"] is None
    assert annotation["predicted_result"] == ([(95.0,)] if completion == "SELECT 95.0" else [])


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("Here: <sql> SELECT 1 </sql>", "SELECT 1"),
        ("SELECT `a` FROM t", "SELECT a FROM t"),
        ("", ""),
        ("<sql>\n</sql>", ""),
        ("```sql\n```", ""),
        ("```SQL\n\n```", ""),
        ("```\n```", ""),
    ],
)
def test_the_query_is_found_as_helm_finds_it(text: str, query: str) -> None:
    assert executed_queries._query_in(text).strip() == query


def test_a_query_that_a_limit_ended_is_known_from_one_that_is_wrong(database: Path) -> None:
    for query, by_limit in (
        ("SELECT nothing", False),
        (f"{COUNTING} SELECT x FROM n", True),
        (ENDLESS, True),
    ):
        with pytest.raises(QueryFailed) as failed:
            execute(database, query, seconds=0.5, max_size=1000)
        assert isinstance(failed.value, executed_queries.EndedByLimit) is by_limit


def test_helms_annotator_executes_so(apply_patch: ApplyPatch) -> None:
    apply_patch("execute_ehr_sql_read_only")
    assert EhrSqlAnnotator.annotate is executed_queries.execute_ehr_sql_read_only
