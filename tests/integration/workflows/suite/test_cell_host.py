"""Processes of cells: they do what `run_eval` does, stop when they are told to, and end with who began them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from eval_factory.workflows.suite.cell_host import Began, CellHost, EndedProcess
from eval_factory.workflows.suite.cell_outcome import CellSpec, end_of
from eval_factory.workflows.suite.cell_process import SAFE_TO_FORK
from integration.support import program_environment

WAIT_S = 60.0
ENV = program_environment(OPENAI_API_KEY="sk-canary-5f3a9c1e7b2d4860aa")


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that takes connections and says nothing: a run that asks it first waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def spec_of(folder: Path, number: int, url: str, task: str = "sample_medical_qa") -> CellSpec:
    config = {
        "config": {"type": task, "output_dir": str(folder / f"out{number}")},
        "target": {"api_endpoint": {"url": url, "model_id": "m"}},
    }
    file = folder / f"cell{number}.yml"
    file.write_text(yaml.safe_dump(config))
    return CellSpec(number, str(file), str(folder / f"cell{number}.log"), str(folder / f"cell{number}.json"))


def until_ended(host: CellHost, *numbers: int) -> dict[int, Began | EndedProcess]:
    """The last that was heard of each."""
    heard: dict[int, Began | EndedProcess] = {}
    deadline = time.monotonic() + WAIT_S
    while not all(isinstance(heard.get(number), EndedProcess) for number in numbers):
        assert time.monotonic() < deadline, heard
        heard |= {told.number: told for told in host.wait(1.0)}
    return heard


def pids_of(host: CellHost, count: int) -> list[int]:
    pids: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(pids) < count:
        assert time.monotonic() < deadline
        pids += [told.pid for told in host.wait(1.0) if isinstance(told, Began)]
    return pids


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def asks(folder: Path, number: int) -> bool:
    """Its folder is held: what comes next is the first question."""
    return (folder / f"out{number}" / "logs" / "eval-factory.log").is_file()


@pytest.mark.parametrize(
    "fork",
    [
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                not SAFE_TO_FORK, reason="needs a system on which a process may fork safely (Linux)"
            ),
        ),
        False,
    ],
)
def test_cells_end_by_themselves_or_when_they_are_told_to(fork: bool, silent: str, tmp_path: Path) -> None:
    with CellHost(ENV, tmp_path / "host.log", fork=fork) as host:
        wrong = spec_of(tmp_path, 1, silent, "no_such_task")
        host.begin(wrong)
        assert until_ended(host, 1)[1] == EndedProcess(1, 2)
        end = end_of(2, Path(wrong.record))
        assert (end.error_type, end.has_result) == ("ConfigError", False)
        assert "there is no task 'no_such_task'" in (end.error or "")
        assert "there is no task 'no_such_task'" in Path(wrong.log).read_text()
        assert Path(wrong.log).stat().st_mode & 0o777 == Path(wrong.record).stat().st_mode & 0o777 == 0o600
        waiting = spec_of(tmp_path, 2, silent)
        host.begin(waiting)
        (pid,) = pids_of(host, 1)
        deadline = time.monotonic() + WAIT_S
        while not asks(tmp_path, 2):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert os.getpgid(pid) == pid, "Ctrl-C in the suite's terminal would reach it"
        assert host.running == 1
        assert host.interrupt() == [EndedProcess(2, 130)]
        assert host.running == 0
        assert json.loads(Path(waiting.record).read_text())["exit_code"] == 130
        assert not is_running(pid)


def test_a_cell_that_is_killed_costs_no_other(silent: str, tmp_path: Path) -> None:
    """Also the process that begins them: the next cell gets another."""
    with CellHost(ENV, tmp_path / "host.log", fork=False) as host:
        for number in (1, 2):
            host.begin(spec_of(tmp_path, number, silent))
        first, second = pids_of(host, 2)
        os.kill(first, signal.SIGKILL)
        assert until_ended(host, 1)[1] == EndedProcess(1, -9)
        assert host.running == 1
        parent = int(Path(f"/proc/{second}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert until_ended(host, 2)[2] == EndedProcess(2, -9)
        wait_until_gone([second])
        host.begin(spec_of(tmp_path, 3, silent, "no_such_task"))
        assert until_ended(host, 3)[3] == EndedProcess(3, 2)


DRIVER = """
import os, sys, time
from pathlib import Path
from eval_factory.workflows.suite.cell_host import CellHost
from eval_factory.workflows.suite.cell_outcome import CellSpec
host = CellHost(os.environ, Path(sys.argv[1]), fork=False)
host.begin(CellSpec.of_line(sys.argv[2]))
while True:
    for told in host.wait(1.0):
        print(told.pid, flush=True)
"""


def test_cells_end_with_the_suite_that_is_killed(silent: str, tmp_path: Path) -> None:
    line = spec_of(tmp_path, 1, silent).line()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "log"), line], env=ENV, stdout=subprocess.PIPE
    ) as suite:
        assert suite.stdout is not None
        pid = int(suite.stdout.readline())
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        suite.kill()
    wait_until_gone([pid, parent])
    assert not (tmp_path / "cell1.json").exists(), "it ended by itself"
