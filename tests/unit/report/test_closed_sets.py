"""Each place that shows a closed set knows its members: a new one without an entry fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.suite_messages import completeness_sentence
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.cli.suite_screen import CellRow, rows_that_fit
from eval_factory.core.enums import ATTEMPT_STATES, AttemptState, RunStatus
from eval_factory.core.run_statuses import RUN_STATUSES, WITH_RESULT
from eval_factory.report.documents import SUITE_RESULTS_SCHEMA, read_schema
from eval_factory.report.page.document import page_style
from eval_factory.report.verdicts import Verdict

ENDED = [status for status in RunStatus if status != RunStatus.RUNNING]
"""Where a run can stand when its suite has ended."""


def cell_field(name: str) -> Any:
    return read_schema(SUITE_RESULTS_SCHEMA)["properties"]["cells"]["items"]["properties"][name]


def test_each_verdict_is_in_the_schema_and_has_a_colour_of_the_pages_style() -> None:
    assert cell_field("verdict")["enum"] == [verdict.name.lower() for verdict in Verdict]
    style = page_style()
    assert [each for each in Verdict if f".{each.value.colour}" not in style] == []
    assert all(each.value.mark and each.value.phrase and each.value.title for each in Verdict)


def test_each_status_has_facts_and_is_in_the_schema_of_a_suites_results() -> None:
    assert RUN_STATUSES.keys() == set(RunStatus)
    assert set(cell_field("status")["enum"]) == set(ENDED)


def test_the_screen_of_a_suite_has_a_row_of_each_status() -> None:
    rows = [CellRow("qa", status, "") for status in RunStatus]
    shown, others = rows_that_fit(rows, 2)
    (row,) = shown
    assert row.status == RunStatus.RUNNING
    assert all(f"1 {status}" in others for status in RunStatus if status != row.status)
    assert all(RUN_STATUSES[status].style for status in ENDED)


def test_the_page_of_a_suites_results_explains_each_status() -> None:
    page = (Path(__file__).parents[3] / "docs" / "suite-results.md").read_text("utf-8")
    assert [status for status in ENDED if f"`{status}`" not in page] == []


@pytest.mark.parametrize("status", ENDED)
def test_a_suites_results_tell_of_each_status_and_what_to_do(
    tmp_path: Path, status: RunStatus
) -> None:
    cell = FinishedCell("model", "qa", status, tmp_path / "none")
    results = suite_results([cell, replace(cell, target="other", status=RunStatus.MISSING)])
    (missing, *_) = results.missing
    assert missing.reason
    assert missing.what_to_do
    assert str(missing.cell.status) in completeness_sentence(results)
    facts = RUN_STATUSES[status]
    if status not in WITH_RESULT:
        assert missing.what_to_do == facts.next_step


def test_each_state_of_an_attempt_says_what_a_run_used_by_it() -> None:
    assert ATTEMPT_STATES.keys() == set(AttemptState)
    for state, facts in ATTEMPT_STATES.items():
        assert facts.is_sent or not facts.is_timed, state
