"""Tests of what a suite's table lacks, from its configuration and the cells' folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.config.suite import build_suite
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import SuiteDir
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.resume import DataRead, state_of_ended_run, write_state
from eval_factory.workflows.suite import suite_check, suite_status
from eval_factory.workflows.suite.planned_cells import checked_cells
from eval_factory.workflows.suite.suite_check import (
    CellCheck,
    check_suite,
    compare_table,
    verify_suite,
)
from eval_factory.workflows.suite.suite_status import RESULT_READY, read_suite_status
from facts import each_says, naming, says
from stored_results import PROVENANCE, instance, result, written
from stored_suite import cells
from suite_by_hand import cell_ended, cell_started, ended, held, started, suite_folder, tell

TARGET = {
    "name": "small",
    "api_endpoint": {"url": "demo://baseline", "model_id": "m", "type": "chat"},
}
QA = "small/sample_medical_qa"


def suite(root: Path, *events: dict[str, Any], **changes: Any) -> SuiteDir:
    """A suite of one cell that was started."""
    folder = suite_folder(root, started([QA]), *events)
    section = {
        "output_dir": "somewhere/else",
        "evaluations": ["sample_medical_qa"],
        "targets": [TARGET],
        **changes,
    }
    folder.config.write_text(to_yaml({"suite": section}))
    return folder


def plan_of(folder: SuiteDir) -> Plan:
    found = build_suite(folder.config, flags={"suite.output_dir": str(folder.root)}, env={})
    plan = checked_cells(found, {})[0].plan
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
    made = replace(made, provenance=replace(made.provenance, run_identity=plan.identity))
    counts = replace(made.validity.instances, scored=sum(not one.error for one in records))
    written(
        plan.rundir.root, replace(made, validity=replace(made.validity, instances=counts)), whole
    )
    plan.rundir.run_config.write_text(to_yaml(whole))
    write_state(
        plan.rundir,
        state_of_ended_run(
            plan, [runs], run_id="r", wall_s=1.0, complete=complete, data=DataRead()
        ),
    )


def only(folder: SuiteDir) -> CellCheck:
    (cell,) = check_suite(folder, env={}).cells
    return cell


def test_nothing_there_yet(tmp_path: Path) -> None:
    found = check_suite(suite(tmp_path), env={})
    assert found.command.endswith(f"{tmp_path}/suite_config.yml --output_dir {tmp_path}"), (
        "it says another place"
    )
    document = found.document()
    (cell,) = document.pop("cells")
    assert cell == {
        "target": "small",
        "evaluation": "sample_medical_qa",
        "status": "missing",
        "reason": "there is no result",
        "to_do": [],
        "folder": f"{tmp_path}/small/sample_medical_qa",
    }
    names = ("suite", "complete", "running", "in_table", "total", "missing")
    assert [document[name] for name in names] == [str(tmp_path), False, False, False, 1, 1]


def test_a_cell_that_was_finished_by_hand_counts(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    finish(plan_of(folder))
    found = check_suite(folder, env={})
    assert (only(folder).status, only(folder).reason, only(folder).to_do) == ("complete", None, ())
    assert not found.incomplete
    assert not found.in_table
    folder.results_yaml.touch()
    assert check_suite(folder, env={}).in_table
    os.utime(folder.results_yaml, (1.0, 1.0))
    assert not check_suite(folder, env={}).in_table
    suite(tmp_path, params={"limit_samples": 3})
    assert only(folder).status == "missing"
    says(str(only(folder).reason), "another configuration")
    suite(tmp_path)
    plan_of(folder).rundir.run_state.unlink()  # a run that was stopped while it wrote its result
    assert only(folder).status == "missing"
    says(str(only(folder).reason), "stopped", "wrote its result")


def test_a_result_with_gaps_and_one_that_is_not_reportable(tmp_path: Path) -> None:
    folder = suite(tmp_path, cell_ended(QA, "partial", reason="500"))
    finish(plan_of(folder), complete=False)
    cell = only(folder)
    assert cell.status == "partial"
    says(str(cell.reason), "1 of 2 instances", "no score")
    folder = suite(tmp_path / "another")
    finish(plan_of(folder), reportable=False)
    assert only(folder).is_complete
    assert str(only(folder).reason).lower().count("not reportable") == 1


def test_a_cell_that_failed_says_why(tmp_path: Path) -> None:
    cell = only(suite(tmp_path, cell_ended(QA, "failed", reason="no disk")))
    assert (cell.status, cell.reason) == ("failed", "no disk")
    assert only(suite(tmp_path / "two", cell_ended(QA, "failed"))).reason == "there is no result"


def test_a_cell_that_runs(tmp_path: Path) -> None:
    folder = suite(tmp_path, cell_started(QA))
    with held(folder):
        found = check_suite(folder, env={})
    assert (found.running, found.cells[0].status, found.cells[0].to_do) == (True, "running", ())


def test_whether_what_slurm_has_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = suite(tmp_path)
    (cell,) = (status := read_suite_status(folder)).cells
    for reason in ("Slurm: task 0, PENDING", RESULT_READY):
        waiting = replace(cell, status=RunStatus.WAITING, reason=reason)
        at_work = replace(status, cells=(waiting,))
        monkeypatch.setattr(suite_status, "read_suite_status", lambda _, at_work=at_work: at_work)
        found = only(folder)
        assert (found.status, found.reason) == ("waiting", reason)


def test_what_is_missing_is_to_be_done_first(tmp_path: Path) -> None:
    endpoint = {
        "url": "https://example.org/v1",
        "model_id": "m",
        "type": "chat",
        "api_key": "NO_SUCH_KEY",
    }
    targets = [{"name": "small", "api_endpoint": endpoint}]
    (to_do,) = only(suite(tmp_path, cell_ended(QA, "failed", reason="x"), targets=targets)).to_do
    assert "NO_SUCH_KEY" in to_do


def test_a_configuration_that_is_wrong_now_and_none_yet(tmp_path: Path) -> None:
    cell = only(
        suite(
            tmp_path,
            evaluations=[{"type": "sample_medical_qa", "params": {"extra": {"subject": "x"}}}],
        )
    )
    assert (cell.status, cell.reason) == ("failed", "its configuration is wrong")
    assert "subject" in cell.to_do[0]
    with pytest.raises(PrerequisiteError, match=naming("before its first cell")):
        check_suite(suite_folder(tmp_path / "none yet", started()), env={})


def test_a_cell_that_reads_the_users_own_data(tmp_path: Path) -> None:
    benchmark = Path(__file__).parents[4] / "src/eval_factory/demo/sample/benchmark.yaml"
    entry = {"type": "custom", "name": "own", "params": {"extra": {"benchmark": str(benchmark)}}}
    folder = suite(tmp_path, evaluations=[entry])
    assert only(folder).status == "missing"
    finish(plan_of(folder))
    assert only(folder).status == "complete"
    says(str(only(folder).reason), "data of your own", "run_suite")


PAIR = ("a/qa", "b/qa")


@pytest.fixture
def tabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SuiteDir:
    """A suite of two models that has ended, with its table."""
    monkeypatch.setattr(suite_check, "__version__", PROVENANCE.eval_factory)
    folder = suite_folder(tmp_path, started(PAIR), *map(cell_ended, PAIR), ended())
    done = cells(tmp_path, {"qa": {"a": "1" * 30 + "0" * 10, "b": "0" * 30 + "1" * 10}})
    write_suite_results(suite_results([replace(one, attempts=3) for one in done]), folder)
    return folder


def alter(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


def test_a_table_is_what_the_results_make(tabled: SuiteDir) -> None:
    found = compare_table(tabled)
    assert [(one.target, one.status) for one in found.cells] == [
        ("a", "complete"),
        ("b", "complete"),
    ]
    assert (found.findings, found.notes) == (
        [],
        [],
    )  # how often a cell was started, no result knows


@pytest.mark.parametrize(
    ("name", "old", "new", "field"),
    [
        ("suite_results.yaml", "value: 0.75", "value: 0.85", "cells[0].value"),
        ("suite_results.yaml", "p_value: ", "p_value: 1", "comparisons[0].pairs[0].p_value"),
        ("suite_results.yaml", "won: 1", "won: 0", "win_rates.models[0].won"),
        ("suite_results.csv", "0.75", "0.85", "line 2"),
        ("suite_results.md", "75.0", "85.0", "line "),
        ("suite_results.html", "75.0", "85.0", "line "),
        ("suite_usage.yaml", "requests: 1", "requests: 2", "cells[0].requests"),
    ],
)
def test_a_changed_number_is_named_with_its_field(
    name: str, old: str, new: str, field: str, tabled: SuiteDir
) -> None:
    alter(tabled.root / name, old, new)
    (found,) = compare_table(tabled).findings
    assert (found.file, found.field[: len(field)]) == (name, field)
    says(found.message, "made again", "runs' results")


def test_a_cell_that_is_taken_out_of_the_table_or_said_to_have_failed(tabled: SuiteDir) -> None:
    done = compare_table(tabled).cells
    write_suite_results(suite_results(done[:1]), tabled)
    assert "targets[1]" in {one.field for one in compare_table(tabled).findings}
    failed = [done[0], replace(done[1], status=RunStatus.FAILED, reason="no luck")]
    write_suite_results(suite_results(failed), tabled)
    assert {"cells[1].status", "cells[1].value"} <= {
        one.field for one in compare_table(tabled).findings
    }
    tell(tabled.events, started(PAIR), cell_ended("b/qa", "failed"), ended())
    assert compare_table(tabled).findings == []
    tabled.events.unlink()  # a copy without .suite: the table alone says which cells there are, and how they ended
    assert compare_table(tabled).findings == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cells: [{target: a, evaluation: qa, status: well}]", "ends as well"),
        ("[", "YamlSyntaxError"),
        ("cells: 3", "TypeError"),
        ("cells: [{target: ../.., evaluation: qa}]", "leads out of the"),
    ],
)
def test_a_table_that_is_none(text: str, said: str, tabled: SuiteDir) -> None:
    tabled.results_yaml.write_text(text)
    tabled.events.unlink()
    (found,) = compare_table(tabled).findings
    assert found.file == "suite_results.yaml"
    assert said in found.message


def test_of_a_table_of_another_version_cells_are_compared(
    tabled: SuiteDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_check, "__version__", "2")
    alter(tabled.results_md, "75.0", "85.0")
    alter(tabled.results_yaml, "p_value: ", "p_value: 1")
    found = compare_table(tabled)
    assert found.findings == []
    each_says(found.notes, ["eval-factory 1", "only the cells"])
    alter(tabled.results_yaml, "value: 0.75", "value: 0.85")
    assert [one.field for one in compare_table(tabled).findings] == ["cells[0].value"]
    tabled.results_csv.unlink()
    assert "is missing" in {one.message for one in compare_table(tabled).findings}


def test_a_table_is_compared_when_its_suite_has_ended(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    folder.results_yaml.write_text("[")
    assert check_suite(folder, env={}).altered == ()
    assert verify_suite(folder).exit_code == 3
    tell(folder.events, ended())
    (found,) = check_suite(folder, env={}).altered
    told = {"file": "suite_results.yaml", "field": "", "message": found.message}
    assert check_suite(folder, env={}).document()["altered"] == [told]
    assert verify_suite(folder).exit_code == 1


def test_a_configuration_and_a_table_have_the_same_cells_and_runs(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    plan = plan_of(folder)
    finish(plan)
    tell(folder.events, cell_ended(QA), ended())
    done = FinishedCell("small", "sample_medical_qa", RunStatus.COMPLETE, plan.rundir.root)
    write_suite_results(suite_results([done]), folder)

    def of_the_configuration() -> list[tuple[str, str]]:
        return [
            (one.field, one.message)
            for one in verify_suite(folder).findings
            if one.file == "suite_config.yml"
        ]

    assert of_the_configuration() == []
    alter(folder.config, "model_id: m", "model_id: n")
    (found,) = of_the_configuration()
    assert found[0] == QA
    assert found[1].endswith(plan.identity)
    alter(folder.config, "name: small", "name: big")
    assert [field for field, _ in of_the_configuration()] == ["big/sample_medical_qa", QA]
    folder.config.write_text("suite: 3")
    assert [field for field, _ in of_the_configuration()] == [""]
