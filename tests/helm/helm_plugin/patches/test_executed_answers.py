"""HELM's checks of programs that a model wrote, with our hands between: the same scores for honest answers."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.annotation.bird_sql_annotator import BirdSQLAnnotator
from helm.benchmark.annotation.czech_bank_qa_annotator import CzechBankQAAnnotator
from helm.benchmark.metrics import code_metrics, code_metrics_helper
from helm.benchmark.metrics import codeinsights_correct_code_metrics as correct

from eval_factory.core.sandbox import TIMED_OUT_EXIT_CODE
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.patches import executed_programs, executed_queries
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from facts import naming, says

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="needs bubblewrap (bwrap)"
)
needs_gcc = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("bwrap")), reason="needs g++ and bubblewrap"
)
TEMPLATE = """#include <iostream>
using namespace std;
{{ STUDENT_ANSWER }}
int main() {
{% for TEST in TESTCASES %}{% endfor %}
return 0; }
"""
FORGING = """import os
for pipe in range(3, 256):
    try:
        os.write(pipe, {text!r}.encode())
    except OSError:
        pass
os._exit(0)
"""
TESTS = [
    {"input": "cout << twice(2);", "output": "4"},
    {"input": "int n; cin >> n; cout << twice(n);", "std_in": "5", "output": "10\n"},
    {"input": "cout << twice(3);", "output": "7"},
]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a helm-run of its own."""
    for module, name in (
        (code_metrics_helper, "check_correctness"),
        (code_metrics, "multiprocessing"),
        (correct, "subprocess"),
        (BirdSQLAnnotator, "annotate"),
        (CzechBankQAAnnotator, "annotate"),
        (CzechBankQAAnnotator, "__init__"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    session.run_record.entries.clear()
    yield
    executed_queries.end_workers()
    session.run_record.entries.clear()


def test_what_is_written_down() -> None:
    patch_named("confine_python").apply()
    assert session.run_record.entries == {"executed_by": executed_programs.CONFINED_BY}
    patch_named("confine_bird_sql").apply()
    assert session.run_record.entries == {"executed_by": [executed_queries.BY_SQL_WORKERS]}


@needs_bubblewrap
def test_humaneval_where_the_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_named("confine_python").apply()
    check = "def check(f):\n    assert f() == 1\n"
    problem = {"task_id": "t/0", "prompt": "def f():\n", "test": check, "entry_point": "f"}
    wrong = {"task_id": "t/0", "passed": False, "completion_id": None}
    assert code_metrics_helper.check_correctness(problem, "return 1", 2.0)["passed"] is True
    of_seven = {**wrong, "result": "failed: ", "completion_id": 7}
    assert code_metrics_helper.check_correctness(problem, "return 2", 2.0, 7) == of_seven
    ended = "the process that executed it ended"
    for found, result in ((None, ended), (TIMED_OUT_EXIT_CODE, "timed out"), ([], ended)):
        monkeypatch.setattr(executed_programs, "check_answer", lambda *_, found=found, **__: found)
        assert code_metrics_helper.check_correctness(problem, "return 1", 2.0) == {
            **wrong,
            "result": result,
        }


@needs_bubblewrap
@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ("print(int(input()) * 2)", [True, True, False]),
        ("print(4)", [True, False, False]),
        ("print(", [-2]),
        ("import os\nos._exit(0)", None),
        ("raise SystemExit", [False, False, False]),
        *(
            (FORGING.format(text=text), None)
            for text in ("[]", "5", '{"a": 1}', "[1.5]", "[" * 100_000, "no json")
        ),
    ],
)
def test_apps(answer: str, scores: list[Any] | None, tmp_path: Path) -> None:
    cases = {"inputs": ["2\n", "5\n", "3\n"], "outputs": ["4\n", "10\n", "7\n"]}
    (tmp_path / "input_output.json").write_text(json.dumps(cases))
    patch_named("confine_python").apply()
    told = code_metrics.multiprocessing.Manager().list()
    process = code_metrics.multiprocessing.Process(
        target=None, args=(str(tmp_path), answer, 2, told)
    )
    process.start()
    process.join(timeout=11)
    assert not process.is_alive()
    assert told == ([] if scores is None else [scores])


@needs_gcc
@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ("int twice(int n) { return 2 * n; }", [1, 1, 0]),
        ("int twice(int n) { return n + 2; }", [1, 0, 0]),
        ("int twice(int n) { return", [0, 0, 0]),
        ("#include <cstdlib>\nint twice(int n) { exit(1); }", [0, 0, 0]),
        ("#include <unistd.h>\nint twice(int n) { return fork() == -1 ? 2 * n : 0; }", [1, 1, 0]),
        ("int twice(int n) { while (true) cout << n; }", [0]),
    ],
)
def test_cpp(answer: str, passed: list[int]) -> None:
    patch_named("confine_cpp").apply()
    found = correct.CPPEvaluator(
        TEMPLATE, TESTS[: len(passed)], timeout=30, max_workers=1
    ).evaluate(answer)
    assert found == {"score": sum(passed) / len(passed), "testcases": passed}


