"""Waves of runs: what is on disk, and which tasks are theirs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from eval_factory.core.rundir import SuiteDir
from eval_factory.executors import slurm_waves
from eval_factory.executors.slurm_waves import (
    SlurmSettings,
    SlurmStore,
    Wave,
    split_into_arrays,
    task_of_each_run,
)
from slurm_cells import RESOURCES, run_of, submitted, task

A, B, C = (run_of(name) for name in ("t/a/0", "t/b/0", "t/c/0"))
WAVES = [Wave(1, "ef-x-w1", (A, B, C)), Wave(2, "ef-x-w2", (B,))]


def test_tasks_are_known_by_the_name_of_their_job_and_their_number() -> None:
    """Of two tasks of one run the one that runs counts."""
    running = task("ef-x-w1", 2, "RUNNING")
    queue = [task("ef-x-w1", 0), running, task("ef-y-w1", 1), task("ef-x-w1", 3)]
    assert task_of_each_run(queue, WAVES) == {"t/a/0": queue[0], "t/c/0": running}
    first = task("ef-x-w1", 1, "RUNNING")
    second = task("ef-x-w2", 0)
    assert (
        task_of_each_run([first, second], WAVES)
        == task_of_each_run([second, first], WAVES)
        == {"t/b/0": first}
    )


def test_an_array_for_each_endpoint_and_resources_and_no_larger_than_slurm_takes() -> None:
    other = run_of("t/d/0", resources={**RESOURCES, "cpus": 2})
    plan = [A, run_of("t/b/0", group="h"), C, other, run_of("t/e/0")]
    found = [[run.name for run in array] for array in split_into_arrays(plan, 2)]
    assert found == [["t/a/0", "t/c/0"], ["t/e/0"], ["t/b/0"], ["t/d/0"]]
    assert [len(array) for array in split_into_arrays(plan, 1000)] == [3, 1, 1]
    # What is done together is one task, however much it is.
    plan = [run_of(f"t/{name}/0", serve={"replicas": 1}) for name in "abc"]
    assert list(split_into_arrays(plan, 2)) == [plan]
    wave = Wave(3, "ef-x-w3", tuple(plan), together=True)
    only = task("ef-x-w3", 0)
    assert task_of_each_run([only], [wave]) == {run.name: only for run in plan}


def test_a_wave_of_an_earlier_version_has_its_settings(tmp_path: Path) -> None:
    """That version called them `asks`."""
    wave = submitted(SuiteDir(tmp_path), "t/d/0")
    file = tmp_path / "wave.json"
    text = json.dumps(asdict(wave), default=str)
    file.write_text(text.replace('"settings"', '"asks"'))
    assert slurm_waves.read_wave(file).runs[0].settings == wave.runs[0].settings


def test_waves_are_numbered_and_their_lists_are_there_first(tmp_path: Path) -> None:
    store = SlurmStore(SuiteDir(tmp_path))
    assert not store.exists()
    name = store.create_folders()
    store.cancelled.touch()
    assert (store.exists(), store.create_folders(), store.waves()) == (True, name, [])
    assert not store.cancelled.exists(), "a new invocation takes it back that all was cancelled"
    unprobed = replace(B, probed=())
    first = store.new_wave(name, [A, unprobed])
    assert store.waves() == [first] == [Wave(1, f"ef-{name}-w1", (A, unprobed))]
    assert store.logs_folder(1).is_dir()
    together = store.new_wave(name, [run_of("t/d/0", serve={"replicas": 1})])
    found = [(wave.number, len(wave.runs), wave.together) for wave in store.waves()]
    assert found == [(1, 2, False), (2, 1, True)]
    assert store.task_log(first, unprobed).name == "1.log"
    assert [store.was_submitted_again(wave, run_of("t/d/9")) for wave in (first, together)] == [
        True,
        False,
    ]


def test_what_another_version_asked_of_slurm_is_left_out() -> None:
    run = run_of("a/b/0a1b")
    newer = replace(run, settings={**run.settings, "something_new": 1})
    assert SlurmSettings.of(newer) == SlurmSettings.of(run)


def test_an_older_start_is_the_older_whatever_ended_late(tmp_path: Path) -> None:
    for age, name in ((50, "w2-b"), (100, "w1-a")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert [path.name for path in slurm_waves.start_marks_below(tmp_path)] == ["w1-a", "w2-b"]
    assert slurm_waves.start_marks_below(tmp_path / "none") == []
