"""What a table lacks, in words."""

from __future__ import annotations

from pathlib import Path

from eval_factory.cli.suite_text import check_text
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.suite_check import CellCheck, SuiteCheck
from eval_factory.workflows.verify import Finding

DONE = CellCheck("small", "qa", "complete", None, (), Path("/s/small/qa"))
NOTED = CellCheck("big", "qa", "complete", "not reportable:\nwhy", (), Path("/s/big/qa"))
FAILED = CellCheck("big", "medec", "failed", "no\x1b key", ("set KEY\nor KEY_2", "run it"), Path("/s/big/medec"))
BARE = CellCheck("big", "bare", "missing", None, (), Path("/s/big/bare"))


def text(*cells: CellCheck, is_running: bool = False, in_table: bool = True, altered: int = 0) -> list[str]:
    findings = tuple(Finding("suite_results.yaml", f"cells[{number}].value", "is\nno") for number in range(altered))
    found = SuiteCheck(SuiteDir(Path("/s")), cells, "the command", is_running, in_table, findings)
    return check_text(found).splitlines()


def test_a_complete_table() -> None:
    assert text(DONE) == ["/s: complete: 1 cell"]
    assert text(DONE, NOTED) == ["/s: complete: 2 cells", "  note: big/qa: not reportable: why"]


def test_what_is_missing_and_what_to_do() -> None:
    assert text(DONE, FAILED, BARE) == [
        "/s: not complete: 2 of 3 cells without a complete result", "  big/medec: failed: no\\x1b key", "    to do: set KEY",
        "      or KEY_2", "    to do: run it", "  big/bare: missing", "the same command goes on:", "  the command",
    ]  # fmt: skip


def test_a_table_that_is_older_than_its_results() -> None:
    assert text(DONE, in_table=False)[1:] == [
        "results are newer than the table: the same command only collects them into it:", "  the command",
    ]  # fmt: skip


def test_where_a_table_was_altered() -> None:
    lines = [f"  altered: suite_results.yaml: cells[{number}].value: is no" for number in range(20)]
    assert text(DONE, altered=20)[1:] == lines
    assert text(DONE, altered=22)[1:] == [*lines, "  altered: 2 more (--json)"]
