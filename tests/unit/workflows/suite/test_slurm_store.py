from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm import Wave
from eval_factory.workflows.suite.slurm_store import CellStore, EndedCell, PlanLine, SlurmStore

GOOD, BAD = EndedCell("w1-a", "complete", 0, None, 1), EndedCell("w1-b", "failed", 4, "x", 2)


def line(key: str, **changes: Any) -> PlanLine:
    usual: dict[str, Any] = {
        "key": key, "target": "t", "evaluation": "e", "document": {"config": {}}, "max_attempts": 2,
        "no_preflight": False, "debug": False,
    }  # fmt: skip
    return PlanLine(**{**usual, **changes})


def test_the_first_that_publishes_has_decided(tmp_path: Path) -> None:
    cell = CellStore(tmp_path)
    assert (cell.done(), cell.ended(1)) == (None, None)
    cell.publish(GOOD, 1, complete=True)
    cell.publish(BAD, 1, complete=False)
    cell.publish(EndedCell("w1-c", "complete", 0, None, 1), 1, complete=True)
    assert (cell.done(), cell.ended(1), cell.ended(2)) == (GOOD, GOOD, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done.json", "ended-w1.json"]


def test_what_is_not_complete_counts_for_its_wave_alone(tmp_path: Path) -> None:
    cell = CellStore(tmp_path)
    cell.publish(BAD, 1, complete=False)
    assert (cell.done(), cell.ended(1)) == (None, BAD)
    cell.publish(GOOD, 2, complete=True)
    assert (cell.done(), cell.ended(1), cell.ended(2)) == (GOOD, BAD, GOOD)
    cell.forget_done()
    assert list(tmp_path.iterdir()) == []


def test_attempts_have_folders_of_their_own(tmp_path: Path) -> None:
    cell = CellStore(tmp_path)
    found = [cell.new_attempt(wave) for wave in (1, 1, 11)]
    for age, path in enumerate(found):
        os.utime(path, (100 - age, 100 - age))
    assert cell.attempts() == found[::-1]
    assert [cell.attempts_of(wave) for wave in (1, 11, 2)] == [2, 1, 0]
    assert stat.S_IMODE(found[0].stat().st_mode) == 0o700
    assert cell.output(found[0].name) == found[0] / "out"


def test_an_older_start_that_ends_late_is_still_the_older(tmp_path: Path) -> None:
    """Else the next start would take its answers, and not those of the start that took over from it."""
    cell = CellStore(tmp_path)
    older, newer = cell.new_attempt(1), cell.new_attempt(1)
    for age, path in ((100, older), (50, newer)):
        (path / "run_config.yml").touch()
        os.utime(path / "run_config.yml", (1000 - age, 1000 - age))
    os.utime(newer, (1000, 1000))
    os.utime(older, (2000, 2000))
    assert cell.attempts() == [older, newer]


def test_waves_are_numbered_and_their_lists_are_there_first(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    assert not store.is_there()
    name = store.begin()
    assert store.is_there()
    assert store.begin() == name
    assert store.waves() == []
    first = store.new_wave(name, ["a", "b"])
    assert first == Wave(1, f"ef-{name}-w1", ("a", "b"))
    assert store.logs(1).is_dir()
    store.wave_file(2).touch()  # its submitter was killed
    assert store.new_wave(name, ["c"]).number == 3
    assert [(wave.number, wave.keys) for wave in store.waves()] == [(1, ("a", "b")), (2, ()), (3, ("c",))]


def test_a_wave_says_whether_one_task_does_it_all(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    name = store.begin()
    assert not store.new_wave(name, ["a"]).together
    assert store.new_wave(name, ["a", "b"], together=True).together
    assert [wave.together for wave in store.waves()] == [False, True]
    store.wave_file(1).write_text('{"number": 1, "job_name": "n", "keys": ["a"]}')  # of an earlier version
    assert not store.waves()[0].together
    assert store.served("t", 2).parent == store.root / "served" / "t"
    assert store.served("t", 2) != store.served("t", 2)


def test_a_wave_may_have_tasks_for_as_long_as_its_keys_are_there(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    store.begin()
    assert not store.open_waves()
    store.environment(1).touch()
    assert store.open_waves()


def test_a_new_invocation_takes_back_that_all_was_cancelled(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    store.begin()
    store.cancelled.touch()
    store.begin()
    assert not store.cancelled.exists()


def test_the_plan_keeps_what_is_queued_still(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    store.begin()
    assert store.plan() == []
    store.write_plan([line("a"), line("b")])
    store.write_plan([line("b", max_attempts=5), line("c")])
    assert [(one.key, one.max_attempts) for one in store.plan()] == [("a", 2), ("b", 5), ("c", 2)]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(PrerequisiteError, match=r"needs hard links; .* has none: Operation not permitted"):
        SlurmStore(SuiteDir(tmp_path)).begin()
    assert list((tmp_path / ".suite" / "slurm").glob("*.tmp")) == []
