"""Executes the queries in a model's answers safely, in place of HELM's own functions.

Queries run for a limited time in processes that can only read (`sql_worker.py`). HELM's own
annotator of ehr_sql would execute and commit a model's query on the benchmark's database.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches import sql_worker
from eval_factory.helm_plugin.session import run_record
from eval_factory.tasks.upstreams import MEDHELM

BY_SQL_WORKERS = (
    "processes of their own without keys, which open the database for reading only, "
    "with limits of time and memory"
)
"""The means that confine a model's query, as the result's provenance lists them."""
MAX_WORKERS = 4  # the maximum number of processes that execute queries
_START_LIMIT_S = 60.0  # the time limit for the start of such a process
# the limits of a query of Bird, Spider or the Czech bank
QUERY_LIMIT_S = 30.0  # for a model's query, as in Bird's own evaluation; HELM has no limit
GOLD_LIMIT_S = 300.0  # for the benchmark's own query, the gold query
_MAX_RESULT = 20_000_000  # the maximum size of the rows, in bytes
# The limits of a model's queries of ehr_sql. A query is slow if it takes longer than SHORT_LIMIT_S.
TOTAL_LIMIT_S = 600.0  # the limit for the sum of the times of all slow queries
SHORT_LIMIT_S = 1.0
"""The limit of each query after TOTAL_LIMIT_S is used up. Before, it is that of `sql_worker`."""

# HELM's pattern of a query between tags: "<sql>SELECT 1</sql>", "< SQL >SELECT 1<sql>"
_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)<\/?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
# HELM's pattern of a line "sql", which is left of the code fence "```sql" without its backquotes
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)
_PASSED_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
"""The environment variables of a process that executes queries. The run's API keys are not passed,
so a model's query cannot read them.
"""

Rows = list[tuple[Any, ...]]  # the rows of a query's result, with a value for each column


class QueryFailed(Exception):
    """The error of a query that gave no rows: it is not SQL, is not allowed, or was ended by a
    limit.
    """


class EndedByLimit(QueryFailed):
    """The error of a query that took too much time or memory, or gave too many rows."""


class _Worker:
    """A process that executes queries.

    The process is started at the first query. After it ended, the next query starts it again.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, database: Path, query: str, seconds: float, max_size: int) -> Any:
        """Return the reply to one query, in the form of `sql_worker.answer`.

        Args:
            database: the SQLite file.
            query: the query.
            seconds: the time limit.
            max_size: the maximum size of the rows, in bytes.

        Raises:
            EndedByLimit: the process did not reply in time, or ended without a reply.
        """
        process = self.process
        if process is None or process.poll() is not None:
            process = self._start()
        # Read-only, and without locks and files next to the database, which SQLite could write.
        uri = f"{database.as_uri()}?mode=ro&immutable=1"
        question = json.dumps([uri, query, seconds, max_size]) + "\n"
        try:
            process.stdin.write(question.encode())  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return json.loads(_read_line(process, seconds))
        except BaseException as error:
            # End the process: a late reply must not be read as the reply to the next query.
            self.end()
            if isinstance(error, TimeoutError):
                raise EndedByLimit(f"the query did not end within {seconds:g} s") from error
            if isinstance(error, (EOFError, BrokenPipeError)):
                raise EndedByLimit("the query was ended: too much time or memory") from error
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process, and return it when it can execute queries."""
        self.end()  # closes the pipes of an earlier process that has ended
        process = subprocess.Popen(
            # "-I" and "-S": without PYTHON* variables and without installed packages
            [sys.executable, "-I", "-S", sql_worker.__file__],
            env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.process = process
        with suppress(EOFError, TimeoutError):  # The process ended, or is too slow: see below.
            if _read_line(process, _START_LIMIT_S) == sql_worker.READY:
                return process
        self.end()
        raise RuntimeError("the process that executes queries did not start")

    def end(self) -> None:
        """Kill the process, if it runs."""
        process = self.process
        self.process = None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # closes the pipes and waits for the end
                pass


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the next line of the process's output.

    Raises:
        TimeoutError: the process did not write a line within `seconds`.
        EOFError: the process closed its output.
    """
    deadline = time.monotonic() + seconds
    pipe = process.stdout.fileno()  # type: ignore[union-attr]
    line = bytearray()
    while not line.endswith(b"\n"):
        if not wait([pipe], max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        piece = os.read(pipe, 65_536)
        if not piece:
            raise EOFError
        line += piece
    return bytes(line)


_workers = [_Worker() for _ in range(min(MAX_WORKERS, os.cpu_count() or 1))]
# Last in, first out: a worker that runs already is used before a worker that would have to start.
_idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
for _worker in _workers:
    _idle.put(_worker)


@atexit.register
def end_workers() -> None:
    """Kill all processes that execute queries."""
    for worker in _workers:
        worker.end()


def execute(
    database: Path,
    query: str,
    seconds: float = sql_worker.TIME_LIMIT_S,
    max_size: int = sql_worker.MAX_RESULT,
) -> Rows | None:
    """Execute a query that may only read, and return its rows.

    Args:
        database: the SQLite file.
        query: the query.
        seconds: the time limit.
        max_size: the maximum size of the rows, in bytes.

    Returns:
        The rows; None if the text holds no SQL statement.

    Raises:
        QueryFailed: the query gave no rows; the message is SQLite's message or names the limit.
        RuntimeError: the database cannot be read.
    """
    worker = _idle.get()
    try:
        answer = worker.ask(database, query, seconds, max_size)
    finally:
        _idle.put(worker)
    if sql_worker.BROKEN in answer:
        raise RuntimeError(f"{database} cannot be read: {answer[sql_worker.BROKEN]}")
    if sql_worker.FAILED in answer:
        reason = answer[sql_worker.FAILED]
        if answer.get(sql_worker.TOO_LARGE):
            raise EndedByLimit(reason)
        raise QueryFailed(reason)
    rows = answer[sql_worker.ROWS]
    return None if rows is None else [tuple(row) for row in rows]


@cache
def checked_database(database: Path) -> Path:
    """Check that the file of a database is complete, and return its path.

    The worker opens the database as immutable. SQLite then ignores changes in a write-ahead log or
    a journal.

    Raises:
        RuntimeError: changes are in a file next to the database.
    """
    for suffix in ("-wal", "-journal"):
        changes = database.with_name(database.name + suffix)
        if changes.exists() and changes.stat().st_size:
            raise RuntimeError(
                f"{changes} holds changes that are not in {database.name} yet; "
                f"open {database.name} with SQLite once"
            )
    return database


# The values that ehr_sql's own evaluation fills in a query; see `as_evaluated`. The time is later
# than all records of the database. A vital sign has the (lower, upper) bounds of normal values.
CURRENT_TIME = "'2105-12-31 23:59:00'"
NORMAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}

