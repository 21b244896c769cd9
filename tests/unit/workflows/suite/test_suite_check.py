"""What a suite's table lacks, from its configuration and the cells' folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.suite import build_suite
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.plan.run_plan import Plan
from eval_factory.report.documents import to_yaml
from eval_factory.workflows.resume import DataRead, remember
from eval_factory.workflows.suite.checked_cells import checked
from eval_factory.workflows.suite.suite_check import ANOTHER, LOOK, NO_RESULT, OWN_DATA, CellCheck, check
from eval_factory.workflows.suite.suite_status import RUN_IT
from stored_results import instance, result, written
from suite_by_hand import cell_ended, cell_started, held, started, suite_folder

TARGET = {"name": "small", "api_endpoint": {"url": "demo://baseline", "model_id": "m", "type": "chat"}}
QA = "small/sample_medical_qa"


def suite(root: Path, *events: dict[str, Any], **changes: Any) -> SuiteDir:
    """A suite of one cell that was begun."""
    folder = suite_folder(root, started([QA]), *events)
    section = {"output_dir": "somewhere/else", "evaluations": ["sample_medical_qa"], "targets": [TARGET], **changes}
    folder.config.write_text(to_yaml({"suite": section}))
    return folder


def plan_of(folder: SuiteDir) -> Plan:
    found = build_suite(folder.config, flags={"suite.output_dir": str(folder.root)}, env={})
    plan = checked(found, {})[0].plan
    assert plan is not None
    return plan


def finish(plan: Plan, *, complete: bool = True, reportable: bool = True) -> None:
    """A result of this plan in its folder, as a run leaves it."""
    runs = plan.rundir.helm_runs / "one"
    runs.mkdir(parents=True)
    (runs / "stats.json").write_text("[]")
    whole = plan.evaluation.as_dict()
    records = [instance("a", 1.0), instance("b", 1.0 if complete else None)]
    made = result(records, reportable=reportable, status="complete" if complete else "partial")
    counts = replace(made.validity.instances, scored=sum(not one.error for one in records))
    written(plan.rundir.root, replace(made, validity=replace(made.validity, instances=counts)), whole)
    plan.rundir.run_config.write_text(to_yaml(whole))
    remember(plan, [runs], run_id="r", wall_s=1.0, complete=complete, read=DataRead())


def only(folder: SuiteDir) -> CellCheck:
    (cell,) = check(folder, env={}).cells
    return cell


def test_nothing_there_yet(tmp_path: Path) -> None:
    found = check(suite(tmp_path), env={})
    (cell,) = found.cells
    assert (cell.name, cell.status, cell.reason) == (QA, "missing", NO_RESULT)
    assert cell.to_do == ("the same command runs it",)
    assert cell.folder == tmp_path / "small" / "sample_medical_qa"
    assert (found.is_complete, found.is_running, found.in_table) == (False, False, False)
    assert found.command.endswith(f"{tmp_path}/suite_config.yml --output_dir {tmp_path}"), "it says another place"


def test_a_cell_that_was_finished_by_hand_counts(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    finish(plan_of(folder))
    found = check(folder, env={})
    assert (only(folder).status, only(folder).reason, only(folder).to_do) == ("complete", None, ())
    assert found.is_complete
    assert not found.in_table
    folder.results_yaml.touch()
    assert check(folder, env={}).in_table
    os.utime(folder.results_yaml, (1.0, 1.0))
    assert not check(folder, env={}).in_table


def test_a_result_that_is_not_reportable_is_in_the_table_with_a_note(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    finish(plan_of(folder), reportable=False)
    assert only(folder).is_complete
    assert str(only(folder).reason).startswith("not reportable: ")


def test_a_result_of_another_configuration_does_not_count(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    finish(plan_of(folder))
    suite(tmp_path, params={"limit_samples": 3})
    assert (only(folder).status, only(folder).reason) == ("missing", ANOTHER)


def test_a_result_with_gaps(tmp_path: Path) -> None:
    folder = suite(tmp_path, cell_ended(QA, "partial", reason="500"))
    finish(plan_of(folder), complete=False)
    cell = only(folder)
    assert (cell.status, cell.reason) == ("partial", "1 of 2 instances have no score")
    assert cell.to_do == ("the same command asks what is left",)


def test_a_cell_that_failed_says_why(tmp_path: Path) -> None:
    cell = only(suite(tmp_path, cell_ended(QA, "failed", reason="no disk")))
    assert (cell.status, cell.reason) == ("failed", "no disk")
    assert cell.to_do == ("its logs say why", "the same command runs it")
    bare = only(suite(tmp_path / "two", cell_ended(QA, "failed")))
    assert bare.reason == NO_RESULT


def test_a_cell_that_runs(tmp_path: Path) -> None:
    folder = suite(tmp_path, cell_started(QA))
    with held(folder):
        found = check(folder, env={})
    assert (found.is_running, found.cells[0].status, found.cells[0].to_do) == (True, "running", ("wait for it",))


def test_what_is_missing_is_to_be_done_first(tmp_path: Path) -> None:
    target = {"name": "small", "api_endpoint": {**TARGET["api_endpoint"], "api_key": "NO_SUCH_KEY"}}  # type: ignore[dict-item]
    target["api_endpoint"]["url"] = "https://example.org/v1"  # type: ignore[index]
    folder = suite(tmp_path, cell_ended(QA, "failed", reason="x"), targets=[target])
    (to_do,) = only(folder).to_do
    assert "NO_SUCH_KEY" in to_do


def test_a_configuration_that_is_wrong_now(tmp_path: Path) -> None:
    cell = only(suite(tmp_path, evaluations=[{"type": "sample_medical_qa", "params": {"extra": {"subject": "x"}}}]))
    assert (cell.status, cell.reason) == ("failed", "its configuration is wrong")
    assert "subject" in cell.to_do[0]


def test_a_cell_that_reads_the_users_own_data(tmp_path: Path) -> None:
    benchmark = Path(__file__).parents[4] / "src/eval_factory/demo/sample/benchmark.yaml"
    entry = {"type": "custom", "name": "own", "params": {"extra": {"benchmark": str(benchmark)}}}
    folder = suite(tmp_path, evaluations=[entry])
    assert only(folder).status == "missing"
    finish(plan_of(folder))
    assert (only(folder).status, only(folder).reason) == ("complete", OWN_DATA)


def test_no_configuration_yet(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="stopped before its first cell"):
        check(suite_folder(tmp_path, started()), env={})


def test_a_document_for_programs(tmp_path: Path) -> None:
    found = check(suite(tmp_path), env={}).document()
    assert (found["suite"], found["complete"], found["running"], found["in_table"], found["total"], found["missing"]) == (
        str(tmp_path), False, False, False, 1, 1,
    )  # fmt: skip
    assert found["cells"] == [{
        "target": "small", "evaluation": "sample_medical_qa", "status": "missing", "reason": NO_RESULT,
        "to_do": ["the same command runs it"], "folder": f"{tmp_path}/small/sample_medical_qa",
    }]  # fmt: skip


@pytest.mark.parametrize(("attempt", "to_do"), [(1, (LOOK, RUN_IT)), (0, (RUN_IT,))])
def test_who_was_not_begun_has_no_logs_to_look_at(tmp_path: Path, attempt: int, to_do: tuple[str, ...]) -> None:
    folder = suite(tmp_path, cell_ended(QA, "failed", attempt=attempt, reason="not begun: nobody answers"))
    assert only(folder).to_do == to_do
