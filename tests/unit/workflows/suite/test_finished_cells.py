from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir, SuiteDir, sha256_of
from eval_factory.plan.run_plan import RUNTIME_SETTINGS, Plan, make_plan
from eval_factory.report.checksums import read_checksums
from eval_factory.workflows.resume import DataRead, state_of_ended_run, write_state
from eval_factory.workflows.suite import finished_cells
from eval_factory.workflows.suite.finished_cells import (
    copy_finished_run,
    find_finished_runs,
    finished_result,
    has_partial_result,
)
from facts import naming


def plan_of(folder: RunDir, **flags: Any) -> Plan:
    """As of the folder's own run, but for `flags`."""
    return make_plan(evaluation({"config.output_dir": str(folder.root), **flags}))


@pytest.mark.parametrize(
    "path", ["", "config.params.parallelism", "target.api_endpoint.requests_per_minute"]
)
def test_what_changes_no_number_begins_no_run(path: str, folder: RunDir) -> None:
    result = finished_result(plan_of(folder, **({path: 3} if path else {})))
    assert result is not None
    assert result.why_not_reportable is None


def test_each_value_that_is_no_part_of_a_runs_identity_chooses_whether_a_result_depends_on_it() -> (
    None
):
    """A new one has to be put into this list, or among those that are read when a result is collected."""
    assert RUNTIME_SETTINGS >= finished_cells.READ_WHEN_COLLECTED
    extra = {
        f"config.params.extra.{name}"
        for name in (
            "stop_after_failures",
            "perturb_unchecked",
            "max_cost",
            "max_requests",
            "max_tokens_total",
            "max_wall_s",
            "gpt_judge_api_key",
            "llama_judge_api_key",
            "claude_judge_api_key",
        )
    }
    endpoint = {
        f"target.api_endpoint.{name}"
        for name in ("api_key", "oauth", "requests_per_minute", "tokens_per_minute", "batch")
    }
    params = {f"config.params.{name}" for name in ("parallelism", "max_retries", "request_timeout")}
    assert {
        "config.output_dir"
    } | params | extra | endpoint == finished_cells.SETTINGS_WITHOUT_EFFECT


