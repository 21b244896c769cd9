"""The server, asked over its socket as any process may ask it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eval_factory.endpoint import shared_limits
from eval_factory.endpoint.endpoint_settings import LimitOf
from eval_factory.endpoint.shared_limits import LimitServer

SHORT_S = 0.1
"""For what is not to happen; what is to happen has half a minute."""


class Asker:
    """A process's end of a connection."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(address)
        self._lines = self.socket.makefile("rb")
        self.greeting = self.hear()

    def say(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> Any:
        return json.loads(self._lines.readline() or "null")

    def hears_nothing(self) -> bool:
        self.socket.settimeout(SHORT_S)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(30)

    def end(self) -> None:
        self._lines.close()
        self.socket.close()


@contextmanager
def asking(server: LimitServer, number: int = 1) -> Iterator[list[Asker]]:
    askers = [Asker(server.address) for _ in range(number)]
    try:
        yield askers
    finally:
        for asker in askers:
            asker.end()


def test_places_are_given_in_the_order_of_coming_and_first_to_the_process_that_came_first() -> None:
    with LimitServer({"g": LimitOf(1), "h": LimitOf(1)}) as server, asking(server, 2) as (a, b):
        a.say(do="slot", id=1, group="g")
        assert a.hear() == {"id": 1}
        b.say(do="slot", id=1, group="g")
        b.say(do="slot", id=2, group="h")
        assert b.hear() == {"id": 2}  # the groups know nothing of each other
        b.say(do="slot", id=3, group="g")
        a.say(do="slot", id=4, group="g")
        assert a.hears_nothing()
        a.say(do="leave", id=1, answered=True)
        assert a.hear() == {"id": 4}
        assert b.hears_nothing()
        a.say(do="leave", id=4, answered=True)
        assert b.hear() == {"id": 1}
        b.say(do="leave", id=1, answered=True)
        assert b.hear() == {"id": 3}


def test_a_connection_that_closes_gives_all_its_places_back_and_waits_no_more() -> None:
    with LimitServer({"g": LimitOf(2), "r": LimitOf(1, 1)}) as server, asking(server, 2) as (killed, other):
        for number in (1, 2, 3):
            killed.say(do="slot", id=number, group="g")
        killed.say(do="rate", id=4, group="r", tokens=1)
        killed.say(do="rate", id=5, group="r", tokens=1)
        assert [killed.hear()["id"] for _ in range(3)] == [1, 2, 4]
        other.say(do="slot", id=1, group="g")
        other.say(do="slot", id=2, group="g")
        other.say(do="slot", id=3, group="g")
        assert other.hears_nothing()
        killed.end()
        assert [other.hear()["id"], other.hear()["id"]] == [1, 2]
        assert other.hears_nothing()


def test_who_is_gone_or_waits_no_more_holds_nobody_up() -> None:
    with LimitServer({"g": LimitOf(9, None, 20)}) as server, asking(server, 2) as (a, b):
        a.say(do="rate", id=1, group="g", tokens=10)
        assert a.hear() == {"id": 1}
        a.say(do="rate", id=2, group="g", tokens=11)
        a.say(do="begin", id=3)
        assert a.hear() == {"id": 3, "reached": None}  # what came before is taken
        b.say(do="rate", id=1, group="g", tokens=5)
        assert b.hears_nothing()
        a.say(do="leave", id=2, answered=False)
        assert b.hear() == {"id": 1}
        a.say(do="rate", id=4, group="g", tokens=11)
        a.say(do="begin", id=5)
        assert a.hear() == {"id": 5, "reached": None}
        b.say(do="rate", id=2, group="g", tokens=5)
        a.end()
        assert b.hear() == {"id": 2}


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\n", b"[]\n", b'{"do": "quit"}\n', b'{"do": "slot", "id": 1}\n', b'{"do": "slot", "group": "g"}\n',
        b'{"do": "slot", "id": 2, "group": "no"}\n', b"\xff\n", b"x" * (shared_limits.MAX_LINE + 1),
    ],
)  # fmt: skip
def test_who_talks_otherwise_is_left_and_the_others_are_served(line: bytes) -> None:
    with LimitServer({"g": LimitOf(1)}) as server, asking(server, 2) as (stranger, a):
        stranger.say(do="slot", id=1, group="g")
        assert stranger.hear() == {"id": 1}
        stranger.socket.sendall(line)
        a.say(do="slot", id=1, group="g")
        assert a.hear() == {"id": 1}
        with pytest.raises((ConnectionResetError, TypeError)):
            assert stranger.hear()["id"]


def test_only_this_user_finds_the_socket_and_nothing_is_left() -> None:
    server = LimitServer({"g": LimitOf(1)})
    with server:
        folder = Path(server.address).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(Path(server.address).stat().st_mode)
        a = Asker(server.address)
        a.say(do="slot", id=1, group="g")
        assert a.hear() == {"id": 1}
    assert a.hear() is None
    a.end()
    assert not folder.exists()
    with LimitServer({}):
        pass  # it may end at once


def test_it_may_begin_where_a_loop_runs() -> None:
    async def begin() -> Any:
        with LimitServer({"g": LimitOf(1)}) as server, asking(server) as (a,):
            return a.greeting["groups"]

    assert list(asyncio.run(begin())) == ["g"]


@pytest.mark.parametrize(
    ("length", "short"),
    [(shared_limits.MAX_PATH - len("/eval-factory-12345678/s"), False), (shared_limits.MAX_PATH, True)],
)
def test_a_socket_has_a_short_path_wherever_temporary_files_are(
    length: int, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir=shared_limits.SHORT_FOLDER) as base:
        folder = Path(base, "x" * (length - len(base) - 1))
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with LimitServer({}) as server, asking(server) as (a,):
            assert a.greeting["groups"] == {}
            assert (folder not in Path(server.address).parents) == short
        assert list(folder.iterdir()) == []
