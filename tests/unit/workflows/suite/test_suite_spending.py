"""What cells have asked, read from their journals now and then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_factory.core.budget import Spending
from eval_factory.core.rundir import RunDir
from eval_factory.workflows.suite import planned_cells
from eval_factory.workflows.suite.planned_cells import SpendingReader
from eval_factory.workflows.suite.suite_journal import COMPLETE, RUNNING


def test_a_journal_that_is_none(tmp_path: Path) -> None:
    RunDir(tmp_path).cache_db.write_text("no database, and long enough to be looked at" * 100)
    assert SpendingReader().look(tmp_path, RUNNING) == Spending()


def test_a_journal_is_read_again_where_it_is_another_and_not_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list[float] = [0.0]
    read: list[Path] = []

    def reading(path: Path, _: object) -> Spending:
        read.append(path)
        return Spending(requests=len(read))

    monkeypatch.setattr(planned_cells, "spent_so_far", reading)
    journal = RunDir(tmp_path).cache_db
    journal.touch()
    reader = SpendingReader(lambda: now[0])
    assert reader.look(tmp_path, RUNNING).requests == 1
    (tmp_path / "cache.db-wal").touch()
    now[0] = 4.9
    assert reader.look(tmp_path, RUNNING).requests == 1
    now[0] = 5.0
    assert reader.look(tmp_path, RUNNING).requests == 2
    now[0] = 11.0
    assert reader.look(tmp_path, RUNNING).requests == 2
    assert read == [journal, journal]
    os.utime(journal, (1.0, 1.0))
    now[0] = 16.0
    assert reader.look(tmp_path, RUNNING).requests == 3
    assert reader.look(tmp_path / "another", RUNNING).requests == 4
    (tmp_path / "cache.db-wal").write_text("the last answers")
    assert reader.look(tmp_path, RUNNING).requests == 3
    assert reader.look(tmp_path, COMPLETE).requests == 5  # at once: nothing is added to what has ended
