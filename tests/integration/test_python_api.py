"""docs/example.ipynb and the code of docs/python.md, run as they stand, in one process, with the real helm-run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eval_factory import api
from facts import says
from program_runs import TIMEOUT_S, program_environment

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = json.loads((ROOT / "docs" / "example.ipynb").read_text("utf-8"))
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
Cells = dict[str, dict[str, Any]]


def code_cells() -> list[dict[str, str]]:
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    return [{"id": cell["id"], "source": "".join(cell["source"])} for cell in cells]


def blocks() -> list[dict[str, str]]:
    """Of the page, by the heading that each stands under."""
    found = []
    for section in PAGE.split("\n## "):
        heading = section.partition("\n")[0]
        sources = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        found += [
            {"id": f"{heading} {number}", "source": source}
            for number, source in enumerate(sources, 1)
        ]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def cells(folder: Path) -> Cells:
    """Of the notebook and then, in the same process and folder, of the page: the notebook's runs are there by then."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "notebook_process.py")],
        input=json.dumps([code_cells(), blocks()]),
        cwd=folder,
        env=program_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    notebook, page = json.loads(ran.stdout)
    return {**notebook, **page}


def test_the_notebook_is_one_without_outputs_and_paths() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert set(NOTEBOOK["metadata"]) == {"kernelspec", "language_info"}
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in NOTEBOOK["cells"]:
        needed = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == (
            needed | {"execution_count", "outputs"} if cell["cell_type"] == "code" else needed
        )
        assert (cell["metadata"], cell.get("outputs", []), cell.get("execution_count")) == (
            {},
            [],
            None,
        )
        assert not re.search(
            r"(?<![\w.:/])/[a-z]|~/", "".join(cell["source"]).replace("demo://", "")
        )


def test_a_run_in_a_notebook_is_a_result_and_shows_nothing_else(cells: Cells, folder: Path) -> None:
    result = api.load_result(folder / "results" / "five").result
    main = result.scores[result.main_metric]
    assert main.stats.count == 5
    shown = "sample_medical_qa: not reportable: demo"
    assert cells["run"]["text"].startswith(f"<Evaluated {shown}")
    assert {
        cell["id"]: text for cell in code_cells() if (text := cells[cell["id"]]["printed"])
    } == {}
    assert cells["later"]["text"].startswith(f"<StoredResult {shown}")


def test_its_frames_hold_what_the_result_holds(cells: Cells, folder: Path) -> None:
    result = api.load_result(folder / "results" / "five").result
    for label, score in result.scores.items():
        assert f"<td>{label}</td>" in cells["scores"]["html"]
        assert score.stats.count == 5
    for instance in result.instances:
        assert f"<td>{instance.id}</td>" in cells["instances"]["html"]
    wrong = [instance.id for instance in result.instances if instance.metrics["exact_match"] == 0]
    assert wrong
    assert cells["wrong"]["html"].count("<tr") == 1 + len(wrong)


def test_two_runs_at_once_are_two_runs(cells: Cells, folder: Path) -> None:
    """Each with its own log, answers and temperature."""
    assert cells["two"]["text"] == "[5, 5]"
    for name, temperature in (("cold", 0.0), ("warm", 1.0)):
        stored = api.load_result(folder / "results" / name)
        assert stored.config["params"]["temperature"] == temperature
        assert stored.result.usage.this_run.total.requests == 5
        log = (folder / "results" / name / "logs" / "eval-factory.log").read_text("utf-8")
        ended = [line for line in log.splitlines() if " INFO helm-run ended with 0 " in line]
        assert len(ended) == 1
        assert (folder / "results" / name / "SHA256SUMS").is_file()
    says(
        cells["compare"]["text"],
        "Compared",
        "A demo baseline",
        "B demo baseline",
        "A = +0.0000",
    )
    assert "<td>False</td>" in cells["pairs"]["html"]


def test_a_suite_runs_from_a_notebook_and_takes_over_what_is_there(
    cells: Cells, folder: Path
) -> None:
    suite = folder / "results" / "suite"
    says(cells["suite"]["text"], "SuiteReport", "2 of 2 cells", "exit code 0", str(suite))
    shown = re.findall(r"<td>(True|False)</td>", cells["suite-frame"]["html"])
    assert shown == ["True", "False"]  # collected
    taken, ran = (
        api.load_result(suite / name / "sample_medical_qa") for name in ("chat", "completions")
    )
    assert taken.result.scores == api.load_result(folder / "results" / "five").result.scores
    assert ran.result.usage.this_run.total.requests == 5
    assert (suite / "suite_results.yaml").is_file()
    assert cells["Suites 1"]["printed"] == (
        "0 [('chat/sample_medical_qa', 'complete', True), ('completions/sample_medical_qa', 'complete', True)]\n"
    )


