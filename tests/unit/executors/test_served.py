"""The life of a server whose guard is the test: it says what it likes, and the health URL answers as the test wants."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.executors import served_model
from eval_factory.executors.free_port import TOKEN
from eval_factory.executors.served_model import (
    HealthWatch,
    ServedModel,
    ServerFailedError,
    ServerSpec,
    answers,
    how_it_ended,
    server_environment,
)
from scripted_endpoint import ScriptedEndpoint


class Guard:
    """As a process that was started; it says `words` at once, and its pipes are files."""

    def __init__(self, words: list[dict[str, Any]]) -> None:
        source, self._own = os.pipe()
        told, into = os.pipe()
        self.stdout, self.stdin, self._told = os.fdopen(source, "rb"), os.fdopen(into, "wb"), os.fdopen(told, "rb")
        self.waited = 0
        for one in words:
            self.say(**one)

    def say(self, **fields: Any) -> None:
        os.write(self._own, (json.dumps(fields) + "\n").encode())

    def end(self) -> None:
        if self._own:
            os.close(self._own)
        self._own = 0

    def close(self) -> None:
        self.end()
        for pipe in (self.stdout, self.stdin, self._told):
            pipe.close()

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._told.readline())
        return found

    def wait(self, _seconds: float | None = None) -> int:
        self.waited += 1
        return 0

    def kill(self) -> None:
        raise AssertionError


@dataclass
class World:
    """What happens around a server."""

    folder: Path
    starts: list[list[dict[str, Any]]] = field(default_factory=list)
    """What the guard of each start says; `pid` alone where nothing is left."""
    healthy: list[bool] = field(default_factory=list)
    """What the health URL says, one after another; it answers where nothing is left."""
    foreign: list[bool] = field(default_factory=list)
    busy: set[int] = field(default_factory=set)
    """Ports that are not free any more when a server has ended."""
    now: float = 0.0
    guards: list[Guard] = field(default_factory=list)
    envs: list[dict[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    ports: int = 20_000
    ticks: int = 0

    def start(self, _argv: list[str], env: dict[str, str], *, log: Path) -> Guard:
        assert log == self.folder / "small.log"
        self.envs.append(env)
        guard = Guard(self.starts.pop(0) if self.starts else [{"pid": 77}])
        self.guards.append(guard)
        return guard

    def port(self) -> int:
        self.ports += 1
        return self.ports

    def answers(self, url: str, _seconds: float) -> bool:
        self.asked.append(url)
        return self.healthy.pop(0) if self.healthy else True

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> None:
        self.ticks += 1

    def server(self, **changes: Any) -> ServedModel:
        spec = ServerSpec(
            name="small",
            argv=lambda port: ["serve", str(port)],
            health=lambda port: f"http://127.0.0.1:{port}/health",
            log=self.folder / "small.log",
            env={"A": "b"},
            secrets=("hidden",),
            start_time_limit_s=2.0,
            hang_time_limit_s=60.0,
            stop_grace_s=0.0,
            max_restarts=1,
        )
        return ServedModel(
            replace(spec, **changes), self.said.append, self.tick, clock=lambda: self.now, sleep=self.sleep
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path)
    monkeypatch.setattr(served_model, "start_listening", world.start)
    monkeypatch.setattr(served_model, "free_port", world.port)
    monkeypatch.setattr(served_model, "is_free", lambda port: port not in world.busy)
    monkeypatch.setattr(served_model, "is_somebody_elses", lambda *_: world.foreign.pop(0) if world.foreign else False)
    monkeypatch.setattr(served_model, "answers", world.answers)
    monkeypatch.setattr(served_model, "TO_BE_GONE_S", 0.0)
    monkeypatch.setattr(served_model, "WATCHED_EVERY_S", 3600.0)
    monkeypatch.setattr(os, "killpg", lambda group, _number: world.killed.append(group))
    yield world
    for guard in world.guards:
        guard.close()


def test_it_is_started_waited_for_and_ended(world: World) -> None:
    world.healthy = [False, False, True]
    with world.server() as server:
        assert server.lost() == "does not run"
        server.start()
        assert server.address == "http://127.0.0.1:20001"
        assert (server.lost(), server.is_ready()) == (None, True)
        (guard,) = world.guards
        told = guard.told()
        guard.say(returncode=0)
        guard.end()
    assert told["argv"] == ["serve", "20001"]
    assert (told["secrets"], told["grace_s"], told["log"]) == (["hidden"], 0.0, str(world.folder / "small.log"))
    assert guard.stdin.closed
    assert guard.stdout.closed
    assert guard.waited == 1
    assert world.killed == []
    assert world.envs[0]["A"] == "b"
    assert len(world.envs[0][TOKEN]) == 32
    assert world.ticks == 2
    assert world.asked == ["http://127.0.0.1:20001/health"] * 4
    assert world.said == [
        f"starting the server of small on port 20001; its log: {world.folder}/small.log",
        "the server of small is ready after 0 s",
    ]


def test_what_it_says_of_a_start_that_fails(world: World) -> None:
    (world.folder / "small.log").write_text("of an earlier start\n")
    world.starts, world.healthy = [[{"failed": "No such file or directory"}]], [False]
    with world.server() as server, pytest.raises(ServerFailedError) as caught:
        server.start()
    assert str(caught.value) == (
        "the server of small cannot be started: No such file or directory (serve); install it, or write its whole path"
        " in serve.command"
    )
    assert caught.value.exit_code == 3


def test_one_that_ends_shows_its_last_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.folder / "small.log"
    log.write_text("of an earlier start\n")
    start = world.start

    def and_says(argv: list[str], env: dict[str, str], *, log: Path) -> Guard:
        with log.open("a") as file:
            file.write("".join(f"line {number}\n\n" for number in range(7)))
        return start(argv, env, log=log)

    monkeypatch.setattr(served_model, "start_listening", and_says)
    world.starts = [[{"pid": 5}, {"returncode": 3}]]
    with world.server() as server, pytest.raises(ServerFailedError) as caught:
        server.start()
    first, *lines = str(caught.value).splitlines()
    assert first == (
        f"the server of small ended with exit code 3 before it was ready; see {log}, then run the same command again"
    )
    assert lines == ["  its last lines:", *(f"    line {number}" for number in range(2, 7))]


def test_one_that_is_never_ready(world: World) -> None:
    world.healthy = [False] * 99
    with world.server() as server, pytest.raises(ServerFailedError) as caught:
        server.start()
    assert "did not get ready: http://127.0.0.1:20001/health did not answer with 200 within 2 s; see" in str(
        caught.value
    )
    assert 2.0 <= world.now < 2.3
    assert world.killed == [77]  # its guard did not say that it ended


def test_a_port_that_somebody_else_has_taken_is_left(world: World) -> None:
    """The first before our server could have it, the second while our server loads its model."""
    world.busy = {20_001}
    world.starts = [[{"pid": 5}, {"returncode": 1}]]
    world.foreign = [True]
    with world.server() as server:
        server.start()
        assert server.address == "http://127.0.0.1:20003"
        assert server.restarts == 0
    taken = [line for line in world.said if "somebody else" in line]
    assert taken == [
        f"the server of small: somebody else has taken port {port}; another is tried" for port in (20_001, 20_002)
    ]


def test_no_port_is_left_to_it_for_long(world: World) -> None:
    world.foreign = [True] * 99
    with world.server() as server, pytest.raises(ServerFailedError, match="5 ports in a row"):
        server.start()
    assert len(world.guards) == 5


@pytest.mark.parametrize(
    ("code", "said"), [(7, "ended with exit code 7"), (-9, "was ended by signal 9"), (0, "ended with exit code 0")]
)
def test_one_that_ends_is_started_again_but_not_for_ever(world: World, code: int, said: str) -> None:
    with world.server() as server:
        server.start()
        world.guards[0].say(returncode=code)
        assert server.lost() == how_it_ended(code) == said
        server.start_again(said)
        assert (server.lost(), server.restarts) == (None, 1)
        assert world.said[2] == f"the server of small {said}; it is started again (1 of 1)"
        with pytest.raises(ServerFailedError) as caught:
            server.start_again("hangs")
        assert server.lost() == "does not run"
    assert str(caught.value) == (
        "the server of small hangs, and is not started again (serve.max_restarts: 1); its log:"
        f" {world.folder}/small.log; what was answered is kept: mend it, then run the same command again"
    )
    assert len(world.guards) == 2


def test_a_guard_that_was_killed_takes_nobody_with_it(world: World) -> None:
    with world.server() as server:
        server.start()
        assert server.lost() is None  # it has said its pid
        world.guards[0].end()
        assert server.lost() == "is gone: what looked after it was killed"
    assert world.killed == [77]


def test_one_that_hangs(world: World) -> None:
    with world.server() as server:
        server.start()
        world.now += 59.0
        assert server.lost() is None
        world.now += 1.0
        assert server.lost() == "hangs: http://127.0.0.1:20001/health has not answered for 60 s"


def test_the_watch_counts_from_the_last_answer(world: World) -> None:
    watch = HealthWatch("http://h/x", ask=world.answers, clock=lambda: world.now)
    world.now = 5.0
    assert watch.silent_s() == 5.0
    world.healthy = [False, True]
    watch.look()
    assert watch.silent_s() == 5.0
    watch.look()
    assert watch.silent_s() == 0.0
    watch.end()


def test_what_a_server_sees_of_the_environment() -> None:
    env = {
        "PATH": "/bin", "CUDA_HOME": "/cuda", "HF_TOKEN": "h", "OPENAI_API_KEY": "k", "GPT_JUDGE_API_KEY": "j",
        "NCCL_SECRET": "n", "MINE": "m", "OTHER": "o",
    }  # fmt: skip
    assert server_environment(env, ("MINE", "ABSENT")) == {
        "PATH": "/bin", "CUDA_HOME": "/cuda", "MINE": "m", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    assert server_environment(env, ("HF_TOKEN",))["HF_TOKEN"] == "h"


def test_a_health_url_answers_with_200_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint(lambda prompt: prompt) as endpoint:  # takes no GET
        address = endpoint.url.removesuffix("/v1")
        assert not answers(f"{address}/health", 5.0)
        monkeypatch.setattr(served_model, "HEALTHY", 501)
        assert answers(f"{address}/health?deep=1", 5.0)
        assert answers(address, 5.0)
    assert not answers(f"{address}/health", 5.0)
