"""Real servers as processes: how each of their ends is told, and that nothing is left of any."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.executors import served
from eval_factory.executors.served import (
    ServedModel,
    ServerFailedError,
    ServerGuard,
    ServerSpec,
    free_port,
    is_healthy,
)
from facts import says
from program_runs import is_running, wait_until

TESTS = Path(__file__).resolve().parents[2]
PATHS = [str(TESTS), str(TESTS / "support")]
PATIENCE_S = 60.0
KEY = "a-known-key-value-1"
OWNER = """
import sys, time
from integration.executors.test_server_process import spec_of
from eval_factory.executors.served import ServedModel
from pathlib import Path
with ServedModel(spec_of(Path(sys.argv[1]), "child"), print) as server:
    server.start()
    print("ready", flush=True)
    time.sleep(600)
"""


def spec_of(folder: Path, *words: str, **changes: object) -> ServerSpec:
    spec = ServerSpec(
        name="small",
        words=(
            sys.executable,
            str(TESTS / "support" / "model_server.py"),
            "{port}",
            str(folder),
            *words,
        ),
        health="http://127.0.0.1:{port}/health",
        log=folder / "log" / "small.log",
        env={"PATH": os.environ["PATH"], "GIVEN": "x"},
        secrets=(KEY,),
        start_time_limit_s=PATIENCE_S,
        hang_time_limit_s=PATIENCE_S,
        stop_grace_s=0.5,
        max_restarts=1,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def failure(folder: Path, *words: str, **changes: object) -> str:
    with (
        ServedModel(spec_of(folder, *words, **changes), lambda _: None) as server,
        pytest.raises(ServerFailedError) as it,
    ):
        server.start()
    assert not any(map(is_running, pids(folder)) if (folder / "pids").exists() else [])
    return str(it.value)


def test_one_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    first, *lines = failure(tmp_path, "exits=3").splitlines()
    says(
        first, "server of small", "exit code 3", "before it was ready", f"{tmp_path}/log/small.log"
    )
    assert lines == ["  its last lines:", "    no such model"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    says(
        failure(tmp_path, words=("no-such-program-xyz",)),
        "server of small",
        "No such file",
        "(no-such-program-xyz)",
        "serve.command",
    )


def test_one_that_never_gets_ready(tmp_path: Path) -> None:
    said = failure(tmp_path, "never", "child", start_time_limit_s=1.0)
    says(said, "did not get ready", "http://127.0.0.1:")
    says(said, "200 within 1 s")


def test_one_that_dies_is_started_again_so_often(tmp_path: Path) -> None:
    said: list[str] = []
    with ServedModel(spec_of(tmp_path, "child"), said.append) as server:
        server.start()
        assert (server.why_lost(), server.is_ready()) == (None, True)
        before = server.addresses
        first, child = pids(tmp_path)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: server.why_lost() is not None)
        wait_until(lambda: not is_running(child))  # ignores SIGTERM
        server.wait_until_ready()
        says(said[-3], "server of small", "ended by signal 9", "started again (1 of")
        assert server.addresses == before
        assert server.is_ready()
        seen = json.loads((tmp_path / "environment.json").read_text())
        assert (seen["GIVEN"], "HOME" in seen) == ("x", False)
        os.kill(pids(tmp_path)[2], signal.SIGKILL)
        wait_until(lambda: server.why_lost() is not None)
        at_last = r"small was ended by signal 9, and is not started again \(serve.max_restarts: 1\)"
        with pytest.raises(ServerFailedError, match=at_last):
            server.wait_until_ready()
    assert not any(map(is_running, pids(tmp_path)))


def test_one_that_hangs(tmp_path: Path) -> None:
    with ServedModel(spec_of(tmp_path, hang_time_limit_s=1.5), lambda _: None) as server:
        server.start()
        time.sleep(2.0)
        assert server.why_lost() is None
        os.kill(pids(tmp_path)[0], signal.SIGSTOP)
        wait_until(lambda: server.why_lost() is not None)
        assert "hangs: http://127.0.0.1:" in (server.why_lost() or "")
        server.wait_until_ready()
        assert server.why_lost() is None
    assert not any(map(is_running, pids(tmp_path)))


@pytest.mark.parametrize(
    "words", [["slow=0"], ["slow=30"]], ids=["which cannot have it", "which is slow"]
)
def test_a_port_that_somebody_else_takes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """The other one answers the health URL, too. Nothing but the test has the server begin at a port that is taken."""
    port = free_port()
    free = free_port()
    mine = tmp_path / "mine"
    others = tmp_path / "others"
    mine.mkdir()
    others.mkdir()
    ports = iter([port, free])
    spec = spec_of(mine, *(f"{word}@{port}" for word in words), max_restarts=0)
    order = {
        **asdict(spec),
        "label": "the server",
        "replica": 0,
        "log": str(mine / "log"),
        "parent_host": "here",
    }
    argv = [sys.executable, str(TESTS / "support" / "model_server.py"), str(port), str(others)]
    with subprocess.Popen(argv) as other, pytest.MonkeyPatch.context() as patch:
        wait_until(lambda: is_healthy(f"http://127.0.0.1:{port}/health"))
        patch.setattr(served, "free_port", lambda: next(ports))
        guard = ServerGuard(order, io.StringIO())

        def serve() -> None:
            with suppress(PrerequisiteError):  # it is ended before the guard sees that it is ready
                guard.serve()

        thread = threading.Thread(target=serve)
        thread.start()
        wait_until(lambda: is_healthy(f"http://127.0.0.1:{free}/health"))
        guard.end_with(io.BytesIO())
        thread.join()
        assert is_running(other.pid)
        other.kill()
    said = [
        json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")
    ]
    messages = [line.get("text", "") for line in said]
    (taken,) = [message for message in messages if "another program" in message]
    says(taken, f"port {port}", "trying another")
    assert [one["address"].rpartition(":")[2] for one in said if "address" in one] in (
        [],
        [str(free)],
    )
    assert not any(map(is_running, pids(mine)))


def test_of_three_the_one_that_dies_comes_back_at_its_port_and_the_others_are_asked_meanwhile(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    with ServedModel(
        spec_of(tmp_path, replicas=3, settings={"NUMBER": "{replica}"}), said.append
    ) as server:
        server.start()
        addresses = server.addresses
        assert len({*addresses}) == 3
        assert server.why_lost() is None
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        wait_until(lambda: server.why_lost() is not None or len(server.addresses) < 3)
        assert server.why_lost() is None
        assert server.is_ready()
        wait_until(lambda: server.why_lost() is None and len(server.addresses) == 3)
        assert server.addresses == addresses
        os.kill(pids(tmp_path)[3], signal.SIGKILL)
        wait_until(lambda: server.why_lost() is None and "other servers continue" in said[-1])
        assert len(server.addresses) == 2
        for pid in pids(tmp_path)[1:3]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.why_lost() is not None)
        server.wait_until_ready()
        assert len(server.addresses) == 2
    again = [line for line in said if "started again" in line]
    number = again[0].partition("(replica ")[2][0]
    says(again[0], f"small (replica {number})", "ended by signal 9", "started again (1 of")
    ended = (
        f"the server of small (replica {number}) was ended by signal 9, and is not started again"
    )
    assert again[1].startswith(
        f"{ended} (serve.max_restarts: 1); its log: {tmp_path}/log/small@{number}.log"
    )
    says(again[1].splitlines()[-1], "other servers continue", "2 of 3")
    seen = json.loads((tmp_path / "environment.json").read_text())
    assert seen["NUMBER"] in {"0", "1", "2"}
    assert not any(map(is_running, pids(tmp_path)))


def test_one_of_two_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    with ServedModel(
        spec_of(tmp_path, "exits=3@1", "replica={replica}", replicas=2), said.append
    ) as server:
        server.start()
        assert len(server.addresses) == 1
    says(said[-1], "small (replica 1)", "exit code 3", "before it was ready")
    says(said[-1], "other servers continue", "1 of 2")


def test_what_looks_after_a_server_is_killed(tmp_path: Path) -> None:
    with ServedModel(spec_of(tmp_path, "child"), lambda _: None) as server:
        server.start()
        guard = server._servers[0]._guard
        assert guard is not None
        guard.kill()
        wait_until(lambda: "is gone: its guard process was killed" in str(server.why_lost()))
        with pytest.raises(ServerFailedError, match="small is gone"):
            server.wait_until_ready()
    wait_until(lambda: not any(map(is_running, pids(tmp_path))))


def test_one_on_another_machine_that_cannot_be_asked_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of this process; its guard asks it too
    monkeypatch.setattr(served, "is_healthy", lambda _url: False)
    said = failure(tmp_path, launch=("env",))
    says(said, "small is ready", "http://")
    says(said, "does not answer", "listen on all")


def test_nothing_is_left_when_its_owner_is_killed(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(PATHS)}
    argv = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert any(line == "ready\n" for line in owner.stdout)
        found = pids(tmp_path)
        assert [is_running(pid) for pid in found] == [True, True]
        owner.kill()
    wait_until(lambda: not any(map(is_running, found)))