# "current_time", but not "current_timestamp"
_CURRENT_TIME_WORD = re.compile(r"\bcurrent_time\b", re.IGNORECASE)
# medhelm's pattern, which also matches the first letters of "current_timestamp"
_CURRENT_TIME_ANYWHERE = re.compile("current_time", re.IGNORECASE)
# "sao2_lower", "mean_bp_upper"
_BOUND = re.compile(rf"\b({'|'.join(NORMAL_RANGES)})_(lower|upper)\b", re.IGNORECASE)


def as_evaluated(query: str) -> str:
    """Return the query with the substitutions that the benchmark's own evaluation makes.

    The substitutions fill in the current time and the bounds of normal values, and turn `%j` (the
    day of the year) into `%J` (the Julian day). Source: github.com/glee4810/EHRSQL, evaluate.py (G.
    Lee et al., NeurIPS 2022). That evaluation also changes capitals and quotation marks. This
    function does not, because such a change can correct or break a model's query.
    """
    query = _CURRENT_TIME_WORD.sub(CURRENT_TIME, query).replace("%j", "%J")
    return _BOUND.sub(_value_of_bound, query)


def _value_of_bound(match: re.Match[str]) -> str:
    """Return the number for a match of `_BOUND`, such as 95.0 for `sao2_lower`."""
    lower, upper = NORMAL_RANGES[match[1].lower()]
    return str(lower if match[2].lower() == "lower" else upper)


