from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import pytest
import yaml

from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache, read_answers
from eval_factory.workflows.suite import slurm_worker
from eval_factory.workflows.suite.cell_outcome import CellSpec
from eval_factory.workflows.suite.slurm_store import CellStore, EndedCell, PlanLine, SlurmStore
from eval_factory.workflows.suite.slurm_suite import write_environment
from eval_factory.workflows.suite.slurm_worker import MOST_STARTS, Takeover, copy_answers, main, work

KEY = "t/e/0a1b"
COMPLETE = {"exit_code": 0, "status": "complete", "not_reportable": None}
PARTIAL = {"exit_code": 1, "status": "partial", "not_reportable": "1 of 4 has no answer\n  ask again"}
CRASH = {"exit_code": 4, "error": {"type": "HelmError", "message": "helm-run failed"}}
TERMINATED = {"exit_code": 130, "error": {"type": "KeyboardInterrupt", "message": "interrupted"}}


class Suite:
    """One wave of two cells, and what each attempt comes to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dir = SuiteDir(folder)
        self.store = SlurmStore(self.dir)
        self.wave = self.store.new_wave(self.store.begin(), [KEY, "t/f/0a1b"])
        document = {"config": {"type": "x", "output_dir": "/elsewhere", "params": {}}, "target": {}}
        self.store.write_plan(
            PlanLine(key, "t", key.split("/")[1], document, 3, no_preflight=False, debug=False)
            for key in self.wave.keys
        )  # fmt: skip
        self.dir.cell_log("t", "e").parent.mkdir(parents=True)
        write_environment(self.store.environment(1), {"OPENAI_API_KEY": "k"}, ["OPENAI_API_KEY"])
        self.specs: list[CellSpec] = []
        self.ends: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(slurm_worker, "run_cell", self._run)
        self.waited_for: list[list[Path]] = []
        monkeypatch.setattr(slurm_worker, "wait_for_older", self._wait)
        monkeypatch.setenv("OPENAI_API_KEY", "not this")
        self.cell = self.store.cell(KEY)

    def _run(self, spec: CellSpec, screen: TextIO) -> int:
        self.specs.append(spec)
        assert os.environ["OPENAI_API_KEY"] == "k"
        screen.write("said\n")
        self.meanwhile()
        end = self.ends.pop(0)
        Path(spec.record).write_text(json.dumps(end), "utf-8")
        code: int = end["exit_code"]
        return code

    def _wait(self, begun: dict[CellStore, Path]) -> None:
        ((cell, attempt),) = begun.items()
        self.waited_for.append([path for path in cell.attempts() if path != attempt])
        assert not (attempt / "out").exists()

    def work(self, *ends: dict[str, Any], index: int = 0) -> int:
        self.ends = list(ends)
        code = work(self.store.plan_file, self.store.wave_file(1), index)
        assert self.ends == []
        return code


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(tmp_path / "s", monkeypatch)


def test_a_cell_is_done_in_a_folder_of_its_own_and_published(suite: Suite) -> None:
    assert suite.work(COMPLETE) == 0
    (attempt,) = suite.cell.attempts()
    assert suite.cell.done() == suite.cell.ended(1) == EndedCell(attempt.name, "complete", 0, None, 1)
    (spec,) = suite.specs
    config = yaml.safe_load(Path(spec.run_config).read_text("utf-8"))
    assert config["config"]["output_dir"] == str(attempt / "out")
    assert (spec.probed, spec.debug, spec.fresh, Path(spec.record).parent) == (None, False, False, attempt)
    assert suite.dir.cell_log("t", "e").read_text() == "said\n"


def test_what_is_done_is_not_done_again(suite: Suite) -> None:
    suite.work(COMPLETE)
    assert suite.work() == 0
    suite.cell.forget_done()
    suite.cell.publish(EndedCell("x", "failed", 4, "no", 1), 1, complete=False)
    assert suite.work() == 0
    assert len(suite.specs) == 1


def test_where_another_attempt_can_help_there_is_one(suite: Suite) -> None:
    assert suite.work(CRASH, PARTIAL, COMPLETE) == 0
    assert suite.cell.done() is not None
    assert [spec.number for spec in suite.specs] == [1, 2, 3]


def test_what_came_of_the_last_attempt_is_published_but_not_as_done(suite: Suite) -> None:
    assert suite.work(PARTIAL, PARTIAL, PARTIAL) == 1
    ended = suite.cell.ended(1)
    assert ended is not None
    assert (ended.status, ended.exit_code, ended.attempts, ended.reason) == ("partial", 1, 3, "1 of 4 has no answer")
    assert ended.attempt == suite.cell.attempts()[-1].name
    assert suite.cell.done() is None


def test_two_crashes_are_enough(suite: Suite) -> None:
    assert suite.work(CRASH, CRASH) == 4
    ended = suite.cell.ended(1)
    assert ended is not None
    assert (ended.status, ended.attempts) == ("failed", 2)


def test_an_interrupted_attempt_leaves_the_cell_to_the_next_start(suite: Suite) -> None:
    assert suite.work(TERMINATED) == 130
    assert suite.cell.ended(1) is None
    assert suite.store.environment(1).exists()
    assert suite.work(COMPLETE) == 0


def test_a_task_that_runs_twice_is_published_once(suite: Suite) -> None:
    """While one copy is at work the other, on another node, comes to its end."""
    other = EndedCell("w1-other", "complete", 0, None, 1)
    suite.meanwhile = lambda: suite.cell.publish(other, 1, complete=True)
    assert suite.work(CRASH, COMPLETE) == 0
    assert suite.cell.done() == suite.cell.ended(1) == other


def test_a_newer_start_of_the_same_cell_ends_this_one(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It began after this one had its folder, and before this one had its answers."""
    looking: list[Takeover] = []

    def interrupted() -> None:
        (takeover,) = looking
        takeover.look()

    def takeover_of(cells: list[CellStore]) -> Takeover:
        looking.append(Takeover(cells, lambda: None, every_s=60.0))
        return looking[0]

    monkeypatch.setattr(slurm_worker, "Takeover", takeover_of)
    monkeypatch.setattr(slurm_worker, "wait_for_older", lambda begun: [cell.new_attempt(1) for cell in begun])
    suite.meanwhile = interrupted
    assert suite.work(TERMINATED) == 130
    assert suite.cell.ended(1) is None
    assert "Slurm has started this cell again elsewhere" in suite.dir.cell_log("t", "e").read_text()


