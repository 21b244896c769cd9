"""The life of servers whose guards are the test: they say what it likes; and what a guard finds on its machine."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.executors import served
from eval_factory.executors.served import (
    FIRST_PORT,
    LAST_PORT,
    TOKEN,
    ServedModel,
    ServerFailedError,
    ServerSpec,
    answers,
    free_port,
    is_free,
    is_somebody_elses,
)
from scripted_endpoint import ScriptedEndpoint

Said = dict[str, Any]


def ready(port: int, host: str = "127.0.0.1") -> Said:
    return {"text": "it is ready", "state": "ready", "address": f"http://{host}:{port}"}


def gone(why: str) -> Said:
    return {"state": "gone", "why": why}


def out(why: str) -> Said:
    return {"state": "out", "why": why}


class GuardProcess:
    """As a process that was started; it says `words` at once, and its pipes are files."""

    def __init__(self, words: list[Said]) -> None:
        source, self._own = os.pipe()
        told, into = os.pipe()
        self.stdout, self.stdin, self._told = os.fdopen(source, "rb"), os.fdopen(into, "wb"), os.fdopen(told, "rb")
        self.waited = 0
        for one in words:
            self.say(one)

    def say(self, said: Said) -> None:
        os.write(self._own, (json.dumps(said) + "\n").encode())

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

    def wait(self) -> int:
        self.waited += 1
        return 0

    def kill(self) -> None:
        """It has ended."""


@dataclass
class World:
    """What happens around servers."""

    folder: Path
    starts: list[list[Said]] = field(default_factory=list)
    """What the guard of each start says; that the server is ready where nothing is left."""
    healthy: bool = True
    guards: list[GuardProcess] = field(default_factory=list)
    argvs: list[list[str]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    ports: int = 20_000
    ticks: int = 0

    def start(self, argv: list[str], env: dict[str, str], *, log: Path) -> GuardProcess:
        assert env == {"A": "b"}
        self.argvs.append(argv)
        self.logs.append(log.name)
        self.ports += 1
        guard = GuardProcess(self.starts.pop(0) if self.starts else [{"group": 77}, ready(self.ports)])
        self.guards.append(guard)
        return guard

    def answers(self, url: str) -> bool:
        self.asked.append(url)
        return self.healthy

    def tick(self) -> None:
        self.ticks += 1
        self.guards[-1].say(ready(self.ports))

    def server(self, **changes: Any) -> ServedModel:
        spec = ServerSpec(
            name="small",
            words=("serve", "{port}"),
            health="http://127.0.0.1:{port}/health",
            log=self.folder / "small.log",
            env={"A": "b"},
            secrets=("hidden",),
            start_time_limit_s=2.0,
            hang_time_limit_s=60.0,
            stop_grace_s=0.0,
            max_restarts=1,
        )
        return ServedModel(replace(spec, **changes), self.said.append, self.tick)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path)
    monkeypatch.setattr(served, "start_listening", world.start)
    monkeypatch.setattr(served, "answers", world.answers)
    monkeypatch.setattr(served, "TO_BE_GONE_S", 0.0)
    monkeypatch.setattr(served, "ASKED_EVERY_S", 0.0)
    monkeypatch.setattr(os, "killpg", lambda group, _number: world.killed.append(group))
    yield world
    for guard in world.guards:
        guard.close()


def test_it_is_started_waited_for_and_ended(world: World) -> None:
    world.starts = [[{"group": 77}]]
    with world.server() as server:
        assert server.lost() == "does not run"
        server.start()
        assert server.addresses == ("http://127.0.0.1:20001",)
        assert (server.lost(), server.watch(), server.is_ready()) == (None, None, True)
        (guard,) = world.guards
        told = guard.told()
        guard.say({"group": None})
        guard.say(gone("ended with exit code 0"))
        guard.end()
    assert told["words"] == ["serve", "{port}"]
    assert (told["secrets"], told["stop_grace_s"], told["log"]) == (["hidden"], 0.0, str(world.folder / "small.log"))
    assert (told["called"], told["port"], told["replica"]) == ("the server of small", None, 0)
    assert guard.stdin.closed
    assert guard.stdout.closed
    assert guard.waited == 1
    assert world.killed == []
    assert world.ticks == 1
    assert world.asked == ["http://127.0.0.1:20001/health"]
    assert world.said == ["it is ready"]


def test_what_it_says_of_a_start_that_fails(world: World) -> None:
    world.starts = [[out("the server of small cannot be started\n  its last lines:")]]
    with world.server() as server, pytest.raises(ServerFailedError, match="cannot be started\n  its last") as caught:
        server.start()
    assert caught.value.exit_code == 3
    assert world.said == []


def test_one_that_ends_is_started_again_but_not_for_ever(world: World) -> None:
    with world.server() as server:
        server.start()
        world.guards[0].say(gone("ended with exit code 7"))
        assert server.watch() == server.lost() == "ended with exit code 7"
        assert len(world.guards) == 1
        server.start_again()
        assert server.lost() is None
        assert world.said[1] == "the server of small ended with exit code 7; it is started again (1 of 1)"
        assert world.guards[1].told()["port"] is None
        world.guards[1].say(gone("hangs"))
        assert server.watch() == "hangs"
        with pytest.raises(ServerFailedError) as caught:
            server.start_again()
    assert str(caught.value) == (
        "the server of small hangs, and is not started again (serve.max_restarts: 1); its log:"
        f" {world.folder}/small.log; what was answered is kept: mend it, then run the same command again"
    )
    assert len(world.guards) == 2


def test_a_guard_that_was_killed_takes_nobody_with_it(world: World) -> None:
    with world.server() as server:
        server.start()
        assert server.lost() is None
        world.guards[0].end()
        assert server.lost() == "is gone: what looked after it was killed"
    assert world.killed == [77]


def test_of_several_the_one_that_is_lost_is_started_again_at_its_port_and_nobody_waits(world: World) -> None:
    with world.server(replicas=2) as server:
        server.start()
        assert (world.logs, len(server.addresses)) == (["small@0.log", "small@1.log"], 2)
        world.starts = [[]]
        world.guards[1].say(gone("hangs"))
        assert server.watch() is None
        assert server.addresses == ("http://127.0.0.1:20001",)
        assert world.said[-1] == "the server of small (replica 1) hangs; it is started again (1 of 1)"
        told = world.guards[2].told()
        assert (told["port"], told["replica"], told["called"]) == (20002, 1, "the server of small (replica 1)")
        world.guards[2].say(ready(20002))
        assert server.watch() is None
        assert [*server.addresses] == ["http://127.0.0.1:20001", "http://127.0.0.1:20002"]
        world.guards[2].say(gone("hangs"))
        assert server.watch() is None
        assert server.watch() is None
        left_out = [line for line in world.said if "others go on" in line]
        assert left_out[0].startswith("the server of small (replica 1) hangs, and is not started again")
        assert left_out[0].endswith("\n  the others go on: 1 of 2")
        assert len(left_out) == 1
        world.guards[0].say(gone("ended"))
        assert server.watch() == "ended"
        server.start_again()
        assert server.addresses == ("http://127.0.0.1:20004",)


def test_one_that_comes_back_at_another_port_is_news_for_those_who_ask(world: World) -> None:
    with world.server(replicas=2) as server:
        server.start()
        world.starts = [[ready(30000)]]
        world.guards[0].say(gone("hangs"))
        assert server.watch() is None
        assert server.watch() == "is at another port now"
        server.start_again()
        assert server.watch() is None
        assert server.addresses == ("http://127.0.0.1:30000", "http://127.0.0.1:20002")
        assert len(world.guards) == 3


def test_servers_elsewhere(world: World) -> None:
    world.starts = [[{"group": 77}, ready(1, "n1")], [{"group": 77}, ready(2, "n2")]]
    with world.server(replicas=2, launch=("srun", "--exact")) as server:
        server.start()
        assert world.asked == ["http://n1:1/health", "http://n2:2/health"]
        assert server.is_ready()
    assert [argv[:2] for argv in world.argvs] == [["srun", "--exact"]] * 2
    assert world.killed == []  # of another machine


def test_servers_elsewhere_that_cannot_be_asked_from_here(world: World) -> None:
    world.starts, world.healthy = [[ready(1, "n1")]], False
    with world.server(launch=("srun",)) as server, pytest.raises(ServerFailedError) as caught:
        server.start()
    assert "small is ready at http://n1:1, and does not answer from here; have it listen on all" in str(caught.value)


def test_a_health_url_answers_with_200_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint(lambda prompt: prompt) as endpoint:  # takes no GET
        address = endpoint.url.removesuffix("/v1")
        assert not answers(f"{address}/health", 5.0)
        monkeypatch.setattr(served, "HEALTHY", 501)
        assert answers(f"{address}/health?deep=1", 5.0)
        assert answers(address, 5.0)
    assert not answers(f"{address}/health", 5.0)


PORT, INODE = 8000, 4711
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_a_port_is_free_where_nobody_listens() -> None:
    port = free_port()
    assert FIRST_PORT <= port <= LAST_PORT
    for host in ("127.0.0.1", ""):
        with socket.socket() as one:
            one.bind((host, 0))
            one.listen()
            assert not is_free(one.getsockname()[1])


def proc_of(folder: Path, *, port: int = PORT, state: str = "0A", uid: int | None = None, environ: bytes = b"") -> Path:
    """As /proc: one listener, and one process that has it open."""
    (folder / "net").mkdir()
    own = os.getuid() if uid is None else uid
    line = f"   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {own} 0 {INODE} 1\n"
    (folder / "net" / "tcp6").write_text(HEAD + line)
    for number, (target, text) in enumerate([(f"socket:[{INODE}]", environ), ("socket:[1]", b"")]):
        fds = folder / str(100 + number) / "fd"
        fds.mkdir(parents=True)
        (fds / "3").symlink_to(target)
        (fds.parent / "environ").write_bytes(text)
    (folder / "self").mkdir()
    (folder / "102").mkdir()  # it has just ended
    return folder


OURS = f"A=b\0{TOKEN}=abc\0".encode()


def test_ours_is_known_by_its_token(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, environ=OURS)
    assert not is_somebody_elses(PORT, "abc", proc)
    assert is_somebody_elses(PORT, "ab", proc)
    assert not is_somebody_elses(PORT + 1, "ab", proc)


@pytest.mark.parametrize(
    ("changes", "is_so"),
    [({"environ": b"A=b"}, True), ({"state": "01"}, False), ({"uid": os.getuid() + 1}, True)],
    ids=["another program of this user", "a connection", "another user"],
)
def test_somebody_elses(tmp_path: Path, changes: dict[str, object], is_so: bool) -> None:
    assert is_somebody_elses(PORT, "abc", proc_of(tmp_path, **changes)) is is_so  # type: ignore[arg-type]


def test_what_root_has_may_lead_to_a_container_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert not is_somebody_elses(PORT, "abc", proc_of(tmp_path, uid=0))


def test_where_the_system_does_not_say(tmp_path: Path) -> None:
    assert not is_somebody_elses(PORT, "abc", tmp_path / "absent")
    proc = proc_of(tmp_path, environ=b"")
    (proc / "100" / "environ").unlink()
    assert not is_somebody_elses(PORT, "abc", proc)