def execute_ehr_sql_read_only(_self: Any, request_state: Any) -> dict[str, Any]:
    """Return HELM's annotation of an answer of ehr_sql, with further fields.

    HELM's fields are `predicted_result`, `ground_truth_result` and `query_error`. The gold query is
    the benchmark's own query. The further fields are:

    - `ground_truth_rows`: the rows of the gold query; None if the gold query failed.
    - `query_written`: True if the answer holds a query.
    - `as_evaluated`: the results of the queries in the form in which the benchmark's own evaluation
      executes them; only if this form differs.
    """
    database = _ehr_sql_database()
    gold = request_state.instance.references[0].output.text.strip()
    predicted = _query_in(request_state.result.completions[0].text if request_state.result else "")
    gold_rows, gold_result = _gold_results(database, gold, request_state.instance)
    predicted_rows, error = _rows_of_model_query(database, predicted)
    annotation: dict[str, Any] = {
        "predicted_result": predicted_rows or [],
        "ground_truth_result": gold_result,
        "query_error": error,
        "ground_truth_rows": gold_rows,
        "query_written": _is_query(predicted, predicted_rows, error),
    }
    evaluated_gold = as_evaluated(gold)
    evaluated = as_evaluated(predicted)
    if evaluated_gold != gold or evaluated != predicted:
        evaluated_rows, evaluated_error = _rows_of_model_query(database, evaluated)
        evaluated_gold_rows, _ = _rows_or_reason(database, evaluated_gold)
        annotation["as_evaluated"] = {
            "predicted_result": evaluated_rows or [],
            "query_error": evaluated_error,
            "ground_truth_rows": evaluated_gold_rows,
        }
    return annotation


def _gold_results(database: Path, gold: str, instance: Any) -> tuple[Rows | None, Rows | list[Any]]:
    """Return the rows of the gold query (None if it failed), and HELM's gold result.

    If the gold query gives no rows, HELM uses the stated value as the gold result. medhelm does not
    use the stated value, and fills in the current time in the gold query.
    """
    if installed_upstream().name == MEDHELM.name:
        rows, _ = _rows_or_reason(database, _CURRENT_TIME_ANYWHERE.sub(CURRENT_TIME, gold))
        return rows, rows or []
    rows, _ = _rows_or_reason(database, gold)
    stated = (instance.extra_data or {}).get("value", {})
    return rows, rows or list(stated.values())


def query_annotation_of(text: str) -> dict[str, Any]:
    """Return the fields of ehr_sql's annotation that do not depend on the gold query.

    `text` is an answer that is given to every question, so it is executed once for all questions.

    Raises:
        ValueError: the benchmark's own evaluation would change the query before executing it.
    """
    predicted = _query_in(text)
    if as_evaluated(predicted) != predicted:
        raise ValueError("the benchmark's evaluation would change the query")
    predicted_rows, error = _rows_of_model_query(_ehr_sql_database(), predicted)
    return {
        "predicted_result": predicted_rows or [],
        "query_error": error,
        "query_written": _is_query(predicted, predicted_rows, error),
    }


def _is_query(text: str, rows: Rows | None, error: str | None) -> bool:
    """Return True if a text that was executed is a query."""
    # Rows and error are both None for a text without a statement, such as a comment.
    has_statement = rows is not None or error is not None
    return bool(text) and has_statement


def _ehr_sql_database() -> Path:
    from helm.benchmark.annotation import ehr_sql_annotator

    root = Path(ehr_sql_annotator.get_benchmark_output_path())
    return checked_database((root / "scenarios" / "ehr_sql" / "eicu.sqlite").absolute())


_slow_query_times: list[float] = []  # the seconds that each slow query of the model took


def _rows_of_model_query(database: Path, query: str) -> tuple[Rows | None, str | None]:
    """Return the rows of a model's query of ehr_sql, or None and the reason for the failure.

    After many slow queries, the time limit of a query is shorter: thousands of queries that never
    end would take hours.
    """
    if not query:
        return None, "No query generated"
    limit = sql_worker.TIME_LIMIT_S if sum(_slow_query_times) < TOTAL_LIMIT_S else SHORT_LIMIT_S
    started = time.monotonic()
    try:
        return _rows_or_reason(database, query, limit)
    finally:
        seconds = time.monotonic() - started
        if seconds > SHORT_LIMIT_S:
            _slow_query_times.append(seconds)


