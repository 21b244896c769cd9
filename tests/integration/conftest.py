"""The real program, the real helm-run, an endpoint on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import program_runs
from program_runs import CANARY, TIMEOUT_S, Outcome, Run, program_environment, varied_answer
from scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def as_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program of the test is a process: one is killed, or its variables are looked for."""
    monkeypatch.setattr(program_runs, "runs_here", lambda *_: False)


@pytest.fixture
def run_program(tmp_path: Path) -> Run:
    """Runs `eval-factory run_eval` with a config written for it; keyword `extra` goes under params.extra."""

    def run(
        task: str,
        url: str,
        *arguments: str,
        params: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        output_dir: Path | None = None,
        model_id: str = "test/model",
        model_type: str = "chat",
    ) -> Outcome:
        folder = output_dir or tmp_path / "out"
        config = {
            "config": {"type": task, "output_dir": str(folder), "params": params or {}},
            "target": {
                "api_endpoint": {
                    "url": url,
                    "model_id": model_id,
                    "type": model_type,
                    "api_key": "TEST_MODEL_KEY",
                }
            },
        }
        file = tmp_path / (re.sub(r"\W", "_", task)[:60] + ".yml")
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        argv = [*program_runs.PROGRAM, "run_eval", "--run_config", str(file), *arguments]
        seen = program_environment(**{"TEST_MODEL_KEY": CANARY, **(env or {})})
        finished = program_runs.run(argv, cwd=tmp_path, env=seen)
        return Outcome(finished.returncode, finished.stdout, finished.stderr, folder)

    return run


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(varied_answer) as server:
        yield server


@pytest.fixture(scope="session")
def data_environment(
    medical_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Variables under which Hugging Face data sets are read from a cache made of the real data."""
    home = tmp_path_factory.mktemp("hf")
    prepare = medical_data / "prepare.py"
    subprocess.run(
        [
            sys.executable,
            str(prepare),
            "--hf-home",
            str(home),
            "--only",
            "medcalc_bench,head_qa,medi_qa",
        ],
        env=program_environment(HF_HUB_OFFLINE="1"),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(home),
        "NLTK_DATA": str(medical_data / "nltk_data"),
    }


@pytest.fixture(scope="session")
def place_data(medical_data: Path) -> Callable[[Path, str], None]:
    """Puts a task's downloaded files where HELM looks for them under its output path."""

    def place(helm_dir: Path, task: str) -> None:
        subprocess.run(
            [
                sys.executable,
                str(medical_data / "prepare.py"),
                "--output-path",
                str(helm_dir),
                "--only",
                task,
            ],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )

    return place
