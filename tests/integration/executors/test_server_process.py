"""Real servers as processes: how each of their ends is told, and that nothing is left of any."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.executors import served_model
from eval_factory.executors.free_port import free_port
from eval_factory.executors.served_model import ServedModel, ServerFailedError, ServerSpec
from scripted_endpoint import ScriptedEndpoint

TESTS = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
KEY = "a-known-key-value-1"
OWNER = """
import sys, time
from integration.executors.test_server_process import spec_of
from eval_factory.executors.served_model import ServedModel
from pathlib import Path
with ServedModel(spec_of(Path(sys.argv[1]), "child"), print) as server:
    server.start()
    print("ready", flush=True)
    time.sleep(600)
"""


def spec_of(folder: Path, *words: str, **changes: object) -> ServerSpec:
    spec = ServerSpec(
        name="small",
        argv=lambda port: [sys.executable, str(TESTS / "model_server.py"), str(port), str(folder), *words],
        health=lambda port: f"http://127.0.0.1:{port}/health",
        log=folder / "log" / "small.log",
        env={"PATH": os.environ["PATH"], "GIVEN": "x"},
        secrets=(KEY,),
        start_time_limit_s=PATIENCE_S,
        hang_time_limit_s=PATIENCE_S,
        stop_grace_s=0.5,
        max_restarts=1,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.05)


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def failure(folder: Path, *words: str, **changes: object) -> str:
    with (
        ServedModel(spec_of(folder, *words, **changes), lambda _: None) as server,
        pytest.raises(ServerFailedError) as it,
    ):
        server.start()
    assert not any(map(is_alive, pids(folder)) if (folder / "pids").exists() else [])
    return str(it.value)


def test_one_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    first, *lines = failure(tmp_path, "exits=3").splitlines()
    assert first.startswith(
        f"the server of small ended with exit code 3 before it was ready; see {tmp_path}/log/small.log"
    )
    assert lines == ["  its last lines:", "    no such model"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert failure(tmp_path, argv=lambda _: ["no-such-program-xyz"]) == (
        "the server of small cannot be started: No such file or directory (no-such-program-xyz); install it, or write"
        " its whole path in serve.command"
    )


def test_one_that_never_gets_ready(tmp_path: Path) -> None:
    said = failure(tmp_path, "never", "child", start_time_limit_s=1.0)
    assert "did not get ready: http://127.0.0.1:" in said
    assert "did not answer with 200 within 1 s; see" in said


def test_one_that_dies_is_started_again_so_often(tmp_path: Path) -> None:
    said: list[str] = []
    with ServedModel(spec_of(tmp_path, "child"), said.append) as server:
        server.start()
        assert (server.lost(), server.is_ready()) == (None, True)
        first, child = pids(tmp_path)
        os.kill(first, signal.SIGKILL)
        until(lambda: server.lost() is not None)
        until(lambda: not is_alive(child))  # ignores SIGTERM
        before = server.address
        server.start_again(server.lost() or "")
        assert said[-3].endswith("the server of small was ended by signal 9; it is started again (1 of 1)")
        assert server.address != before
        assert server.is_ready()
        seen = json.loads((tmp_path / "environment.json").read_text())
        assert (seen["GIVEN"], "HOME" in seen) == ("x", False)
        with pytest.raises(ServerFailedError, match=r"small hangs, and is not started again \(serve.max_restarts: 1\)"):
            server.start_again("hangs")
    assert not any(map(is_alive, pids(tmp_path)))


def test_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "WATCHED_EVERY_S", 0.05)
    monkeypatch.setattr(served_model, "LONGEST_ANSWER_S", 0.5)
    with ServedModel(spec_of(tmp_path, hang_time_limit_s=1.5), lambda _: None) as server:
        server.start()
        time.sleep(1.6)
        assert server.lost() is None
        os.kill(pids(tmp_path)[0], signal.SIGSTOP)
        until(lambda: server.lost() is not None)
        assert "hangs: http://127.0.0.1:" in (server.lost() or "")
        server.start_again("hangs")
        assert server.lost() is None
    assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.parametrize("words", [["slow=0"], ["slow=30"]], ids=["which cannot have it", "which is slow"])
def test_a_port_that_somebody_else_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """The other one answers the health URL, too."""
    said: list[str] = []
    with ScriptedEndpoint(lambda prompt: prompt) as other:
        taken = int(other.url.split(":")[2].partition("/")[0])
        found = [taken, free_port()]
        monkeypatch.setattr(served_model, "free_port", lambda: found.pop(0))
        monkeypatch.setattr(served_model, "HEALTHY", 501)  # of the other one, which takes no GET
        argv = spec_of(tmp_path).argv
        changed = {"argv": lambda port: [*argv(port), *(words if port == taken else ["gets=501"])]}
        with ServedModel(spec_of(tmp_path, **changed), said.append) as server:
            server.start()
            assert not server.address.endswith(str(taken))
    assert said[1] == f"the server of small: somebody else has taken port {taken}; another is tried"
    assert not any(map(is_alive, pids(tmp_path)))


def test_nothing_is_left_when_its_owner_is_killed(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS)}
    argv = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert any(line == "ready\n" for line in owner.stdout)
        found = pids(tmp_path)
        assert [is_alive(pid) for pid in found] == [True, True]
        owner.kill()
    until(lambda: not any(map(is_alive, found)))