def _rows_or_reason(
    database: Path, query: str, seconds: float = sql_worker.TIME_LIMIT_S
) -> tuple[Rows | None, str | None]:
    """Return the rows of a query, or None and the reason for the failure."""
    try:
        return execute(database, query, seconds), None
    except QueryFailed as failed:
        return None, str(failed)


def tagged_query(text: str) -> str:
    """Return the SQL that HELM finds in an answer of Bird or Spider; an empty text without SQL."""
    tagged = _SQL_TAG.search(text)
    return tagged[1] if tagged else ""


def _query_in(text: str) -> str:
    """Return the SQL that HELM finds in an answer of ehr_sql; an empty text without SQL.

    HELM would read the name `sql` of an empty code fence as a query. This function does not.
    """
    tagged = _SQL_TAG.search(text)
    query = tagged[1] if tagged else text
    query = query.replace("`", "").strip()
    query = _FENCE_NAME.sub("", query)
    is_empty_fence = query.strip().lower() == "sql"
    return "" if is_empty_fence else query


def confine_bird_sql(_annotate: object) -> Any:
    """Return the function that annotates answers of Bird and Spider in read-only processes."""
    run_record.note(executed_by=[BY_SQL_WORKERS])
    return annotate_by_rows


def confine_czech_bank_sql() -> None:
    """Make HELM execute the queries of the Czech bank's questions in read-only processes.

    HELM's own annotator has a connection that could write to the database.
    """
    from helm.benchmark.annotation.czech_bank_qa_annotator import CzechBankQAAnnotator

    run_record.note(executed_by=[BY_SQL_WORKERS])
    helms_init = CzechBankQAAnnotator.__init__

    def init_without_connection(self: Any, file_storage_path: str) -> None:
        helms_init(self, file_storage_path)  # downloads the database and opens a connection
        self.database.close()
        self.database = Path(file_storage_path, "data", "czech_bank.db").absolute()

    CzechBankQAAnnotator.__init__ = init_without_connection
    CzechBankQAAnnotator.annotate = annotate_by_text


def annotate_by_rows(self: Any, request_state: Any) -> dict[str, Any]:
    """Return HELM's annotation of an answer of Bird or Spider, which compares the rows."""
    database = Path(self.get_database_path(request_state.instance.extra_data["db_id"])).absolute()
    (reference,) = request_state.instance.references
    (completion,) = request_state.result.completions
    gold, _ = _rows_within_limits(database, reference.output.text, of_model=False)
    rows, error = _rows_within_limits(database, tagged_query(completion.text), of_model=True)
    return {"predicted_result": rows, "ground_truth_result": gold, "query_error": error}


def annotate_by_text(self: Any, request_state: Any) -> dict[str, Any]:
    """Return HELM's annotation of an answer of the Czech bank, which compares texts of the rows."""
    (reference,) = request_state.instance.references
    (completion,) = request_state.result.completions
    query = completion.text.replace("```sql", "").replace("```", "")
    rows, error = _rows_within_limits(self.database, query, of_model=True)
    gold, gold_error = _rows_within_limits(self.database, reference.output.text, of_model=False)
    return {
        "query": query,
        "result": None if error is not None else str(rows),
        "error": error,
        "gold_result": None if gold_error is not None else str(gold),
        "gold_error": gold_error,
    }


def _rows_within_limits(database: Path, query: str, *, of_model: bool) -> tuple[Rows, str | None]:
    """Return the rows of a query of Bird, Spider or the Czech bank.

    If the query failed, return an empty list and the reason.

    Args:
        database: the SQLite file.
        query: the query.
        of_model: True for a query of the model, False for the benchmark's own query.

    Raises:
        RuntimeError: a limit ended the benchmark's own query, for which HELM has no limit.
    """
    seconds = QUERY_LIMIT_S if of_model else GOLD_LIMIT_S
    try:
        outcome = execute(checked_database(database), query, seconds, _MAX_RESULT)
        return outcome or [], None
    except QueryFailed as failed:
        if isinstance(failed, EndedByLimit) and not of_model:
            raise RuntimeError(
                f"{database.name}: the benchmark's own query was ended: {failed}"
            ) from None
        return [], str(failed)
