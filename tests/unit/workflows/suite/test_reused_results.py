"""Results that a suite's file names stand in its table, and nothing is run for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.secrets import Redactor
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.suite.cell_loop import Work
from eval_factory.workflows.suite.reused_results import (
    copy_reused_results,
    refuse_unreadable_results,
)
from eval_factory.workflows.suite.suite_check import check_suite, verify_suite
from eval_factory.workflows.suite.suite_folder import write_configs
from eval_factory.workflows.suite.suite_journal import SuiteJournal, SuiteObserver
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions, write_table
from foreign_results import inspect_samples, write_eval_log
from suites import section, suite


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    log = write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(log, tmp_path / "agent")
    return tmp_path / "agent"


def suite_with(tmp_path: Path, folder: Path, **changes: str) -> Suite:
    entry = {"target": "small", "evaluation": "agent", "folder": str(folder), **changes}
    return suite(output_dir=str(tmp_path / "suite"), reuse=[entry])


def taken(made: Suite) -> CellReport:
    journal = SuiteJournal(made.folder, Redactor(), SuiteObserver())
    (report,) = copy_reused_results(Work(made, SuiteOptions(), {}, journal, (), Redactor()))
    return report


def test_an_imported_result_is_a_cell_of_the_table(imported: Path, tmp_path: Path) -> None:
    made = suite_with(tmp_path, imported)
    report = taken(made)
    assert (report.status, report.exit_code, report.reused_from) == (
        RunStatus.COMPLETE,
        0,
        imported,
    )
    write_table([report], made.folder)
    assert "agent" in made.folder.results_csv.read_text()
    assert "fruit" in made.folder.results_yaml.read_text()


def test_it_is_copied_once_and_again_where_it_changed(imported: Path, tmp_path: Path) -> None:
    made = suite_with(tmp_path, imported)
    taken(made)
    page = made.reused[0].folder / "report.html"
    before = page.stat().st_mtime_ns
    taken(made)
    assert page.stat().st_mtime_ns == before
    log = write_eval_log(tmp_path / "fruit.eval", inspect_samples()[:6])
    import_results(log, imported)
    taken(made)
    assert page.stat().st_mtime_ns != before


def test_a_folder_without_a_result_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"reuse\[0\]"):
        refuse_unreadable_results(suite_with(tmp_path, tmp_path / "nothing"))


def test_a_place_that_is_taken_is_refused(imported: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"small/PubMed_QA.*exclude"):
        suite_with(tmp_path, imported, evaluation="PubMed_QA")


def test_check_knows_it_and_verify_finds_nothing_wrong(imported: Path, tmp_path: Path) -> None:
    entry = {"target": "small", "evaluation": "agent", "folder": str(imported)}
    document = section(output_dir=str(tmp_path / "suite"), reuse=[entry])
    made = suite(**document)
    made.folder.root.mkdir()
    made.folder.state.mkdir()
    write_configs(made)
    write_table([taken(made)], made.folder)
    statuses = {cell.name: cell.status for cell in check_suite(made.folder, env={}).cells}
    assert statuses["small/agent"] == RunStatus.COMPLETE
    findings = verify_suite(made.folder).findings
    assert not [finding for finding in findings if "agent" in f"{finding.file} {finding.field}"]
