"""A model that the suite serves itself, on this machine: the server is lost on the way, and the suite goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from facts import says
from integration.executors.test_server_process import pids
from program_runs import CANARY, is_running, program

SERVER = Path(__file__).resolve().parents[3] / "support" / "model_server.py"
INSTANCES = 4
JUDGE_KEY = "sk-judge-0a1b2c3d4e5f60718293"


@dataclass
class Served:
    """What a suite of one cell came to."""

    folder: Path
    file: Path
    done: subprocess.CompletedProcess[str]

    def again(self) -> subprocess.CompletedProcess[str]:
        return run_suite(self.file)

    def result(self) -> Any:
        return yaml.safe_load(
            (self.folder / "out/small/sample_medical_qa/evaluation_config.yaml").read_text("utf-8")
        )

    def asked(self) -> int:
        return len((self.folder / "requests.jsonl").read_text().splitlines())


def run_suite(file: Path) -> subprocess.CompletedProcess[str]:
    env = {
        "OPENAI_API_KEY": CANARY,
        "GPT_JUDGE_API_KEY": JUDGE_KEY,
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    return program("run_suite", "--run_config", str(file), cwd=file.parent, **env)


def served_suite(folder: Path, words: str, params: dict[str, int], **serve: object) -> Served:
    target = {
        "name": "small",
        "api_endpoint": {"model_id": "my/model", "api_key": "OPENAI_API_KEY"},
        "serve": {
            "command": f"{sys.executable} {SERVER} {{port}} {folder} {words}",
            "stop_grace_s": 0.5,
            **serve,
        },
    }
    section = {
        "output_dir": str(folder / "out"),
        "evaluations": ["sample_medical_qa"],
        "params": params,
    }
    file = folder / "suite.yml"
    file.write_text(yaml.safe_dump({"suite": {**section, "targets": [target]}}), "utf-8")
    return Served(folder, file, run_suite(file))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    params = {"limit_samples": INSTANCES, "parallelism": 1}
    return served_suite(tmp_path_factory.mktemp("served"), "child slow=0.5 die_after=2", params)


def test_what_was_answered_before_the_server_died_is_not_asked_again(served: Served) -> None:
    assert served.done.returncode == 0, served.done.stdout + served.done.stderr
    says(served.done.stderr, "server of small", "exit code 7", "(1 of 2)")
    says(served.done.stderr, "server of its model")
    assert served.asked() == INSTANCES + 1  # the one that was in flight
    assert served.result()["status"] == "complete"
    assert served.result()["target"]["api_endpoint"]["url"].startswith("served://python")


def test_its_server_is_gone_and_has_seen_no_other_key_than_that_of_its_requests(
    served: Served,
) -> None:
    assert len(pids(served.folder)) == 4
    assert not any(map(is_running, pids(served.folder)))
    seen = (served.folder / "environment.json").read_text()
    assert "PYTHONUNBUFFERED" in seen
    assert CANARY not in seen
    assert JUDGE_KEY not in seen
    log = (served.folder / "out/.suite/servers/small.log").read_text()
    assert "asked with Bearer [API_KEY_REDACTED]" in log
    found = subprocess.run(
        ["grep", "-rlE", f"{CANARY}|{JUDGE_KEY}", served.folder], capture_output=True, check=False
    )
    assert found.stdout == b""


def test_the_same_command_again_needs_no_server_though_the_port_would_be_another(
    served: Served,
) -> None:
    asked = served.asked()
    started = len(pids(served.folder))
    again = served.again()
    assert again.returncode == 0, again.stderr
    assert "starting the server" not in again.stderr
    assert (served.asked(), len(pids(served.folder))) == (asked, started)


def test_of_three_servers_one_dies_in_the_middle_and_nothing_is_lost(tmp_path: Path) -> None:
    """It comes back at its port. Nothing is asked twice but what was in flight there, and no cell is started again."""
    params = {"limit_samples": 40, "parallelism": 6}
    served = served_suite(tmp_path, "takes=0.2 die_after=3", params, replicas=3)
    said = served.done.stdout + served.done.stderr
    assert served.done.returncode == 0, said
    assert served.result()["status"] == "complete"
    assert said.count("exit code 7") == 1
    assert "server of its model" not in said
    asked = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    prompts = {one["prompt"] for one in asked}
    assert len(prompts) <= len(asked) <= len(prompts) + 2  # six go on at once, at three servers
    counts = Counter(one["pid"] for one in asked)
    assert {*counts} <= {*pids(tmp_path)}
    assert len([pid for pid in counts if counts[pid] > 4]) >= 2
    assert sorted(path.name for path in (tmp_path / "out/.suite/servers").iterdir()) == [
        "small@0.log",
        "small@1.log",
        "small@2.log",
    ]
    assert not any(map(is_running, pids(tmp_path)))
    assert served.again().returncode == 0
