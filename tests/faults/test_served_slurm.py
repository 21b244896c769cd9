"""Serve and evaluate in one job, on a real Slurm: one task starts the server, and does all cells of its model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from integration.executors.test_server_process import pids
from program_runs import CANARY
from programs import Finished, holding
from slurm_trial import processes, run_suite, table, until
from virtual_slurm import VirtualSlurm, virtual_slurm

SERVER = Path(__file__).resolve().parents[1] / "support" / "model_server.py"
INSTANCES = 2


@dataclass(frozen=True)
class Served:
    """What was seen of one suite."""

    folder: Path
    done: Finished
    left: list[int]
    """Processes of the server when the task had ended."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualSlurm]:
    with virtual_slurm(tmp_path_factory.mktemp("slurm") / "c") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def served(cluster: VirtualSlurm, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Two cells of one model."""
    folder = tmp_path_factory.mktemp("served")
    section = {
        "output_dir": str(folder / "out"),
        "executor": "slurm",
        "slurm": {"time": "0:10:00"},
        "params": {"limit_samples": INSTANCES, "parallelism": 1},
        "evaluations": [
            "sample_medical_qa",
            {"type": "sample_medical_qa", "name": "warm", "params": {"temperature": 0.5}},
        ],
        "targets": [
            {
                "name": "small",
                "api_endpoint": {"model_id": "my/model", "api_key": "OPENAI_API_KEY"},
                "serve": {
                    "command": f"{sys.executable} {SERVER} {{port}} {folder} child",
                    "stop_grace_s": 1,
                },
            }
        ],
    }
    file = folder / "suite.yml"
    file.write_text(yaml.safe_dump({"suite": section}), "utf-8")
    done = run_suite(file, cluster, "--wait")
    until(lambda: not cluster.tasks())  # the task's last act is to delete its keys
    left = processes(SERVER.name, folder)  # while the node is there, whose end would end them
    return Served(folder, done, left)


def test_one_task_does_all_cells_of_a_model(served: Served) -> None:
    folder = served.folder
    done = served.done
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["status"] for row in table(folder / "out")] == ["complete", "complete"]
    (wave,) = [
        json.loads(path.read_text()) for path in (folder / "out/.suite/slurm/waves").glob("w*.json")
    ]
    assert (len(wave["runs"]), wave["together"]) == (2, True)
    log = (folder / "out/.suite/slurm/logs/w1/0.log").read_text()
    assert log.count("starting the server") == 1


def test_every_question_is_asked_once(served: Served) -> None:
    assert len((served.folder / "requests.jsonl").read_text().splitlines()) == 2 * INSTANCES


def test_no_server_and_no_key_is_left(served: Served) -> None:
    folder = served.folder
    assert len(pids(folder)) == 2, "it and its child have said who they are"
    assert served.left == []
    assert holding(folder, CANARY) == []
    assert CANARY not in (folder / "environment.json").read_text()


def test_two_servers_of_one_job_are_on_two_nodes_and_one_of_them_dies(
    cluster: VirtualSlurm, tmp_path: Path
) -> None:
    """It is started again as another step, at its port; the cell goes on meanwhile."""
    section = {
        "output_dir": str(tmp_path / "out"),
        "executor": "slurm",
        "slurm": {"time": "0:10:00", "cpus": 2, "mem": "500M"},  # a node has two
        "params": {"limit_samples": 40, "parallelism": 4},
        "evaluations": ["sample_medical_qa"],
        "targets": [
            {
                "name": "small",
                "api_endpoint": {"model_id": "my/model", "api_key": "OPENAI_API_KEY"},
                "serve": {
                    "command": f"{sys.executable} {SERVER} {{port}} {tmp_path} child takes=0.3 die_after=3",
                    "stop_grace_s": 1,
                    "replicas": 2,
                    "env": ["NUMBER={replica}"],
                },
            }
        ],
    }
    (tmp_path / "suite.yml").write_text(yaml.safe_dump({"suite": section}), "utf-8")
    done = run_suite(tmp_path / "suite.yml", cluster, "--wait")
    until(lambda: not cluster.tasks())
    left = processes(SERVER.name, tmp_path)
    log = (tmp_path / "out/.suite/slurm/logs/w1/0.log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert [row["status"] for row in table(tmp_path / "out")] == ["complete"]
    starts = [line for line in log.splitlines() if line.startswith("starting the server of small")]
    assert len(starts) == 3
    assert {" of n" in line for line in starts} == {True, False}, (
        "one is where the task is, the other elsewhere"
    )
    assert log.count("exit code 7") == 1
    assert "was lost" not in log
    asked = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert (
        len({one["prompt"] for one in asked})
        <= len(asked)
        <= len({one["prompt"] for one in asked}) + 2
    )
    folder = next((tmp_path / "out/.suite/slurm/tasks/small").iterdir())
    assert {path.name for path in (folder / ".suite/servers").iterdir()} == {
        "small@0.log",
        "small@1.log",
    }
    assert left == []
    assert holding(tmp_path, CANARY) == []
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["NUMBER"] in {"0", "1"}
