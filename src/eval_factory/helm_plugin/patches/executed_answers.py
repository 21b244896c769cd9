"""HELM's functions that execute what a model answered, replaced by such as do it in a process of its own.

The checks are HELM's; they, or a program that they start, run without keys in a sandbox (`core/sandbox.py`,
`sandbox_worker.py`). Queries go to the processes of `sql_execution.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eval_factory.core import sandbox
from eval_factory.core.sandbox import TIMED_OUT
from eval_factory.helm_plugin.patches import sandbox_worker, sql_execution
from eval_factory.helm_plugin.session import run_record

_START_LIMIT_S = 60.0  # for the interpreter and HELM's modules, beside the time of the answer
CONFINED_BY = ["bubblewrap", "seccomp", "limits of time, memory and file size"]
BY_SQL_WORKERS = (
    "processes of their own without keys, which open the database for reading only, with limits of time and memory"
)
APPS_LIMIT_S = 11.0  # HELM's, for all tests of one answer
ASSEMBLY_LIMIT_S = 30
MAX_ASSEMBLY = 64_000_000
QUERY_LIMIT_S = 30.0  # as in Bird's own evaluation; HELM has none
GOLD_LIMIT_S = 300.0
_MAX_RESULT = 20_000_000  # bytes, of the rows of these benchmarks


@contextmanager
def throw_away_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="eval-factory-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def check_answer(question: Mapping[str, Any], seconds: float) -> Any:
    """HELM's check of an answer, or `TIMED_OUT`; None where the answer ended its process, which is counted.

    Raises:
        PrerequisiteError: it was not the answer: nothing can be executed here any more.
    """
    with throw_away_folder() as folder:
        ended = _run((), folder, seconds, json.dumps(question).encode())
    try:
        return json.loads(ended.output)
    except (ValueError, RecursionError):
        if ended.returncode == TIMED_OUT:
            return TIMED_OUT
    sandbox.require("what the model answered cannot be executed any more", _allowed())
    run_record.count_ended()
    return None


def _run(
    argv: Sequence[str], folder: Path, seconds: float, given: bytes = b"", *, processes: bool = False
) -> sandbox.EndedProgram:
    """A program with its input, or where `argv` is empty HELM's check, in the sandbox. `processes`: it may start
    others.

    Raises:
        PrerequisiteError: there is no sandbox here.
    """
    # A scenario of HELM's raises this limit: its data hold such numbers.
    digits = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    settings = {"path": _import_path(), "int_digits": digits, "argv": list(argv), "seconds": seconds}
    worker = [os.path.realpath(sys.executable), "-I", "-S", sandbox_worker.__file__, json.dumps(settings)]
    seconds += 0 if argv else _START_LIMIT_S
    allowed = _allowed(processes=processes)
    return sandbox.run(worker, folder, allowed, env=sandbox.without_secrets(folder), seconds=seconds, given=given)


def _allowed(*, processes: bool = False) -> sandbox.Allowed:
    """To read the interpreter, packages and libraries."""
    prefixes = {os.path.realpath(sys.base_prefix), sys.base_prefix, sys.prefix} - {"/"}
    libraries = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    return sandbox.Allowed([*sorted(prefixes), *_import_path(), *libraries], processes=processes)


def _import_path() -> list[str]:
    """Absolute, because the worker has another working directory; without folders that hold more than packages."""
    home = Path.home()
    paths = [Path(path).absolute() for path in sys.path if path]
    return [str(path) for path in paths if path.exists() and path != home and path not in home.parents]


def confine_python() -> None:
    """HumanEval's and APPS's checks."""
    from helm.benchmark.metrics import code_metrics, code_metrics_helper

    run_record.note(executed_by=CONFINED_BY)
    code_metrics_helper.check_correctness = check_correctness
    manager = SimpleNamespace(list=list)
    code_metrics.multiprocessing = SimpleNamespace(Manager=lambda: manager, Process=AppsProcess)


def check_correctness(
    problem: Mapping[str, Any], completion: str, timeout: float, completion_id: int | None = None
) -> dict[str, Any]:
    """HELM's result of HumanEval's tests for one completion."""
    question = {"kind": "humaneval", "problem": problem, "completion": completion, "timeout": timeout}
    found = check_answer(question, timeout + 2)
    if isinstance(found, dict) and found.keys() >= {"passed", "result"}:
        passed, result = bool(found["passed"]), str(found["result"])
    else:
        passed, result = False, "timed out" if found == TIMED_OUT else "the process that executed it ended"
    return {"task_id": problem["task_id"], "passed": passed, "result": result, "completion_id": completion_id}


class AppsProcess:
    """Instead of multiprocessing's Process in HELM's APPSMetric."""

    exitcode = 0

    def __init__(self, target: object, args: tuple[str, str, float, list[Any]]) -> None:  # noqa: ARG002 - HELM's call
        self._root, self._completion, self._timeout, self._results = args

    def start(self) -> None:
        tests = (Path(self._root) / "input_output.json").read_text(encoding="utf-8")
        question = {
            "kind": "apps", "tests": tests, "completion": self._completion, "timeout": self._timeout,
            "seconds": APPS_LIMIT_S,
        }  # fmt: skip
        found = check_answer(question, APPS_LIMIT_S)
        # The answer can write anything instead of results: HELM's metric must not fail on it.
        if isinstance(found, list) and found and all(isinstance(result, bool | int) for result in found):
            self._results.append(found)

    def join(self, timeout: float | None = None) -> None:
        """`start` has waited."""

    def is_alive(self) -> bool:
        return False


def confine_cpp() -> None:
    """The programs of CodeInsights, and their compiler."""
    from helm.benchmark.metrics import codeinsights_correct_code_metrics as correct

    run_record.note(executed_by=CONFINED_BY)
    correct.subprocess = SimpleNamespace(run=run_program, PIPE=subprocess.PIPE)
    with suppress(ImportError):  # it needs packages that are seldom there; nothing of it can run then
        from helm.benchmark.metrics import codeinsights_code_evaluation_metrics as evaluation

        evaluation.subprocess = SimpleNamespace(run=run_compiler, CalledProcessError=subprocess.CalledProcessError)


def run_program(argv: Sequence[str], *, input: str = "", **_: Any) -> SimpleNamespace:  # noqa: A002 - subprocess.run's
    """`timeout SECONDS g++ ... FILE -o PROGRAM`, or `timeout SECONDS PROGRAM`: only in the folder of PROGRAM."""
    seconds, *program = argv[1:]
    folder = Path(program[-1]).parent.resolve()
    ended = _run(program, folder, float(seconds), input.encode(), processes=len(program) > 1)
    text = ended.output.decode().replace("\r\n", "\n").replace("\r", "\n")
    return SimpleNamespace(returncode=ended.returncode, stdout=text, stderr="")


def run_compiler(argv: Sequence[str], **_: Any) -> None:
    """`g++ ... -o ASSEMBLY SOURCE`, of two files in the folder for temporary files.

    Raises:
        CalledProcessError: it is no C++.
    """
    assembly, source = Path(argv[-2]), Path(argv[-1])
    with throw_away_folder() as folder:
        shutil.copyfile(source, folder / source.name)
        made = folder / assembly.name
        program = [*argv[:-2], str(made), str(folder / source.name)]
        ended = _run(program, folder, ASSEMBLY_LIMIT_S, processes=True)
        if ended.returncode != 0:
            raise subprocess.CalledProcessError(1, list(argv), stderr="")
        with os.fdopen(os.open(made, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            assembly.write_bytes(file.read(MAX_ASSEMBLY))


def confine_bird_sql(_annotate: object) -> Any:
    """Queries of Bird and Spider."""
    run_record.note(executed_by=[BY_SQL_WORKERS])
    return annotate_by_rows


def confine_czech_bank_sql() -> None:
    """Queries of the Czech bank's questions; HELM's annotator holds a connection that may write."""
    from helm.benchmark.annotation.czech_bank_qa_annotator import CzechBankQAAnnotator

    run_record.note(executed_by=[BY_SQL_WORKERS])
    make = CzechBankQAAnnotator.__init__

    def without_connection(self: Any, file_storage_path: str) -> None:
        make(self, file_storage_path)
        self.database.close()
        self.database = Path(file_storage_path, "data", "czech_bank.db").absolute()

    CzechBankQAAnnotator.__init__ = without_connection
    CzechBankQAAnnotator.annotate = annotate_by_text


def annotate_by_rows(self: Any, request_state: Any) -> dict[str, Any]:
    """HELM's annotation of Bird and Spider."""
    database = Path(self.get_database_path(request_state.instance.extra_data["db_id"])).absolute()
    (reference,) = request_state.instance.references
    (completion,) = request_state.result.completions
    gold, _ = _rows(database, reference.output.text, of_model=False)
    rows, error = _rows(database, sql_execution.tagged_query(completion.text), of_model=True)
    return {"predicted_result": rows, "ground_truth_result": gold, "query_error": error}