def test_answers_are_copied_when_older_starts_have_ended(suite: Suite) -> None:
    suite.work(CRASH, COMPLETE)
    first, second = suite.waited_for
    assert first == []
    assert [path.name for path in second] == [Path(suite.specs[0].run_config).parent.name]


def test_a_cell_that_takes_its_node_down_is_not_begun_for_ever(suite: Suite) -> None:
    for _ in range(MOST_STARTS - 1):
        suite.cell.new_attempt(1)
    suite.cell.new_attempt(2)
    assert suite.work(CRASH) == 4
    ended = suite.cell.ended(1)
    assert ended is not None
    assert (ended.attempt, ended.status) == ("", "failed")
    assert "was begun 6 times" in str(ended.reason)


def test_keys_go_with_the_last_task_of_the_wave(suite: Suite) -> None:
    suite.work(COMPLETE)
    assert suite.store.environment(1).exists()
    suite.work(COMPLETE, index=1)
    assert not suite.store.environment(1).exists()


def test_without_keys_nothing_is_asked(suite: Suite) -> None:
    suite.store.environment(1).unlink()
    assert suite.work() == 3
    ended = suite.cell.ended(1)
    assert ended is not None
    assert (ended.status, ended.exit_code) == ("missing", 3)
    assert "run the same command again" in str(ended.reason)


def journal(rundir: RunDir, *values: int) -> None:
    rundir.root.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(rundir.cache_db)
    connection.execute("CREATE TABLE IF NOT EXISTS responses (x)")
    connection.executemany("INSERT INTO responses VALUES (?)", [(value,) for value in values])
    connection.commit()
    connection.close()


def answers(rundir: RunDir) -> list[int]:
    connection = sqlite3.connect(rundir.cache_db)
    found = [row[0] for row in connection.execute("SELECT x FROM responses")]
    connection.close()
    return found


def test_the_answers_of_the_last_attempt_are_copied(suite: Suite) -> None:
    journal(RunDir(suite.dir.cell("t", "e")), 1)
    suite.work(TERMINATED)
    first = RunDir(suite.cell.attempts()[0] / "out")
    assert answers(first) == [1]
    journal(first, 2)
    suite.work(COMPLETE)
    assert answers(RunDir(suite.cell.attempts()[1] / "out")) == [1, 2]
    assert answers(RunDir(suite.dir.cell("t", "e"))) == [1]


def test_a_torn_journal_is_left_and_the_one_before_is_taken(suite: Suite) -> None:
    journal(RunDir(suite.dir.cell("t", "e")), 1)
    suite.cell.new_attempt(1)
    torn = RunDir(suite.cell.attempts()[0] / "out")
    torn.root.mkdir()
    torn.cache_db.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    suite.work(COMPLETE)
    assert answers(RunDir(suite.cell.attempts()[1] / "out")) == [1]