@needs_gcc
def test_folders_of_a_cpp_program_too_deep_for_pythons_recursion() -> None:
    """HELM deletes them."""
    patch_named("confine_cpp").apply()
    deep = (
        "#include <sys/stat.h>\n#include <unistd.h>\nint twice(int n) {"
        ' for (int i = 0; i < 1900; i++) { mkdir("d", 0755); chdir("d"); } return 2 * n; }'
    )
    evaluator = correct.CPPEvaluator(TEMPLATE, TESTS[:1], timeout=30, max_workers=1)
    assert evaluator.evaluate(deep)["testcases"] == [1]


@needs_gcc
def test_cpp_cannot_read_what_is_not_its_own(tmp_path: Path) -> None:
    """While it is compiled, neither."""
    secret = tmp_path / "secret"
    secret.write_text("42")
    patch_named("confine_cpp").apply()
    tests = [{"input": "", "output": ""}]
    including = f'int secret =\n#include "{secret}"\n;'
    assert correct.CPPEvaluator(TEMPLATE, tests, timeout=30).evaluate(including)["testcases"] == [0]
    reading = f'#include <fstream>\nstruct S {{ S() {{ if (ifstream("{secret}")) exit(1); }} }} s;'
    assert correct.CPPEvaluator(TEMPLATE, tests, timeout=30).evaluate(reading)["testcases"] == [1]


@needs_gcc
def test_assembly(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    assembly = tmp_path / "a.s"
    source.write_text("int f() { return 7; }")
    argv = ["g++", "-std=c++17", "-S", "-o", str(assembly), str(source)]
    executed_programs.run_compiler(argv, check=True, timeout=30)
    ours = assembly.read_text()
    subprocess.run(argv, check=True)
    assert ours == assembly.read_text()
    source.write_text("int f() {")
    with pytest.raises(subprocess.CalledProcessError):
        executed_programs.run_compiler(argv)


def state(answer: str, gold: str, **extra: str) -> Any:
    return SimpleNamespace(
        instance=SimpleNamespace(
            references=[SimpleNamespace(output=SimpleNamespace(text=gold))], extra_data=extra
        ),
        result=SimpleNamespace(completions=[SimpleNamespace(text=answer)]),
    )


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "data" / "czech_bank.db"
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, None)])
    connection.close()
    return file


GOLD = "SELECT a, b FROM t"


@pytest.mark.parametrize(
    ("answer", "rows", "error"),
    [
        (f"<sql>{GOLD}</sql>", [(1, "x"), (2, None)], None),
        ("<sql>SELECT 1 WHERE 0</sql>", [], None),
        (GOLD, [], None),  # without the tag HELM executes an empty text
        ("<sql>DELETE FROM t</sql>", [], "not authorized"),
        ("<sql>SELECT c FROM t</sql>", [], "no such column: c"),
    ],
)
def test_bird(answer: str, rows: list[Any], error: str | None, database: Path) -> None:
    patch_named("confine_bird_sql").apply()
    annotator = SimpleNamespace(
        get_database_path=lambda name: str(database) if name == "bank" else ""
    )
    before = database.read_bytes()
    found = BirdSQLAnnotator.annotate(annotator, state(answer, GOLD, db_id="bank"))
    assert found == {
        "predicted_result": rows,
        "ground_truth_result": [(1, "x"), (2, None)],
        "query_error": error,
    }
    assert database.read_bytes() == before


def test_the_czech_bank(database: Path, tmp_path: Path) -> None:
    patch_named("confine_czech_bank_sql").apply()
    annotator = CzechBankQAAnnotator(str(tmp_path))
    found = annotator.annotate(state("```sql\nSELECT a FROM t\n```", GOLD))
    assert found == {
        "query": "\nSELECT a FROM t\n",
        "result": "[(1,), (2,)]",
        "error": None,
        "gold_result": "[(1, 'x'), (2, None)]",
        "gold_error": None,
    }
    wrong = annotator.annotate(state("DROP TABLE t", "SELECT"))
    assert (wrong["result"], wrong["error"]) == (None, "not authorized")
    assert (wrong["gold_result"], wrong["gold_error"]) == (None, "incomplete input")


def test_a_benchmarks_own_query_is_not_ended_without_a_word(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executed_queries, "_MAX_RESULT", 40)
    with pytest.raises(RuntimeError, match=naming("benchmark's own query", "more than")):
        executed_queries._rows_within_limits(database, GOLD, of_model=False)
    rows, reason = executed_queries._rows_within_limits(database, GOLD, of_model=True)
    assert rows == []
    says(str(reason), "more than 0 MB")