def annotate_by_text(self: Any, request_state: Any) -> dict[str, Any]:
    """HELM's annotation of the Czech bank's questions."""
    (reference,) = request_state.instance.references
    (completion,) = request_state.result.completions
    query = completion.text.replace("```sql", "").replace("```", "")
    rows, error = _rows(self.database, query, of_model=True)
    gold, gold_error = _rows(self.database, reference.output.text, of_model=False)
    return {
        "query": query,
        "result": None if error is not None else str(rows),
        "error": error,
        "gold_result": None if gold_error is not None else str(gold),
        "gold_error": gold_error,
    }


def _rows(database: Path, query: str, *, of_model: bool) -> tuple[sql_execution.Rows, str | None]:
    """The rows of a query, or none and why it failed.

    Raises:
        RuntimeError: the benchmark's own query is ended by a limit of ours: HELM would have had rows.
    """
    seconds = QUERY_LIMIT_S if of_model else GOLD_LIMIT_S
    try:
        found = sql_execution.execute(sql_execution.closed(database), query, seconds, _MAX_RESULT)
        return found or [], None
    except sql_execution.QueryFailed as failed:
        if isinstance(failed, sql_execution.EndedByLimit) and not of_model:
            raise RuntimeError(f"{database.name}: the benchmark's own query was ended: {failed}") from None
        return [], str(failed)
