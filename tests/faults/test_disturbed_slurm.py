"""A suite on a real Slurm of three nodes, disturbed on its way: every cell published once, the same numbers as here."""

from __future__ import annotations

import csv
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.support import CANARY, program_environment, varied_answer
from scripted_endpoint import ScriptedEndpoint
from virtual_slurm import VirtualSlurm, virtual_slurm

INSTANCES = 6
TARGETS = ("first", "second", "third")
PATIENCE_S = 150.0
KILLS_ITS_CALLER = '#!/bin/bash\n"{real}" "$@" > "{folder}/job"\nkill -9 $PPID\n'
FAILS_TWICE = """#!/bin/bash
echo x >> "{folder}/asked"
if (($(wc -l < "{folder}/asked") <= 2)); then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
exec "{real}" "$@"
"""


@dataclass
class Disturbed:
    """What was seen of one suite."""

    folder: Path
    after_the_kill: list[tuple[str, str, str]]
    second: subprocess.CompletedProcess[str]
    last: subprocess.CompletedProcess[str]
    lost_node: str
    asked: int
    failed_queue: int
    keys_while_it_ran: list[int]
    found_keys: list[str]


def suite_file(folder: Path, url: str, names: tuple[str, ...] = TARGETS) -> Path:
    targets = [{"name": name, "api_endpoint": {"url": url, "model_id": name, "type": "chat"}} for name in names]
    section = {
        "output_dir": str(folder / "out"), "slurm": {"tasks_at_once": 3}, "evaluations": ["sample_medical_qa"],
        "targets": targets, "params": {"limit_samples": INSTANCES},
    }  # fmt: skip
    path = folder / "suite.yml"
    path.write_text(yaml.safe_dump({"suite": section}), "utf-8")
    return path


def stand_in(folder: Path, name: str, text: str) -> Path:
    """A folder for PATH, in which a command of Slurm's is another."""
    folder.mkdir()
    real = f"/usr/bin/{name}"
    (folder / name).write_text(text.format(real=real, folder=folder), "utf-8")
    (folder / name).chmod(0o755)
    return folder


def until(holds: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.2)
    return found


def run_suite(
    file: Path, cluster: VirtualSlurm | None, *arguments: str, path: Path | None = None
) -> subprocess.Popen[str]:
    env = program_environment(OPENAI_API_KEY=CANARY, **({} if cluster is None else {"SLURM_CONF": str(cluster.conf)}))
    if path is not None:
        env["PATH"] = f"{path}{os.pathsep}{env['PATH']}"
    argv = [sys.executable, "-m", "eval_factory", "run_suite", "--run_config", str(file), *arguments]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "suite_results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disturbed]:
    """The submitter is killed after sbatch; then a task is cancelled, a node is lost, and squeue fails for a while."""
    folder = tmp_path_factory.mktemp("suite")
    go_on = threading.Event()

    def answer(prompt: str) -> str:
        if len(endpoint.requests) > len(TARGETS):
            go_on.wait(PATIENCE_S)
        return varied_answer(prompt)

    with virtual_slurm(folder / "slurm") as cluster, ScriptedEndpoint(answer) as endpoint:
        try:
            file = suite_file(folder, endpoint.url)
            killing = stand_in(folder / "killing", "sbatch", KILLS_ITS_CALLER)
            first = ended(run_suite(file, cluster, "--executor", "slurm", path=killing))
            assert first.returncode == -signal.SIGKILL
            after_the_kill = cluster.tasks()
            second = ended(run_suite(file, cluster, "--executor", "slurm"))
            waves = folder / "out" / ".suite" / "slurm" / "waves"
            running = until(
                lambda: [one for one in cluster.tasks() if one[1] == "RUNNING" and len(endpoint.requests) > 2]
            )
            modes = [stat.S_IMODE(path.stat().st_mode) for path in waves.glob("*.env")]
            (lost, _, node), (cancelled, _, _) = running[0], running[-1]
            assert lost != cancelled
            cluster.do("node-kill", node)
            job, number = (folder / "killing" / "job").read_text().strip(), cancelled.rpartition("_")[2]
            cluster.ask("scancel", f"{job}_{number}")
            go_on.set()
            until(lambda: cancelled not in [name for name, _, _ in cluster.tasks()])
            failing = stand_in(folder / "failing", "squeue", FAILS_TWICE)
            last = ended(run_suite(file, cluster, "--executor", "slurm", "--wait", path=failing))
            asked = len((folder / "failing" / "asked").read_text().splitlines())
            found = subprocess.run(["grep", "-rl", CANARY, str(folder)], capture_output=True, text=True, check=False)
            yield Disturbed(
                folder / "out", after_the_kill, second, last, node, len(endpoint.requests), asked, modes,
                found.stdout.splitlines(),
            )  # fmt: skip
        finally:
            go_on.set()


def test_what_a_killed_submitter_has_submitted_is_not_submitted_again(disturbed: Disturbed) -> None:
    assert len(disturbed.after_the_kill) == 3
    assert disturbed.second.returncode == 0, disturbed.second.stderr
    assert "submitted" not in disturbed.second.stderr
    assert "\n3 cells: 3 missing\nsubmitted to Slurm: the same command" in disturbed.second.stdout


def test_every_cell_is_complete_in_spite_of_all(disturbed: Disturbed) -> None:
    assert disturbed.last.returncode == 0, disturbed.last.stdout + disturbed.last.stderr
    assert "3 cells: 3 complete" in disturbed.last.stdout
    assert disturbed.failed_queue > 2
    assert "squeue does not say what is queued: slurm_load_jobs error" in disturbed.last.stderr
    store = disturbed.folder / ".suite" / "slurm"
    waves = [json.loads(path.read_text()) for path in sorted((store / "waves").glob("w*.json"))]
    assert [len(wave["keys"]) for wave in waves] == [3, 1]  # only what was cancelled is submitted again
    begun = [len(list(cell.glob("attempts/*"))) for cell in store.glob("cells/*/*/*")]
    assert sorted(begun) == [1, 2, 2]
    assert len(list(store.glob("cells/*/*/*/done.json"))) == 3


def test_nothing_is_paid_twice_but_what_was_in_flight(disturbed: Disturbed) -> None:
    """Two of the tasks were ended while each waited for one answer."""
    needed = INSTANCES * len(TARGETS)
    assert needed <= disturbed.asked <= needed + 2


def test_keys_were_in_files_of_their_user_alone_and_are_gone(disturbed: Disturbed) -> None:
    assert disturbed.keys_while_it_ran == [0o600]
    assert disturbed.found_keys == []


def test_the_table_is_that_of_this_machine_alone(disturbed: Disturbed, tmp_path: Path) -> None:
    """One cell is enough: the endpoint answers all models alike."""
    with ScriptedEndpoint(varied_answer) as endpoint:
        here = ended(run_suite(suite_file(tmp_path, endpoint.url, TARGETS[:1]), None))
    assert here.returncode == 0, here.stderr
    (expected,) = table(tmp_path / "out")
    assert expected["value"]
    for name, row in zip(TARGETS, table(disturbed.folder), strict=True):
        assert row == {column: value.replace(TARGETS[0], name) for column, value in expected.items()}
