"""A model's SQL, executed where it can do no harm: in processes that only read, for a limited time.

Replaces HELM's EhrSqlAnnotator, which executes and commits on the benchmark's own database.
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
from typing import TYPE_CHECKING, Any

from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches import sql_worker
from eval_factory.tasks.upstreams import MEDHELM

if TYPE_CHECKING:
    from helm.benchmark.adaptation.request_state import RequestState

_START_LIMIT_S = 60.0
MAX_WORKERS = 4
TOTAL_LIMIT_S = 600.0  # for all of a model's queries together that take longer than SHORT_LIMIT_S
SHORT_LIMIT_S = 1.0  # for one query, after that

_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)<\/?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")  # of the environment; the run's keys are no business of a model's SQL

Rows = list[tuple[Any, ...]]


class QueryFailed(Exception):
    """The query gave no rows: it is no SQL, may not be executed, or was ended by a limit."""


class EndedByLimit(QueryFailed):
    """It took too long or too much."""


class _Worker:
    """One process that executes queries, started when it is first needed and again after it was ended."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, database: Path, query: str, seconds: float, largest: int) -> Any:
        """The answer to one query, as `sql_worker.answer` gives it.

        Raises:
            QueryFailed: there was none in time, or the process did not live to give it.
        """
        process = self.process
        if process is None or process.poll() is not None:
            process = self._start()
        question = json.dumps([f"{database.as_uri()}?mode=ro&immutable=1", query, seconds, largest]) + "\n"
        try:
            process.stdin.write(question.encode())  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return json.loads(_line(process, seconds))
        except TimeoutError as error:
            self.end()
            raise EndedByLimit(f"no end within {seconds:g} s") from error
        except (EOFError, BrokenPipeError) as error:
            self.end()
            raise EndedByLimit("the query was ended: too much time or memory") from error
        except BaseException:  # the answer to this query must not be taken for the next one's
            self.end()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        self.end()
        process = self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", sql_worker.__file__],
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            ready = _line(process, _START_LIMIT_S) == sql_worker.READY
        except (EOFError, TimeoutError):
            ready = False
        if not ready:
            self.end()
            raise RuntimeError("the process that executes queries did not start")
        return process

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # closes its pipes and waits
                pass


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """One line of the process's output.

    Raises:
        TimeoutError: it did not within `seconds`.
        EOFError: it ended.
    """
    deadline = time.monotonic() + seconds
    pipe = process.stdout.fileno()  # type: ignore[union-attr]
    line = bytearray()
    while not line.endswith(b"\n"):
        if not wait([pipe], max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        piece = os.read(pipe, 1 << 16)
        if not piece:
            raise EOFError
        line += piece
    return bytes(line)


_workers = [_Worker() for _ in range(min(MAX_WORKERS, os.cpu_count() or 1))]
_idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
for _worker in _workers:
    _idle.put(_worker)


@atexit.register
def end_workers() -> None:
    for worker in _workers:
        worker.end()


def execute(
    database: Path, query: str, seconds: float = sql_worker.TIME_LIMIT_S, largest: int = sql_worker.MAX_RESULT
) -> Rows | None:
    """The rows of one query that only reads; None where the text holds no statement.

    Raises:
        QueryFailed: the message says why, as SQLite says it.
        RuntimeError: the database cannot be read.
    """
    worker = _idle.get()
    try:
        answer = worker.ask(database, query, seconds, largest)
    finally:
        _idle.put(worker)
    if sql_worker.BROKEN in answer:
        raise RuntimeError(f"{database} cannot be read: {answer[sql_worker.BROKEN]}")
    if sql_worker.FAILED in answer:
        raise (EndedByLimit if answer.get(sql_worker.TOO_LARGE) else QueryFailed)(answer[sql_worker.FAILED])
    rows = answer[sql_worker.ROWS]
    return None if rows is None else [tuple(row) for row in rows]


@cache
def closed(database: Path) -> Path:
    """`database` itself: it is opened as one that nobody writes to, so nothing of it may stand in another file.

    Raises:
        RuntimeError: something does.
    """
    for suffix in ("-wal", "-journal"):
        beside = database.with_name(database.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise RuntimeError(f"{beside} holds changes that are not in {database.name} yet; open it with SQLite once")
    return database


CURRENT_TIME = "'2105-12-31 23:59:00'"  # no record of the database is later
NORMAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}

_CURRENT_TIME = re.compile(r"\bcurrent_time\b", re.IGNORECASE)
_ANYWHERE = re.compile("current_time", re.IGNORECASE)
_BOUND = re.compile(rf"\b({'|'.join(NORMAL_RANGES)})_(lower|upper)\b", re.IGNORECASE)


def as_evaluated(query: str) -> str:
    """The query with the time, the days (`%j`: of the year; `%J`: of the Julian calendar) and the bounds filled in.

    These three are what the benchmark's own evaluation sets: github.com/glee4810/EHRSQL, evaluate.py (G. Lee et al.,
    NeurIPS 2022). Capitals and quotation marks, which it changes too, stay: that would forgive, or break, what a model
    wrote.
    """
    query = _CURRENT_TIME.sub(CURRENT_TIME, query).replace("%j", "%J")
    return _BOUND.sub(lambda found: str(NORMAL_RANGES[found[1].lower()][found[2].lower() == "upper"]), query)


def execute_ehr_sql_read_only(_annotate: object) -> Any:
    return annotate_query


def annotate_query(_self: Any, request_state: RequestState) -> dict[str, Any]:
    """HELM's annotation, and beside it the gold query's rows as they are (None where it failed), whether the answer
    holds a query at all, and what both queries give as the benchmark's own evaluation executes them.

    medhelm sets the time of asking in the gold query alone, and takes no stated value for the gold result.
    """
    database, is_medhelm = _ehr_sql_database(), installed_upstream().name == MEDHELM.name
    gold = request_state.instance.references[0].output.text.strip()
    rows, _ = _rows_of(database, _ANYWHERE.sub(CURRENT_TIME, gold) if is_medhelm else gold)
    predicted = _query_in(request_state.result.completions[0].text if request_state.result else "")
    found, error = _predicted_rows(database, predicted)
    # What HELM takes for the gold result where the gold query gives no row.
    stated = (request_state.instance.extra_data or {}).get("value", {})
    annotation: dict[str, Any] = {
        "predicted_result": found or [],
        "ground_truth_result": rows or ([] if is_medhelm else list(stated.values())),
        "query_error": error,
        "ground_truth_rows": rows,
        "query_written": bool(predicted) and (found is not None or error is not None),
    }
    changed_gold, changed = as_evaluated(gold), as_evaluated(predicted)
    if (changed_gold, changed) != (gold, predicted):
        found, error = _predicted_rows(database, changed)
        rows, _ = _rows_of(database, changed_gold)
        annotation["as_evaluated"] = {
            "predicted_result": found or [], "query_error": error, "ground_truth_rows": rows
        }  # fmt: skip
    return annotation


def query_annotation_of(text: str) -> dict[str, Any]:
    """What `annotate` says of an answer beside the gold query, where the answer is the same to every question.

    Raises:
        ValueError: the benchmark's evaluation would execute the answer otherwise than it is written.
    """
    predicted = _query_in(text)
    if as_evaluated(predicted) != predicted:
        raise ValueError("the answer is not executed as it is written")
    found, error = _predicted_rows(_ehr_sql_database(), predicted)
    return {
        "predicted_result": found or [],
        "query_error": error,
        "query_written": bool(predicted) and (found is not None or error is not None),
    }


def _ehr_sql_database() -> Path:
    from helm.benchmark.annotation import ehr_sql_annotator

    root = Path(ehr_sql_annotator.get_benchmark_output_path())
    return closed((root / "scenarios" / "ehr_sql" / "eicu.sqlite").absolute())


_slow: list[float] = []  # seconds that the model's slow queries took


def _predicted_rows(database: Path, query: str) -> tuple[Rows | None, str | None]:
    """Of a model: thousands of queries that never end must not take hours."""
    if not query:
        return None, "No query generated"
    limit = sql_worker.TIME_LIMIT_S if sum(_slow) < TOTAL_LIMIT_S else SHORT_LIMIT_S
    started = time.monotonic()
    try:
        return _rows_of(database, query, limit)
    finally:
        if (took := time.monotonic() - started) > SHORT_LIMIT_S:
            _slow.append(took)


def _rows_of(database: Path, query: str, seconds: float = sql_worker.TIME_LIMIT_S) -> tuple[Rows | None, str | None]:
    """(the rows, why there are none)."""
    try:
        return execute(database, query, seconds), None
    except QueryFailed as failed:
        return None, str(failed)


def tagged_query(text: str) -> str:
    """The SQL of an answer, as HELM finds it for Bird and Spider."""
    tagged = _SQL_TAG.search(text)
    return tagged[1] if tagged else ""


def _query_in(text: str) -> str:
    """The SQL of an answer, as HELM finds it; of an empty fence HELM takes the name for a query."""
    tagged = _SQL_TAG.search(text)
    query = (tagged[1] if tagged else text).strip()
    query = _FENCE_NAME.sub("", query.replace("`", "").strip())
    return "" if query.strip().lower() == "sql" else query
