from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir, SuiteDir, sha256_of
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.checksums import read_checksums
from eval_factory.workflows.suite.finished_cells import finished_below, source_for, take_over
from unit.builders import evaluation


def plan_in(root: Path) -> Plan:
    return make_plan(evaluation({"config.output_dir": str(root)}))


def test_complete_runs_of_this_version_are_found_wherever_they_lie(folder: RunDir, tmp_path: Path) -> None:
    identity = plan_in(folder.root).identity
    deep = tmp_path / "deep" / "er"
    deep.mkdir(parents=True)
    folder.root.rename(deep / "out")
    found = {identity: (deep / "out",)}
    assert finished_below([tmp_path]) == finished_below([deep / "out"]) == found
    assert finished_below([]) == {}
    state = json.loads((deep / "out" / ".run_state.json").read_text())
    for change in ({"complete": False}, {"versions": {"eval_factory": "0"}}):
        (deep / "out" / ".run_state.json").write_text(json.dumps({**state, **change}))
        assert finished_below([tmp_path]) == {}
    with pytest.raises(ConfigError, match="--reuse: there is no folder"):
        finished_below([tmp_path / "none"])


def test_the_source_is_the_same_run_in_another_place(folder: RunDir, tmp_path: Path) -> None:
    other = plan_in(tmp_path / "cell")
    known = {other.identity: (folder.root,)}
    assert source_for(other, known) == folder.root
    assert source_for(plan_in(folder.root), known) is None
    assert source_for(other, {"another": (folder.root,)}) is None


def test_it_is_copied_whole_and_left_as_it_is(folder: RunDir, tmp_path: Path) -> None:
    """Also what a killed run left in the write-ahead log of its cache; not its lock."""
    wal, index = folder.answers[1:]
    wal.write_bytes(b"log")
    index.write_bytes(b"index")
    (folder.root / ".report.html.1234.part").touch()
    before = {path.name for path in folder.root.iterdir()}
    made = plan_in(tmp_path / "suite" / "model" / "task")
    assert take_over(folder.root, made, SuiteDir(tmp_path / "suite"))
    copy = made.rundir
    assert {path.name for path in copy.root.iterdir()} == before - {index.name, ".report.html.1234.part", ".lock"}
    assert copy.answers[1].read_bytes() == b"log"
    sums = read_checksums(copy.checksums)
    assert {name: sha256_of(copy.root / name) for name in sums} == sums
    assert {path.name for path in folder.root.iterdir()} == before | {".lock"}
    assert [path.name for path in copy.root.parent.iterdir()] == ["task"]


def test_what_stood_in_its_place_is_kept(folder: RunDir, tmp_path: Path) -> None:
    made, suite = plan_in(tmp_path / "suite" / "model" / "task"), SuiteDir(tmp_path / "suite")
    made.rundir.root.mkdir(parents=True)
    (made.rundir.root / "own").write_text("paid for")
    assert take_over(folder.root, made, suite)
    assert made.rundir.run_state.is_file()
    assert not (made.rundir.root / "own").exists()
    (aside,) = (suite.state / "set-aside" / "model").iterdir()
    assert aside.name.startswith("task-")
    assert (aside / "own").read_text() == "paid for"


def test_nothing_is_taken_where_somebody_works(folder: RunDir, tmp_path: Path) -> None:
    made, suite = plan_in(tmp_path / "suite" / "model" / "task"), SuiteDir(tmp_path / "suite")
    with folder.locked():
        assert not take_over(folder.root, made, suite)
    assert not made.rundir.root.exists()
    made.rundir.root.mkdir(parents=True)
    with made.rundir.locked():
        assert not take_over(folder.root, made, suite)
    assert [path.name for path in made.rundir.root.parent.iterdir()] == ["task"]


def test_a_folder_that_cannot_be_written(folder: RunDir, tmp_path: Path) -> None:
    (tmp_path / "suite").touch()
    with pytest.raises(PrerequisiteError, match="cannot be copied to"):
        take_over(folder.root, plan_in(tmp_path / "suite" / "model" / "task"), SuiteDir(tmp_path / "suite"))