def test_the_second_time_nothing_is_asked(cells: Cells, folder: Path) -> None:
    """The page's runs are the notebook's."""
    main = api.load_result(folder / "results" / "five").result
    printed = cells["A run 1"]["printed"]
    assert printed.startswith(f"{main.scores[main.main_metric].value} NOT REPORTABLE: demo")
    runs = (folder / "results" / "five" / "logs" / "events.jsonl").read_text("utf-8").splitlines()
    assert len({json.loads(line)["run_id"] for line in runs}) == 1


def test_the_page_shows_what_is_there(cells: Cells, folder: Path) -> None:
    assert "limit_samples: 3" in cells["A run 2"]["printed"]
    assert cells["What goes wrong 1"]["printed"].startswith(
        "2 [\"config.type: there is no task 'pubmedqa'"
    )
    result = api.load_result(folder / "results" / "five").result
    lines = cells["Existing results 1"]["printed"].splitlines()
    assert lines[0] == f"5 {result.usage.this_run.total.completion_tokens}"
    assert [line.split()[0] for line in lines[1:]] == [instance.id for instance in result.instances]
    assert "stop" in cells["Data frames 1"]["printed"]
    assert cells["Comparing 1"]["printed"].splitlines()[1].split()[:4] == ["0", "A", "B", "0.0"]
    juries = [task for task in api.list_tasks() if task.scoring == "jury"]
    assert len(cells["Tasks 1"]["printed"].splitlines()) == len(juries)
    assert not (folder / "results" / "wrong").exists()


def test_every_name_that_the_package_offers_is_on_the_page() -> None:
    import eval_factory

    for name in set(eval_factory.__all__) - {"__version__"}:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_the_columns_on_the_page_are_those_of_the_frames() -> None:
    from eval_factory.analysis.comparison_records import FLIP_COLUMNS, PAIR_COLUMNS
    from eval_factory.report.reader import INSTANCE_COLUMNS, SCORE_COLUMNS
    from eval_factory.workflows.suite.suite_report import CELL_COLUMNS

    rows = re.findall(
        r"^\| `(?:to|instances)_frame\(\)` of .*? \| .*? \| (.*) \|$", PAGE, re.MULTILINE
    )
    told = [[name for name in re.findall(r"`([\w.]+)`", row) if "." not in name] for row in rows]
    shown = (SCORE_COLUMNS, INSTANCE_COLUMNS, PAIR_COLUMNS, CELL_COLUMNS, FLIP_COLUMNS)
    assert told == [list(columns) for columns in shown]


def test_to_import_the_package_is_to_import_nothing_else() -> None:
    code = (
        "import sys; before = {*sys.modules}; import eval_factory; print(*{*sys.modules} - before)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert ran.stdout.split() == ["eval_factory"]


WAITING = """
import sys, time
from eval_factory import InterruptedRunError, evaluate
from eval_factory.workflows import evaluate as workflow
helm_run = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]
workflow.shown_command = lambda plan, **how: helm_run
try:
    evaluate({
        "config": {"type": "sample_medical_qa", "output_dir": "out"},
        "target": {"api_endpoint": {"url": "demo://baseline", "model_id": "m"}},
    })
except InterruptedRunError as error:
    print(error.exit_code, type(error.__cause__).__name__)
"""


def test_the_stop_button_of_a_notebook_ends_helm_run_and_not_the_notebook(tmp_path: Path) -> None:
    """In the place of helm-run, a program that would wait for ten minutes."""
    cells = [{"id": "run", "source": WAITING}, {"id": "next", "source": "'the next cell'"}]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "support" / "notebook_process.py")],
        cwd=tmp_path,
        env=program_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps([cells]))
        process.stdin.close()
        process.stdin = None
        started = program_of(tmp_path / "out", process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    (outcome,) = json.loads(out)
    assert outcome["run"]["printed"] == "130 NoneType\n"
    assert outcome["next"]["text"] == "'the next cell'"
    assert not Path(f"/proc/{started}").exists()
    assert not (tmp_path / "out" / ".lock.holder.json").exists()


def program_of(folder: Path, process: subprocess.Popen[str]) -> int:
    """The process id of what stands for helm-run, once it has started."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        log = folder / "logs" / "helm-run.log"
        holder = folder / ".lock.holder.json"
        if log.is_file() and "begun" in log.read_text("utf-8"):
            found = json.loads(holder.read_text("utf-8"))["program"]
            if found:
                return int(found)
        time.sleep(0.02)
    raise AssertionError(f"helm-run was not started: {process.poll()}")
