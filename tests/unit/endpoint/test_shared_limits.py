"""Clients of one server, each as in a process of its own: each has its connection."""

from __future__ import annotations

import json
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Spending, SpendingLimit, SpendingTracker
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint import shared_limits
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.limits import Admission
from eval_factory.endpoint.replies import EndpointUnusable
from eval_factory.endpoint.shared_limits import LimitServer, LimitsLost, SharedLimits
from in_the_loop import insiders

NOT_S = 0.1
"""So long nothing is to happen; what is to happen has half a minute."""


def limits_at(address: str) -> SharedLimits:
    return SharedLimits(SharedLimitsSettings(address, {"model": "g", "judge": "h", "free": "f"}))


def admission_of(limits: SharedLimits, role: str = "model") -> Admission:
    admission = limits.admission(role)
    assert admission is not None
    return admission


def budget_of(limits: SharedLimits) -> SpendingLimit:
    assert limits.budget is not None
    return limits.budget


@contextmanager
def processes(server: LimitServer, number: int) -> Iterator[list[SharedLimits]]:
    with ExitStack() as stack:
        yield [stack.enter_context(limits_at(server.address)) for _ in range(number)]


class InThread:
    """Runs a function in a thread; `raised`: what ended it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.raised: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.raised = error

    def goes_on(self) -> bool:
        self._thread.join(NOT_S)
        return self._thread.is_alive()

    def ended(self, raised: type[BaseException] | None = None) -> bool:
        self._thread.join(30)
        return not self._thread.is_alive() and isinstance(self.raised, raised or type(None))


def take(admission: Admission, body: Mapping[str, Any] | None = None) -> Callable[[], None]:
    def enter() -> None:
        with admission.slot(body):
            pass

    return enter


def hold(admission: Admission) -> tuple[InThread, threading.Event]:
    """A thread that is in, until the event is set."""
    entered = threading.Event()
    go = threading.Event()

    def stay() -> None:
        with admission.slot():
            entered.set()
            go.wait(90)  # longer than anybody waits for what is to happen

    thread = InThread(stay)
    assert entered.wait(30)
    return thread, go


def test_many_threads_of_several_processes_are_within_one_limit() -> None:
    inside = 0
    seen = list[int]()

    def work(admission: Admission) -> None:
        nonlocal inside
        with admission.slot():
            inside += 1
            seen.append(inside)
            time.sleep(0.001)
            inside -= 1

    with (
        LimitServer({"g": EndpointLimits(3)}) as server,
        processes(server, 3) as all_limits,
        ThreadPoolExecutor(24) as pool,
    ):
        list(pool.map(work, [admission_of(limits) for limits in all_limits] * 40))
    assert (len(seen), max(seen)) == (3 * 40, 3)


def test_in_an_event_loop_others_go_on_while_one_waits_for_its_turn() -> None:
    """Within the same limit, and each has its turn."""
    with LimitServer({"g": EndpointLimits(2)}) as server, limits_at(server.address) as limits:
        seen = insiders(admission_of(limits).slot)
    assert (len(seen), max(seen)) == (20, 2)


def test_a_process_that_ends_gives_back_what_it_has() -> None:
    with LimitServer({"g": EndpointLimits(1)}) as server, processes(server, 2) as (killed, other):
        holding, go = hold(admission_of(killed))
        waiting = InThread(take(admission_of(other)))
        assert waiting.goes_on()
        killed.close()
        assert waiting.ended()
        go.set()
        assert holding.ended()  # it was in: what it asked comes to its end
        with pytest.raises(LimitsLost):
            take(admission_of(killed))()


def test_a_pause_that_one_is_asked_for_is_all_others() -> None:
    with (
        LimitServer({"g": EndpointLimits(2), "h": EndpointLimits(2)}) as server,
        processes(server, 2) as (one, other),
    ):
        admission = admission_of(one)
        with admission.slot() as slot:
            admission.too_many(slot, 1.0)
        waiting = InThread(take(admission_of(other)))
        take(admission_of(other, "judge"))()
        assert waiting.goes_on()
        assert waiting.ended()


def test_a_minute_is_all_others_too() -> None:
    with (
        LimitServer({"g": EndpointLimits(9, 3), "h": EndpointLimits(9, None, 4000)}) as server,
        processes(server, 2) as (one, other),
    ):
        for limits in (one, other, one):
            take(admission_of(limits), {})()
        waiting = InThread(take(admission_of(other), {}))
        assert waiting.goes_on()
        judge = admission_of(one, "judge")
        take(judge, {"max_tokens": 4000})()
        stopped = InThread(take(judge, {"max_tokens": 1}))
        assert stopped.goes_on()
        judge.stop()
        assert stopped.ended()
        assert waiting.goes_on()


def test_what_is_not_limited_is_not_asked_for() -> None:
    with LimitServer({"g": EndpointLimits(9)}) as server, limits_at(server.address) as limits:
        assert limits.admission("no_role_of_ours") is None


def test_the_stop_of_one_role_wakes_its_threads_and_no_others() -> None:
    with (
        LimitServer({"g": EndpointLimits(1), "h": EndpointLimits(1)}) as server,
        processes(server, 1) as (limits,),
    ):
        model = admission_of(limits)
        judge = admission_of(limits, "judge")
        (one, go_on) = hold(model)
        (two, go) = hold(judge)
        waiting = [InThread(take(model)) for _ in range(3)]
        waiting_too = InThread(take(judge))
        assert all(thread.goes_on() for thread in waiting)
        model.stop()
        assert all(thread.ended() for thread in waiting)
        take(model)()  # whoever comes later waits no more either
        assert waiting_too.goes_on()
        go.set()
        go_on.set()
        assert all(thread.ended() for thread in (waiting_too, one, two))
        with limits_at(server.address) as another:
            take(admission_of(another))()  # those that were let go on have no place


def test_when_the_server_is_gone_nobody_waits_and_nobody_goes_on() -> None:
    with LimitServer({"g": EndpointLimits(1)}, SpendingTracker(Budget())) as server:
        limits = limits_at(server.address)
        admission = admission_of(limits)
        budget = budget_of(limits)
        holding, go = hold(admission)
        waiting = [InThread(take(admission)) for _ in range(2)]
        assert all(thread.goes_on() for thread in waiting)
    for thread in waiting:
        assert thread.ended(EndpointUnusable)
        assert "command of that process" in str(thread.raised)
    go.set()
    assert holding.ended()  # its answer is kept
    budget.spend(tokens=1, cost=0.1)
    assert all(InThread(ask).ended(LimitsLost) for ask in (take(admission), budget.begin))
    limits.close()


def test_nobody_at_the_address_and_limits_that_the_server_does_not_have_let_nothing_through(
    tmp_path: Path,
) -> None:
    with limits_at(str(tmp_path / "s")) as limits:
        for ask in (take(admission_of(limits)), budget_of(limits).begin):
            assert InThread(ask).ended(LimitsLost)
    with LimitServer({"other": EndpointLimits(1)}) as server, limits_at(server.address) as limits:
        assert limits.budget is None
        assert InThread(take(admission_of(limits))).ended(LimitsLost)


@pytest.mark.parametrize(
    "told", ["220 mail.example ESMTP\r\n", '{"groups": {"g": {}}}\n220 mail.example\n']
)
def test_somebody_else_at_the_address(told: str, tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(address)
        stranger.listen()

        def talk() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(told.encode())
                hangs_up.wait(60)

        hangs_up = threading.Event()
        talking = InThread(talk)
        with limits_at(address) as limits:
            asking = InThread(take(admission_of(limits)))
            assert asking.ended(LimitsLost)
            hangs_up.set()
            assert talking.ended()


def test_one_budget_for_all() -> None:
    local = SpendingTracker(Budget(max_requests=60))
    reached = list[str | None]()

    def spend(limits: SharedLimits) -> None:
        for _ in range(10):
            reached.append(budget_of(limits).begin())
            budget_of(limits).spend(tokens=2, cost=0.5)

    with LimitServer({}, local) as server, processes(server, 3) as all_limits:
        with ThreadPoolExecutor(9) as pool:
            list(pool.map(spend, all_limits * 3))
        for limits in all_limits:
            # and all that was said before is counted
            assert budget_of(limits).begin() == "max_requests"
    assert (reached.count(None), reached.count("max_requests")) == (60, 30)
    assert local.spent == Spending(60, 180, 45.0)


def test_a_line_that_is_longer_than_a_read_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "g" * 20_000
    monkeypatch.setattr(shared_limits, "MAX_LINE", 30_000)
    with (
        LimitServer({name: EndpointLimits(1)}) as server,
        SharedLimits(SharedLimitsSettings(server.address, {"model": name})) as limits,
    ):
        take(admission_of(limits))()
        take(admission_of(limits))()


def test_how_much_time_all_have_is_known_to_each() -> None:
    with (
        LimitServer({}, SpendingTracker(Budget(max_wall_s=90.0))) as server,
        processes(server, 1) as (one,),
    ):
        left = one.seconds_left
        assert left is not None
        assert 60 < left <= 90
    with (
        LimitServer({}, SpendingTracker(Budget(max_requests=1))) as server,
        processes(server, 1) as (one,),
    ):
        assert one.seconds_left is None


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
        self.socket.settimeout(NOT_S)
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
    with ExitStack() as stack:
        askers = [Asker(server.address) for _ in range(number)]
        for asker in askers:
            stack.callback(asker.end)
        yield askers


def test_places_are_given_in_the_order_of_coming_and_first_to_the_process_that_came_first() -> None:
    with (
        LimitServer({"g": EndpointLimits(1), "h": EndpointLimits(1)}) as server,
        asking(server, 2) as (a, b),
    ):
        a.say(do="slot", id=1, group="g", tokens=None)
        assert a.hear() == {"id": 1}
        b.say(do="slot", id=1, group="g", tokens=None)
        b.say(do="slot", id=2, group="h", tokens=None)
        assert b.hear() == {"id": 2}  # the groups know nothing of each other
        b.say(do="slot", id=3, group="g", tokens=None)
        a.say(do="slot", id=4, group="g", tokens=None)
        assert a.hears_nothing()
        a.say(do="leave", id=1, answered=True)
        assert a.hear() == {"id": 4}
        assert b.hears_nothing()
        a.say(do="leave", id=4, answered=True)
        assert b.hear() == {"id": 1}
        b.say(do="leave", id=1, answered=True)
        assert b.hear() == {"id": 3}


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\n",
        b"[]\n",
        b'{"do": "quit"}\n',
        b'{"do": "slot", "id": 1}\n',
        b'{"do": "slot", "group": "g"}\n',
        b'{"do": "slot", "id": 2, "group": "no"}\n',
        b"\xff\n",
        b"x" * (shared_limits.MAX_LINE + 1),
    ],
)
def test_who_talks_otherwise_is_left_and_the_others_are_served(line: bytes) -> None:
    with LimitServer({"g": EndpointLimits(1)}) as server, asking(server, 2) as (stranger, a):
        stranger.say(do="slot", id=1, group="g", tokens=None)
        assert stranger.hear() == {"id": 1}
        stranger.socket.sendall(line)
        a.say(do="slot", id=1, group="g", tokens=None)
        assert a.hear() == {"id": 1}
        with pytest.raises((ConnectionResetError, TypeError)):
            assert stranger.hear()["id"]


def test_only_this_user_finds_the_socket_and_nothing_is_left() -> None:
    server = LimitServer({"g": EndpointLimits(1)})
    with server:
        folder = Path(server.address).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(Path(server.address).stat().st_mode)
        a = Asker(server.address)
        a.say(do="slot", id=1, group="g", tokens=None)
        assert a.hear() == {"id": 1}
    assert a.hear() is None
    a.end()
    assert not folder.exists()
    with LimitServer({}):
        pass  # it may end at once


@pytest.mark.parametrize(
    ("length", "short"),
    [
        (shared_limits.MAX_PATH - len("/eval-factory-12345678/s"), False),
        (shared_limits.MAX_PATH, True),
    ],
)
def test_a_socket_has_a_short_path_in_any_folder(
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