def test_a_journal_without_answers_does_not_hide_the_one_before(suite: Suite) -> None:
    """It was begun when nothing could be copied."""
    suite.cell.new_attempt(1)
    journal(RunDir(suite.cell.attempts()[0] / "out"), 1)
    (suite.cell.attempts()[0] / "later").touch()
    suite.cell.new_attempt(1)
    journal(RunDir(suite.cell.attempts()[1] / "out"))
    suite.work(COMPLETE)
    assert answers(RunDir(suite.cell.attempts()[2] / "out")) == [1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_nothing_is_asked_without_the_answers(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    journal(RunDir(suite.dir.cell("t", "e")), 1)

    def full(one: Path, other: Path) -> None:
        raise OSError(number, os.strerror(number), str(other))

    monkeypatch.setattr("shutil.copyfile", full)
    assert suite.work() == 3
    ended = suite.cell.ended(1)
    assert ended is not None
    assert (ended.attempt, ended.status, ended.exit_code) == ("", "failed", 3)
    assert str(ended.reason).startswith("cannot write ")
    assert str(ended.reason).endswith(f"out/cache.db: {os.strerror(number)}")
    (attempt,) = suite.cell.attempts()
    assert not (attempt / "out").exists()


def test_another_trouble_with_a_copy_is_no_full_disk(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(RunDir(suite.dir.cell("t", "e")), 1)

    def unreadable(one: Path, other: Path) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("shutil.copyfile", unreadable)
    assert suite.work(COMPLETE) == 0


def test_sqlite_has_words_of_its_own_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(RunDir(tmp_path / "a"), 1)

    def connect(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(OSError, match="No space left") as raised:
        copy_answers(RunDir(tmp_path / "a"), RunDir(tmp_path / "b"))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "b" / "cache.db"))
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 3), (errno.EIO, None)])
def test_a_disk_that_takes_no_more_ends_the_task_quietly(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, number: int, code: int | None
) -> None:
    def full(self: CellStore, *arguments: object, **named: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(CellStore, "publish", full)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setattr(slurm_worker, "interrupt_on_signals", lambda: None)
    suite.ends = [COMPLETE]
    given = [str(suite.store.plan_file), str(suite.store.wave_file(1))]
    if code is None:
        with pytest.raises(OSError, match="no"):
            main(given)
    else:
        assert main(given) == code


def test_nothing_to_copy(tmp_path: Path) -> None:
    assert not copy_answers(RunDir(tmp_path / "a"), RunDir(tmp_path / "b"))
    assert list(tmp_path.iterdir()) == []


def test_the_task_is_known_by_its_number(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setattr(slurm_worker, "interrupt_on_signals", lambda: None)
    suite.ends = [COMPLETE]
    assert main([str(suite.store.plan_file), str(suite.store.wave_file(1))]) == 0
    assert suite.cell.done() is None
    assert suite.store.cell("t/f/0a1b").done() is not None


def keep(rundir: RunDir, *keys: str) -> None:
    rundir.root.mkdir(parents=True)
    cache = ResponseCache(rundir.cache_db, "r1")
    for key in keys:
        attempt = Attempt(key, "model", 1, "answered", 200, None, 1.0, 1.0)
        cache.save(Answer(key, "model", "m", {}, {}, 1.0, 1.0), attempt)
    cache.close()


def test_what_parts_of_an_earlier_version_asked_is_not_asked_again(suite: Suite) -> None:
    """Tasks asked a part each; a part with a budget had processes of its own, and each of these a store."""
    for part, keys in ((1, "ab"), (2, "bc")):
        cell = suite.store.cell(f"{KEY}.{part}-of-2")
        keep(RunDir(cell.new_attempt(1) / "out"), *keys)
    killed = suite.cell.new_attempt(1) / "out"
    keep(RunDir(killed), "d")
    keep(RunDir(killed / "shards" / "1-of-3"), "e")
    assert suite.work(COMPLETE) == 0
    output = RunDir(suite.cell.attempts()[-1] / "out")
    assert sorted(answer["key"] for answer in read_answers(output.cache_db)) == list("abcde")
    with closing(sqlite3.connect(output.cache_db)) as connection:
        assert connection.execute("SELECT count(*) FROM attempts").fetchone() == (5,)
    assert not (output.root.parent / "copied").exists()


def test_a_task_of_a_part_that_an_earlier_version_submitted_does_nothing(suite: Suite) -> None:
    wave = suite.store.new_wave("id", [f"{KEY}.1-of-2"])
    line = {**json.loads(suite.store.plan_file.read_text().splitlines()[0]), "key": wave.keys[0], "part": 1, "of": 2}
    with suite.store.plan_file.open("a") as file:
        file.write(f"{json.dumps(line)}\n")
    assert work(suite.store.plan_file, suite.store.wave_file(wave.number), 0) == 0
    assert suite.specs == []
    assert suite.work(COMPLETE) == 0
