"""The table at the end: results that cannot be read, and a folder that takes no table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite import suite_report
from eval_factory.workflows.suite.suite_report import CellReport, write_table
from stored_suite import cell


def reported(root: Path, target: str, status: Any = "complete") -> CellReport:
    stored = cell(root, target, "medec", "1110")
    return CellReport(target, "medec", status, stored.folder, 0, attempts=2)


def test_cells_whose_results_can_be_read_stay_as_they_are(tmp_path: Path) -> None:
    cells = (reported(tmp_path, "small"), CellReport("big", "medec", RunStatus.MISSING, tmp_path / "big", 1, "why"))
    table = write_table(cells, SuiteDir(tmp_path))
    assert (table.cells, table.problem) == (cells, None)
    assert SuiteDir(tmp_path).results_md.read_text().count("why") == 1


def test_a_result_that_cannot_be_read_has_failed_and_can_be_written_again(tmp_path: Path) -> None:
    cells = (reported(tmp_path, "small"), reported(tmp_path, "big"))
    (cells[1].folder / "instances.jsonl").write_text("null\n" * 4)
    table = write_table(cells, SuiteDir(tmp_path))
    assert table.cells[0] == cells[0]
    broken = table.cells[1]
    assert (broken.status, broken.exit_code, broken.attempts) == ("failed", 3, 2)
    config = SuiteDir(tmp_path).cell_config("big", "medec")
    assert "its result is not as eval-factory writes it (TypeError" in str(broken.reason)
    assert str(broken.reason).endswith(f"; write its files again: eval-factory run_eval --run_config {config}")


def test_a_folder_that_takes_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(suite_report, "write_suite_results", full)
    cells = (reported(tmp_path, "small"),)
    table = write_table(cells, SuiteDir(tmp_path))
    assert table.cells == cells
    assert table.problem == (
        f"the table cannot be written to {tmp_path}: No space left on device; the results of the cells are kept\n"
        "  make room or give the right to write there, and run the same command again: it writes the table"
    )
