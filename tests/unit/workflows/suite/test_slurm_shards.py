"""A cell in parts: which tasks are missing, and what a task has to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.shard_spec import ShardPart
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.executors.slurm_waves import Wave
from eval_factory.workflows.suite.slurm_shards import (
    GONE,
    Step,
    Tasks,
    cell_key,
    end_of_part,
    is_over,
    latest_wave,
    lines_of,
    name_of,
    part_keys,
    run_id_of,
    steps,
)
from eval_factory.workflows.suite.slurm_store import Ended, PlanLine, SlurmStore
from unit.builders import plan

KEY = "t.1/e.2/0a1b"
ONE, TWO, THREE = part_keys(KEY, 3)
TASKS = Tasks(KEY, 3)
LINE = PlanLine(KEY, "t.1", "e.2", {"config": {}}, 2, no_preflight=False, debug=False)


class Store:
    """Of one cell in three parts, submitted in one wave."""

    def __init__(self, folder: Path) -> None:
        self.slurm = SlurmStore(SuiteDir(folder))
        self.id = self.slurm.begin()
        self.submit(ONE, TWO, THREE)

    def submit(self, *keys: str) -> Wave:
        run = f"run{len(self.slurm.waves()) + 1}"
        self.slurm.write_plan(lines_of(LINE, TASKS, keys, run))
        return self.slurm.new_wave(self.id, keys)

    def end(self, key: str, status: str = "complete", wave: int = 1, code: int = 0) -> Path:
        cell = self.slurm.cell(key)
        attempt = cell.new_attempt(wave)
        (attempt / "out").mkdir()
        cell.publish(Ended(attempt.name, status, code, "why", 1), wave, complete=status == "complete")
        return attempt / "out"

    def missing(self, *queued: str) -> list[str]:
        return TASKS.missing(self.slurm, queued, self.slurm.waves())

    def steps(self, key: str, wave: int = 1) -> list[Step]:
        """Of a task whose part comes to its end, where it has one to do."""
        found = []
        line = next(line for line in self.slurm.plan() if line.key == key)
        for step in steps(self.slurm, self.slurm.waves()[wave - 1], line):
            found.append(step)
            if step.part is not None:
                self.end(key, wave=wave)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_keys() -> None:
    assert part_keys(KEY, 3) == [f"{KEY}.1-of-3", f"{KEY}.2-of-3", f"{KEY}.3-of-3"]
    assert part_keys(KEY, 1) == []
    assert [cell_key(key) for key in (KEY, TWO)] == [KEY, KEY]
    assert [name_of(key) for key in (KEY, TWO)] == ["t.1/e.2", "t.1/e.2 2-of-3"]
    assert TASKS.keys == [KEY, ONE, TWO, THREE]
    assert (TASKS.first, Tasks(KEY, 1).first, Tasks(KEY, 1).keys) == ([ONE, TWO, THREE], [KEY], [KEY])


def test_a_cell_of_one_task_is_missing_where_it_is_not_queued(store: Store) -> None:
    whole = Tasks(KEY, 1)
    assert whole.missing(store.slurm, (), ()) == [KEY]
    assert whole.missing(store.slurm, {KEY}, ()) == []


def test_a_lost_part_alone_is_missing(store: Store) -> None:
    assert store.missing(ONE, TWO, THREE) == []
    store.end(ONE)
    assert store.missing(THREE) == [TWO]
    assert store.missing() == [TWO, THREE]


def test_a_part_with_gaps_waits_for_the_cells_end(store: Store) -> None:
    store.end(ONE, "partial")
    assert store.missing(TWO, THREE) == []
    assert store.missing(TWO) == [THREE]
    store.end(TWO)
    store.end(THREE)
    assert store.missing() == [ONE]


def test_when_all_parts_have_asked_the_cell_itself_is_missing(store: Store) -> None:
    out = [store.end(key) for key in (ONE, TWO, THREE)]
    assert store.missing() == [KEY]
    assert store.missing(KEY) == []
    out[1].rmdir()
    assert store.missing() == [TWO]
    assert store.missing(KEY) == []


def test_lines_name_the_part_and_the_run(store: Store) -> None:
    lines = {line.key: (line.part, line.of, line.run_id) for line in store.slurm.plan()}
    assert lines == {ONE: (1, 3, "run1"), TWO: (2, 3, "run1"), THREE: (3, 3, "run1"), KEY: (0, 3, "run1")}
    store.submit(TWO)
    lines = {line.key: (line.part, line.of, line.run_id) for line in store.slurm.plan()}
    assert lines == {ONE: (1, 3, "run1"), TWO: (2, 3, "run2"), THREE: (3, 3, "run1"), KEY: (0, 3, "run2")}
    (alone,) = lines_of(LINE, Tasks(KEY, 1), [KEY], "run3")
    assert (alone.part, alone.of, alone.run_id) == (0, 1, "")


def test_who_only_scores_goes_on_with_the_run_of_the_parts(store: Store) -> None:
    plan = store.slurm.plan()
    assert run_id_of(plan, TASKS, [KEY], "new") == "run1"
    assert run_id_of(plan, TASKS, [TWO], "new") == "new"
    assert run_id_of(plan, Tasks(KEY, 2), [KEY], "new") == "new"
    assert run_id_of([], TASKS, [KEY], "new") == "new"


def test_a_task_asks_its_part_and_the_last_one_scores(store: Store) -> None:
    (first,) = store.steps(ONE)
    assert (first.cell.folder, first.wave, first.part) == (store.slurm.cell(ONE).folder, 1, ShardPart(1, 3, "run1"))
    assert (first.merged, first.asked_as, first.line.key) == ((), None, ONE)
    assert [step.part for step in store.steps(THREE)] == [ShardPart(3, 3, "run1")]
    asked, scored = store.steps(TWO)
    assert asked.part == ShardPart(2, 3, "run1")
    assert (scored.cell.folder, scored.wave, scored.part) == (store.slurm.cell(KEY).folder, 1, None)
    assert (scored.asked_as, scored.line.key) == ("run1", KEY)
    assert scored.merged == tuple(store.slurm.cell(key).attempts()[0] / "out" for key in (ONE, TWO, THREE))


def test_one_task_scores_and_does_it_again_where_it_was_killed(store: Store) -> None:
    for key in (ONE, TWO, THREE):
        store.end(key)
    assert len(store.steps(TWO)) == 1
    assert store.steps(ONE) == []
    assert len(store.steps(TWO)) == 1
    store.submit(KEY)
    (again,) = store.steps(KEY, wave=2)
    assert (again.wave, again.part) == (2, None)
    store.slurm.cell(KEY).publish(Ended("a", "partial", 1, None, 1), 2, complete=False)
    assert store.steps(KEY, wave=2) == []
    assert store.steps(TWO) == []


def test_a_part_that_failed_is_the_cells_failure(store: Store) -> None:
    store.end(ONE, "failed", code=4)
    store.end(TWO)
    assert [step.part for step in store.steps(THREE)] == [ShardPart(3, 3, "run1")]
    assert store.slurm.cell(KEY).ended(1) == Ended("", "failed", 4, "why", 1)
    assert store.slurm.cell(KEY).done() is None


def test_gaps_of_a_part_are_scored(store: Store) -> None:
    store.end(ONE, "partial", code=1)
    store.end(TWO)
    assert [step.asked_as for step in store.steps(THREE)] == [None, "run1"]


def test_a_part_counts_as_it_ended_in_its_last_wave(store: Store) -> None:
    store.end(ONE, "failed", code=4)
    store.end(TWO)
    store.submit(ONE, THREE)
    assert end_of_part(store.slurm, ONE, store.slurm.waves()) is None
    assert [step.asked_as for step in store.steps(THREE, wave=2)] == [None], "part 1 is still to end"
    asked, scored = store.steps(ONE, wave=2)
    assert asked.part == ShardPart(1, 3, "run2")
    assert (scored.wave, scored.asked_as) == (2, "run2")


def test_where_the_parts_are_gone_the_task_that_scores_says_so(store: Store) -> None:
    store.submit(KEY)
    assert store.steps(KEY, wave=2) == []
    assert store.slurm.cell(KEY).ended(2) == Ended("", "missing", 1, GONE, 0)


def test_what_another_division_has_asked_is_taken_over_once(store: Store) -> None:
    other = store.end(f"{KEY}.2-of-2")
    store.slurm.cell(f"{KEY}.1-of-2").folder.mkdir()
    store.end("t.1/e.2/0a1c.1-of-2")
    store.end(TWO, "partial")
    assert store.steps(ONE)[0].merged == (other,)
    line = next(line for line in store.slurm.plan() if line.key == TWO)
    store.submit(TWO)
    assert next(steps(store.slurm, store.slurm.waves()[1], line)).merged == ()


def test_a_cell_of_one_task_is_done_once(store: Store) -> None:
    wave = store.slurm.new_wave(store.id, ["x/y/z"])
    line = PlanLine("x/y/z", "x", "y", {}, 2, no_preflight=False, debug=False)
    (only,) = steps(store.slurm, wave, line)
    assert (only.part, only.asked_as, only.merged, only.wave) == (None, None, (), 2)
    store.slurm.cell("x/y/z").publish(Ended("", "failed", 4, None, 1), 2, complete=False)
    assert list(steps(store.slurm, wave, line)) == []


def test_keys_are_needed_until_the_cell_is_over(store: Store) -> None:
    (wave,) = waves = store.slurm.waves()
    store.end(ONE)
    assert not is_over(store.slurm, waves, wave, ONE)
    assert not is_over(store.slurm, waves, wave, KEY)
    store.slurm.cell(KEY).publish(Ended("", "failed", 4, None, 1), 1, complete=False)
    assert is_over(store.slurm, waves, wave, ONE)
    assert is_over(store.slurm, waves, wave, KEY)
    store.submit(TWO)
    assert not is_over(store.slurm, store.slurm.waves(), wave, ONE)
    store.end(KEY, wave=2)
    assert is_over(store.slurm, store.slurm.waves(), wave, ONE)


def test_the_latest_wave() -> None:
    waves = [Wave(1, "a", (ONE, TWO)), Wave(3, "b", (TWO,)), Wave(2, "c", (KEY,))]
    assert [latest_wave(waves, keys) for keys in ([ONE], [ONE, TWO], [KEY], [THREE])] == [1, 3, 2, 0]


def test_a_limit_of_the_runs_own_is_kept_on_one_machine() -> None:
    flags: dict[str, int] = {"config.params.extra.shards": 3, "config.params.limit_samples": 2}
    assert Tasks.of_plan(KEY, plan(flags)) == Tasks(KEY, 2)
    assert Tasks.of_plan(KEY, plan({**flags, "config.params.extra.max_requests": 9})) == Tasks(KEY, 1)