@pytest.mark.parametrize(
    "flags",
    [
        {"config.params.limit_samples": 3},
        {"target.api_endpoint.model_id": "org/other"},
        {"config.params.extra.min_coverage": 0.5},
        {"config.params.extra.offline": True},
        {"target.api_endpoint.training_cutoff": "2024-06"},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_what_may_change_a_number_does(flags: dict[str, Any], folder: RunDir) -> None:
    assert finished_result(plan_of(folder, **flags)) is None


def test_a_result_that_cannot_be_read_is_made_again(folder: RunDir) -> None:
    folder.evaluation_config.write_text("results: [", "utf-8")
    assert finished_result(plan_of(folder)) is None
    folder.evaluation_config.unlink()
    assert finished_result(plan_of(folder)) is None


def leave_partial(folder: RunDir, made: Plan) -> None:
    runs = [folder.root / "helm/runs/s/r"]
    write_state(
        folder,
        state_of_ended_run(made, runs, run_id="r", wall_s=1.0, complete=False, data=DataRead()),
    )


def test_a_result_with_gaps_is_not_finished(folder: RunDir) -> None:
    made = plan_of(folder)
    assert finished_cells.is_complete_run(made)
    assert not finished_cells.is_complete_run(plan_of(folder, **{"config.params.limit_samples": 3}))
    assert not has_partial_result(folder, made.identity)
    leave_partial(folder, made)
    assert finished_result(made) is None
    assert not finished_cells.is_complete_run(made)
    assert has_partial_result(folder, made.identity)
    assert not has_partial_result(folder, "another's")
    folder.evaluation_config.unlink()
    assert not has_partial_result(folder, made.identity)


EXTRA = "config.params.extra."


@pytest.mark.parametrize(
    ("flags", "own"),
    [
        ({}, False),
        ({f"{EXTRA}data_dir": "/bundle"}, True),
        ({f"{EXTRA}offline": True}, True),
        (
            {"config.type": "ehrshot", f"{EXTRA}subject": "guo_los", f"{EXTRA}data_path": "/data"},
            True,
        ),
    ],
    ids=["downloaded", "bundle", "offline", "own"],
)
def test_data_that_may_be_others_today(flags: dict[str, Any], own: bool) -> None:
    assert finished_cells.reads_local_data(plan(flags)) is own


@pytest.mark.parametrize("own", [None, "mine"])
def test_gaps_in_a_result_of_data_that_may_have_changed_are_not_kept(
    own: str | None, folder: RunDir
) -> None:
    flags = {"config.type": "clear", f"{EXTRA}condition": "homelessness", f"{EXTRA}data_path": own}
    made = plan_of(folder, **(flags if own else {}))
    assert not finished_cells.has_usable_partial_result(made)
    leave_partial(folder, made)
    assert has_partial_result(folder, made.identity)
    assert finished_cells.has_usable_partial_result(made) is (own is None)


def test_complete_runs_of_this_version_are_found_wherever_they_lie(
    folder: RunDir, tmp_path: Path
) -> None:
    identity = plan_of(folder).identity
    deep = tmp_path / "deep" / "er"
    deep.mkdir(parents=True)
    folder.root.rename(deep / "out")
    found = {identity: (deep / "out",)}
    assert find_finished_runs([tmp_path]) == find_finished_runs([deep / "out"]) == found
    assert find_finished_runs([]) == {}
    state = json.loads((deep / "out" / ".run_state.json").read_text())
    for change in ({"complete": False}, {"versions": {"eval_factory": "0"}}):
        (deep / "out" / ".run_state.json").write_text(json.dumps({**state, **change}))
        assert find_finished_runs([tmp_path]) == {}
    with pytest.raises(ConfigError, match=naming("--reuse: ", "no folder")):
        find_finished_runs([tmp_path / "none"])


def test_the_source_is_the_same_run_in_another_place(folder: RunDir, tmp_path: Path) -> None:
    other = plan_of(RunDir(tmp_path / "cell"))
    known = {other.identity: (folder.root,)}
    assert finished_cells.find_run_to_copy(other, known) == folder.root
    assert finished_cells.find_run_to_copy(plan_of(folder), known) is None
    assert finished_cells.find_run_to_copy(other, {"another": (folder.root,)}) is None


def cell_of(tmp_path: Path) -> tuple[Plan, SuiteDir]:
    return plan_of(RunDir(tmp_path / "suite" / "model" / "task")), SuiteDir(tmp_path / "suite")


def test_it_is_copied_whole_and_left_as_it_is(folder: RunDir, tmp_path: Path) -> None:
    """Also what a killed run left in the write-ahead log of its cache; not its lock."""
    wal, index = folder.answer_files[1:3]
    wal.write_bytes(b"log")
    index.write_bytes(b"index")
    (folder.root / ".report.html.1234.part").touch()
    before = {path.name for path in folder.root.iterdir()}
    made, suite = cell_of(tmp_path)
    assert copy_finished_run(folder.root, made.rundir.root, suite)
    copy = made.rundir
    assert {path.name for path in copy.root.iterdir()} == before - {
        index.name,
        ".report.html.1234.part",
        ".lock",
    }
    assert copy.answer_files[1].read_bytes() == b"log"
    sums = read_checksums(copy.checksums)
    assert {name: sha256_of(copy.root / name) for name in sums} == sums
    assert {path.name for path in folder.root.iterdir()} == before | {".lock"}
    assert [path.name for path in copy.root.parent.iterdir()] == ["task"]


def test_what_stood_in_its_place_is_kept(folder: RunDir, tmp_path: Path) -> None:
    made, suite = cell_of(tmp_path)
    made.rundir.root.mkdir(parents=True)
    (made.rundir.root / "own").write_text("paid for")
    assert copy_finished_run(folder.root, made.rundir.root, suite)
    assert made.rundir.run_state.is_file()
    assert not (made.rundir.root / "own").exists()
    (aside,) = (suite.state / "set-aside" / "model").iterdir()
    assert aside.name.startswith("task-")
    assert (aside / "own").read_text() == "paid for"


def test_nothing_is_taken_where_somebody_works(folder: RunDir, tmp_path: Path) -> None:
    made, suite = cell_of(tmp_path)
    with folder.locked():
        assert not copy_finished_run(folder.root, made.rundir.root, suite)
    assert not made.rundir.root.exists()
    made.rundir.root.mkdir(parents=True)
    with made.rundir.locked():
        assert not copy_finished_run(folder.root, made.rundir.root, suite)
    assert [path.name for path in made.rundir.root.parent.iterdir()] == ["task"]


def test_a_folder_that_cannot_be_written(folder: RunDir, tmp_path: Path) -> None:
    (tmp_path / "suite").touch()
    made, suite = cell_of(tmp_path)
    with pytest.raises(PrerequisiteError, match=str(folder.root)):
        copy_finished_run(folder.root, made.rundir.root, suite)
