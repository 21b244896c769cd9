"""Exports as the programs read them that they are for, in `.venv-exports`, which `nox -s exports` makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.demo.server import DemoServer
from program_runs import program_environment

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-exports" / "bin" / "python"
PYTHON_HERE = sys.executable
KINDS = ("choice", "jury", "rubric")
READ = """
import json, sys
from inspect_ai.analysis import evals_df, samples_df
from inspect_ai.log import list_eval_logs, read_eval_log
found = {}
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    keys = {(one.id, one.epoch) for one in log.samples}
    found[log.eval.task] = {
        "status": log.status, "samples": len(keys), "score": log.results.scores[0].metrics["mean"].value,
        "answers": sum(bool(one.output.completion) for one in log.samples),
        "scored": sum(bool(one.scores) for one in log.samples),
    }
rows = len(evals_df(sys.argv[1])), len(samples_df(sys.argv[1]))
print(json.dumps({"logs": found, "rows": rows}))
"""

pytestmark = pytest.mark.skipif(
    not PYTHON.is_file(),
    reason="needs inspect_ai and wandb in .venv-exports: .venv-lint/bin/nox -s exports makes it",
)


def run(*command: str, cwd: Path) -> str:
    finished = subprocess.run(
        command,
        cwd=cwd,
        env=program_environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind on a server with the embedded endpoint's answers: a demo's own result is
    not exported.
    """
    folder = tmp_path_factory.mktemp("kinds")
    with DemoServer() as endpoint:
        for kind in KINDS:
            run(
                PYTHON_HERE, "-m", "eval_factory", "new_benchmark", kind, "--kind", kind, cwd=folder
            )
            config = folder / kind / "run_config.yml"
            text = config.read_text("utf-8").replace("demo://baseline", endpoint.base_url)
            config.write_text(text, encoding="utf-8")
            command = ("run_eval", "--run_config", str(config), "--output_dir", f"results/{kind}")
            run(PYTHON_HERE, "-m", "eval_factory", *command, cwd=folder)
    return folder


def test_inspects_own_reader_loads_each_kind_of_run(results: Path) -> None:
    folders = [f"results/{kind}" for kind in KINDS]
    run(
        sys.executable,
        "-m",
        "eval_factory",
        "export",
        "inspect",
        *folders,
        "-o",
        "logs",
        "--with_texts",
        cwd=results,
    )
    read = json.loads(run(str(PYTHON), "-c", READ, "logs", cwd=results))
    assert len(read["logs"]) == len(KINDS)
    for task, log in read["logs"].items():
        assert log["status"] == "success", task
        assert log["samples"] == log["answers"] == log["scored"] > 0, task
    assert read["rows"] == [len(KINDS), sum(log["samples"] for log in read["logs"].values())]


def test_wandb_has_a_run_of_the_result_and_nothing_is_sent(results: Path) -> None:
    run(
        str(PYTHON),
        "-m",
        "eval_factory",
        "export",
        "wandb",
        "results/choice",
        "-o",
        "wandb-runs",
        cwd=results,
    )
    (written,) = (results / "wandb-runs" / "wandb").glob("offline-run-*/*.wandb")
    content = written.read_bytes()
    for known in (
        b"exact_match.ci_low",
        b"eval_factory.run_identity",
    ):
        assert known in content
