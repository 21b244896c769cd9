"""The server, asked over its socket as any process may ask it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Purse, Spending
from eval_factory.endpoint import limits, shared_limits
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


def test_who_waits_no_more_is_passed_over() -> None:
    with LimitServer({"g": LimitOf(1)}) as server, asking(server) as (a,):
        for number in (1, 2, 3):
            a.say(do="slot", id=number, group="g")
        a.say(do="leave", id=2, answered=False)
        a.say(do="leave", id=77, answered=False)
        a.say(do="leave", id=1, answered=True)
        assert [a.hear()["id"], a.hear()["id"]] == [1, 3]


def test_a_refusal_makes_fewer_places_for_all_and_its_pause_closes_them() -> None:
    with LimitServer({"g": LimitOf(2)}) as server, asking(server, 2) as (a, b):
        a.say(do="slot", id=1, group="g")
        assert a.hear() == {"id": 1}
        a.say(do="too_many", id=1, pause=None)
        a.say(do="too_many", id=9, pause=600)  # of no slot
        b.say(do="slot", id=1, group="g")
        assert b.hears_nothing()
        a.say(do="leave", id=1, answered=False)
        assert b.hear() == {"id": 1}
        b.say(do="too_many", id=1, pause=1.0)
        b.say(do="leave", id=1, answered=False)
        a.say(do="slot", id=2, group="g")
        assert a.hears_nothing()
        b.say(do="slot", id=2, group="g")
        assert a.hear() == {"id": 2}  # nobody says anything: the pause is over
        a.say(do="too_many", id=2, pause=0.2)
        a.say(do="leave", id=2, answered=False)
        assert b.hear() == {"id": 2}  # and so is a second one


def test_a_minute_is_one_for_all() -> None:
    with LimitServer({"g": LimitOf(9, 3, 4000), "h": LimitOf(9, 1)}) as server, asking(server, 2) as (a, b):
        one = {"parallelism": 9, "requests_per_minute": 3, "tokens_per_minute": 4000}
        assert a.greeting["groups"]["g"] == one
        a.say(do="rate", id=1, group="g", tokens=2000)
        b.say(do="rate", id=1, group="g", tokens=2000)
        assert (a.hear(), b.hear()) == ({"id": 1}, {"id": 1})
        b.say(do="rate", id=2, group="g", tokens=4)
        a.say(do="rate", id=2, group="g", tokens=4)
        a.say(do="leave", id=2, answered=False)
        assert b.hears_nothing()
        b.say(do="rate", id=3, group="h", tokens=0)
        assert b.hear() == {"id": 3}


def test_what_waits_for_its_minute_is_let_through_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MINUTE_S", 0.2)
    with LimitServer({"g": LimitOf(9, 1)}) as server, asking(server) as (a,):
        for number in range(4):
            a.say(do="rate", id=number, group="g", tokens=0)
        assert [a.hear()["id"] for _ in range(4)] == [0, 1, 2, 3]
        for number in range(4, 6):
            a.say(do="rate", id=number, group="g", tokens=0)
        assert [a.hear()["id"], a.hear()["id"]] == [4, 5]


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


def test_one_budget_for_all_to_the_last_request() -> None:
    purse = Purse(Budget(max_requests=50, max_cost=5.0), Spending(requests=10))
    with LimitServer({}, purse) as server, asking(server, 4) as askers:
        assert askers[0].greeting == {"groups": {}, "budget": True}
        given: list[str | None] = []

        def spend(asker: Asker) -> None:
            for number in range(20):
                asker.say(do="begin", id=number)
                answer = asker.hear()
                assert answer["id"] == number
                given.append(answer["reached"])

        threads = [threading.Thread(target=spend, args=(asker,)) for asker in askers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert (given.count(None), given.count("max_requests"), len(given)) == (40, 40, 80)
        askers[0].say(do="spend", tokens=7, cost=5.5)
        askers[0].say(do="begin", id=1)
        assert askers[0].hear() == {"id": 1, "reached": "max_cost"}
        assert purse.spent == Spending(50, 7, 5.5)


def test_without_a_budget_nothing_is_reached() -> None:
    with LimitServer({}) as server, asking(server) as (a,):
        assert a.greeting["budget"] is False
        a.say(do="spend", tokens=7, cost=5.5)
        a.say(do="begin", id=1)
        assert a.hear() == {"id": 1, "reached": None}


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
    with pytest.raises(RuntimeError, match="not started"):
        server.address  # noqa: B018
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


def test_the_end_of_the_time_is_told_to_who_is_there_and_to_who_comes() -> None:
    now = [0.0]
    purse = Purse(Budget(max_wall_s=0.05), began=0.0, clock=lambda: now[0])
    with LimitServer({}, purse) as server, asking(server, 2) as askers:
        assert [asker.hear() for asker in askers] == [{"over": "max_wall_s"}] * 2
        with asking(server) as (late,):
            assert late.greeting == {"groups": {}, "budget": True}
            assert late.hear() == {"over": "max_wall_s"}


def test_there_is_no_end_where_there_is_no_limit_of_time() -> None:
    with LimitServer({}, Purse(Budget(max_requests=5))) as server, asking(server) as (asker,):
        assert asker.hears_nothing()
