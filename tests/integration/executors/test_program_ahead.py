"""A process that is begun before its work is known: a small program of the test's own in helm-run's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.core.rundir import RunDir
from eval_factory.executors.base import Finished, ProcessSpec
from eval_factory.executors.process import run_logged
from eval_factory.executors.program_ahead import ProgramAhead
from integration.executors.test_server_process import is_alive

KEY = "a-known-key-value-1"
PROGRAM = [sys.executable, "-m", "the_program"]
AHEAD = """
import json, os, resource, sys, time
from pathlib import Path
from eval_factory.core.handed_over import received
import socket

def main(descriptor):
    import beside
    folder = Path(os.environ["FOLDER"])
    (folder / "ahead.json").write_text(json.dumps([os.getpid(), dict(os.environ), sys.path, beside.__file__]))
    print("imported", flush=True)
    with socket.socket(fileno=descriptor) as source:
        told = received(source)
    if told is None:
        os._exit(0)
    told.take()
    print(told.arguments, os.environ["KEY"], sorted(os.environ), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module to be begun, and another folder to stand in, in which a module lies that nobody asked for."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "modules" / "the_ahead.py").write_text(AHEAD)
    (tmp_path / "modules" / "beside.py").write_text("")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "beside.py").write_text("raise ValueError('of the current folder')")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def ahead(folder: Path) -> Iterator[ProgramAhead]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "modules"), "FOLDER": str(folder)}
    begun = ProgramAhead("the_ahead", PROGRAM, env)
    yield begun
    begun.end()


def pid_of(folder: Path) -> int:
    deadline = time.monotonic() + 30
    while not (file := folder / "ahead.json").is_file() or not file.read_text().endswith("]"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(file.read_text()[1:].partition(",")[0])


def run(folder: Path, ahead: ProgramAhead, argv: list[str]) -> Finished:
    with RunDir(folder / "out").locked() as lock:
        env = {"KEY": KEY, "FOLDER": "another"}
        spec = ProcessSpec(argv, env, RunDir(folder / "out"), lock, "run", Redactor([KEY]))
        return run_logged(spec, log=folder / "log", on_tick=lambda: None, ahead=ahead)


def test_it_becomes_the_program(folder: Path, ahead: ProgramAhead) -> None:
    pid = pid_of(folder)
    seen = (folder / "ahead.json").read_text()
    assert "KEY" not in seen
    finished = run(folder, ahead, [*PROGRAM, "-a", "b c"])
    assert finished.returncode == 7
    limit = os.sysconf("SC_OPEN_MAX")
    assert finished.tail == ("imported", f"['-a', 'b c'] {REDACTED} ['FOLDER', 'KEY'] {limit}")
    assert not is_alive(pid)
    ahead.end()


def test_it_is_nobody_elses_program(folder: Path, ahead: ProgramAhead) -> None:
    pid = pid_of(folder)
    other = [sys.executable, "-c", "print('another')"]
    assert run(folder, ahead, other) == Finished(0, ("another",))
    assert is_alive(pid)
    ahead.end()
    assert not is_alive(pid)
    ahead.end()


def test_one_that_is_gone_is_not_needed(folder: Path, ahead: ProgramAhead) -> None:
    os.kill(pid_of(folder), signal.SIGKILL)
    modules = folder / "modules" / "the_program.py"
    modules.write_text("print('begun now')")
    deadline = time.monotonic() + 30
    while is_alive(pid_of(folder)):
        assert time.monotonic() < deadline
    with RunDir(folder / "out").locked() as lock:
        env = {"PYTHONPATH": str(modules.parent)}
        spec = ProcessSpec(PROGRAM, env, RunDir(folder / "out"), lock, "run", Redactor())
        finished = run_logged(spec, log=folder / "log", on_tick=lambda: None, ahead=ahead)
    assert finished == Finished(0, ("begun now",))


def test_it_holds_the_lock_of_the_folder(folder: Path, ahead: ProgramAhead) -> None:
    """Nobody else may write there while it lives, even when whoever started it is gone."""
    source = folder / "modules" / "the_ahead.py"
    source.write_text(source.read_text().replace("sys.exit(7)", "time.sleep(60)"))
    second = ProgramAhead("the_ahead", PROGRAM, {"PYTHONPATH": str(source.parent), "FOLDER": str(folder), "PATH": ""})
    ahead.end()
    with RunDir(folder / "out").locked() as lock:
        process = second.become(ProcessSpec(PROGRAM, {"KEY": ""}, RunDir(folder / "out"), lock, "run", Redactor()))
        assert process is not None
        lock.share_with(process.pid)
    try:
        busy = subprocess.run(["flock", "-n", str(RunDir(folder / "out").lock_file), "true"], check=False)
        assert busy.returncode == 1
    finally:
        process.kill()
        process.communicate()


def test_it_ends_where_whoever_began_it_is_killed(folder: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from eval_factory.executors.program_ahead import ProgramAhead\n"
        "begun = ProgramAhead('the_ahead', ['x'], dict(os.environ))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(folder / "modules"), "FOLDER": str(folder)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == -signal.SIGKILL
    pid = pid_of(folder)
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
