from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from eval_factory.executors.slurm_runs import CellStore
from eval_factory.workflows.suite.slurm_worker import (
    ENDED,
    PATIENCE_S,
    POLL_S,
    Takeover,
    interrupt_this_process,
    wait_for_older,
)

LONG_S = 60.0


class Clock:
    """Time goes on by sleeping alone; something may happen on the way."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.happens: dict[int, Path] = {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if len(self.slept) in self.happens:
            self.happens[len(self.slept)].touch()


@pytest.fixture
def cell(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_start_waits_for_nobody(cell: CellStore, clock: Clock) -> None:
    assert wait_for_older({cell: cell.new_attempt(1)}, clock=clock, sleep=clock.sleep)
    assert clock.slept == []


def test_who_has_ended_is_not_waited_for(cell: CellStore, clock: Clock) -> None:
    (cell.new_attempt(1) / ENDED).touch()
    assert wait_for_older({cell: cell.new_attempt(1)}, clock=clock, sleep=clock.sleep)
    assert clock.slept == []


def test_an_older_start_is_waited_for_until_it_has_ended(cell: CellStore, clock: Clock) -> None:
    """Of whichever wave: a submitter may have taken its task for lost."""
    first, second = cell.new_attempt(1), cell.new_attempt(2)
    clock.happens = {3: first / ENDED, 5: second / ENDED}
    assert wait_for_older({cell: cell.new_attempt(2)}, clock=clock, sleep=clock.sleep)
    assert clock.slept == [POLL_S] * 5


def test_one_whose_node_is_gone_is_not_waited_for_for_ever(cell: CellStore, clock: Clock) -> None:
    cell.new_attempt(1)
    assert not wait_for_older({cell: cell.new_attempt(1)}, clock=clock, sleep=clock.sleep)
    assert PATIENCE_S <= sum(clock.slept) < PATIENCE_S + 2 * POLL_S


def test_only_a_newer_start_takes_over(cell: CellStore) -> None:
    told: list[None] = []
    cell.new_attempt(1)
    cell.new_attempt(1)
    takeover = Takeover([cell], lambda: told.append(None))
    takeover.look()
    assert (told, takeover.happened) == ([], False)
    cell.new_attempt(2)
    takeover.look()
    takeover.look()
    assert (told, takeover.happened) == ([None], True)


def test_of_several_cells_any_one_tells(tmp_path: Path, clock: Clock) -> None:
    cells = [CellStore(tmp_path / name) for name in "abc"]
    begun = {cell: cell.new_attempt(1) for cell in cells}
    told: list[None] = []
    takeover = Takeover(begun, lambda: told.append(None))
    takeover.look()
    assert not told
    newer = {cell: cell.new_attempt(1) for cell in cells[1:]}
    takeover.look()
    assert len(told) == 1
    clock.happens = {2: begun[cells[1]] / ENDED, 4: begun[cells[2]] / ENDED}
    assert wait_for_older(newer, clock=clock, sleep=clock.sleep)
    assert len(clock.slept) == 4


def test_a_file_system_that_does_not_answer_says_nothing(cell: CellStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: CellStore) -> list[Path]:
        raise OSError("stale file handle")

    takeover = Takeover([cell], lambda: pytest.fail("interrupted"))
    monkeypatch.setattr(CellStore, "attempts", fails)
    takeover.look()
    assert not takeover.happened


def test_it_looks_while_it_is_entered(cell: CellStore) -> None:
    told = threading.Event()
    with Takeover([cell], told.set, every_s=0.01) as takeover:
        assert not takeover.happened
        cell.new_attempt(1)
        assert told.wait(LONG_S)
    assert takeover.happened
    told.clear()
    cell.new_attempt(1)
    takeover.look()
    assert not told.is_set()


def test_it_stops_looking_when_it_is_left(cell: CellStore) -> None:
    with Takeover([cell], lambda: pytest.fail("interrupted"), every_s=LONG_S) as takeover:
        pass
    cell.new_attempt(1)
    assert not takeover.happened


def test_an_interrupt_is_what_slurm_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(os, "getpid", lambda: 41)
    interrupt_this_process()
    assert sent == [(41, signal.SIGTERM)]
