"""The rows of a leaderboard, its tables, and the summary of a command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import HelmError, NotReportableError, PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.leaderboard import tables as module
from eval_factory.workflows.leaderboard.tables import (
    IN_TABLES,
    KEPT_OUT,
    BoardRow,
    stored_rows,
    write_rows,
)
from eval_factory.workflows.suite.suite_report import CellReport
from facts import each_says
from stored_results import instance, result, written
from unit.workflows.leaderboard.test_board import board
from unit.workflows.test_view import finished

_FAILED = module._FAILED
_LEFT_OUT = module._LEFT_OUT
_WAITING = module._WAITING
FOUR = [instance(name, 1.0) for name in ("q0", "q1", "q2", "q3")]


def named(folder: Path, leaderboard: str) -> list[tuple[str, str]]:
    return [(row.model_id, row.run) for row in stored_rows(folder)[leaderboard]]


def test_every_run_is_written(tmp_path: Path) -> None:
    row = BoardRow("r", "org/a", _FAILED, reason="é", groups=("g",))
    assert write_rows(tmp_path, "lite", ["org/a"], [row]) == [row]
    text = SuiteDir(tmp_path).leaderboard.read_text("utf-8")
    assert json.loads(text) == {
        "schema_version": 2,
        "leaderboards": {
            "lite": [
                {
                    "run": "r",
                    "model_id": "org/a",
                    "state": "failed",
                    "reason": "é",
                    "requested": None,
                    "failed": None,
                    "unjudged": None,
                    "main_metric": None,
                    "score": None,
                    "folder": None,
                    "identity": None,
                    "groups": ["g"],
                    "max_eval_instances": None,
                }
            ]
        },
    }
    assert "é" in text
    assert text.endswith("}\n")
    assert stored_rows(tmp_path) == {"lite": [row]}


def test_what_is_said_of_others_stays(tmp_path: Path) -> None:
    write_rows(tmp_path, "lite", ["org/a"], [BoardRow("old", "org/a", _FAILED)])
    write_rows(tmp_path, "lite", ["org/b"], [BoardRow("r", "org/b", KEPT_OUT)])
    write_rows(tmp_path, "medhelm", ["org/a"], [BoardRow("r", "org/a", _LEFT_OUT)])
    write_rows(tmp_path, "lite", ["org/a"], [BoardRow("new", "org/a", IN_TABLES, score=0.5)])
    assert named(tmp_path, "lite") == [("org/b", "r"), ("org/a", "new")]
    assert named(tmp_path, "medhelm") == [("org/a", "r")]
    assert list(stored_rows(tmp_path)) == ["medhelm", "lite"], (
        "the last is the one that was run last"
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"leaderboards"', '{"leaderboards": {"lite": [{"other": 1}]}}']
)
def test_a_file_that_cannot_be_read_is_written_anew(content: str, tmp_path: Path) -> None:
    SuiteDir(tmp_path).leaderboard.write_text(content)
    write_rows(tmp_path, "lite", ["org/a"], [BoardRow("r", "org/a", _FAILED)])
    assert named(tmp_path, "lite") == [("org/a", "r")]


def report(folder: Path, status: Any, code: int, reason: str | None = None) -> CellReport:
    return CellReport("org-m", "pubmed_qa", status, folder, reason, exit_code=code)


def one_row(tmp_path: Path, cell: CellReport) -> tuple[BoardRow, int]:
    made = replace(
        board(tmp_path, "pubmed_qa:model=text"), folder=tmp_path, models={"org-m": "org/m"}
    )
    (found,) = module.board_rows(made, [cell])
    return found


def test_a_run_that_may_be_reported_is_in_the_tables_with_its_score_and_another_without(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path / "org-m" / "pubmed_qa", result(FOUR))
    row, code = one_row(tmp_path, report(folder, "complete", 0))
    assert (row.state, row.main_metric, row.score, row.requested) == (
        IN_TABLES,
        "exact_match",
        0.5,
        4,
    )
    assert (row.reason, code, row.folder, row.max_eval_instances) == (
        None,
        0,
        "org-m/pubmed_qa",
        1000,
    )
    written(folder, replace(result(FOUR), reportable=False))
    reason = "NOT REPORTABLE: 4 of 4 answers say nothing that can be scored"
    row, code = one_row(tmp_path, report(folder, "complete", 1, reason))
    assert (row.state, row.score, row.reason, code) == (KEPT_OUT, None, reason, 1)


@pytest.mark.parametrize(
    ("status", "code", "reason", "expected"),
    [
        ("failed", 3, "DownloadError: x", (_FAILED, "DownloadError: x", 3)),
        ("missing", 1, "max_cost", (_FAILED, "max_cost", 1)),
        ("waiting", 0, None, (_WAITING, None, 0)),
        (
            "failed",
            2,
            "mmlu:x asks a model for images; eval-factory",
            (_LEFT_OUT, "asks for images", 0),
        ),
    ],
)
def test_what_has_no_result(
    tmp_path: Path, status: str, code: int, reason: str | None, expected: object
) -> None:
    row, found = one_row(tmp_path, report(tmp_path, status, code, reason))
    assert (row.state, row.reason, found) == expected


def test_what_was_not_begun_is_a_row_of_each_model(tmp_path: Path) -> None:
    made = board(
        tmp_path, "pubmed_qa:model=text", "nonsense", "msr_vtt:model=vlm", model=("a", "b")
    )
    assert [
        (row.run, row.model_id, row.state, code) for row, code in module.board_rows(made, [])
    ] == [
        ("msr_vtt", "a", _LEFT_OUT, 0),
        ("msr_vtt", "b", _LEFT_OUT, 0),
        ("nonsense", "a", _FAILED, 4),
        ("nonsense", "b", _FAILED, 4),
    ]


def test_runs_in_tables_are_those_that_their_folders_still_hold(tmp_path: Path) -> None:
    finished(tmp_path / "m" / "a")
    row = BoardRow("pubmed_qa", "m", IN_TABLES, folder="m/a", identity="i", groups=("g:1",))
    others = [
        replace(row, identity="another"),
        replace(row, state=KEPT_OUT),
        replace(row, folder="m/gone"),
    ]
    ((run, found),) = module.runs_in_tables(tmp_path, [row, *others])
    assert found == row
    assert run.name == run.spec["name"] == "pubmed_qa,model=m"
    assert run.spec["groups"] == ["pubmed_qa", "g_1"]


@pytest.mark.parametrize(
    ("found", "kind", "said"),
    [
        ([(IN_TABLES, 0), (_LEFT_OUT, 0), (_WAITING, 0)], None, ""),
        (
            [(IN_TABLES, 0), (_FAILED, 3), (_LEFT_OUT, 0)],
            PrerequisiteError,
            "1 of 2 runs failed, because data",
        ),
        ([(_FAILED, 3), (_FAILED, 4), (KEPT_OUT, 1)], HelmError, "2 of 3 runs failed, see above"),
        ([(_FAILED, 2)], HelmError, "1 of 1 runs failed, see above"),
        ([(_FAILED, 1), (KEPT_OUT, 1)], NotReportableError, "1 of 2 runs failed"),
        (
            [(KEPT_OUT, 1), (IN_TABLES, 0)],
            NotReportableError,
            "NOT REPORTABLE: 1 runs are kept out",
        ),
    ],
)
def test_what_an_end_is(
    found: list[tuple[str, int]], kind: type[Exception] | None, said: str
) -> None:
    why = module.shortcoming(
        [(BoardRow(f"r{number}", "m", state), code) for number, (state, code) in enumerate(found)]
    )
    assert type(why) is (type(None) if kind is None else kind)
    assert said in str(why)


def test_the_lines_for_the_screen(tmp_path: Path) -> None:
    made = board(tmp_path, "pubmed_qa:model=text")
    rows = [
        BoardRow("a", "m", IN_TABLES, max_eval_instances=5),
        BoardRow("b", "m", KEPT_OUT, "1 of 5 requests failed"),
        BoardRow("c", "m", _WAITING),
        *(BoardRow(f"f{number}", "m", _FAILED, "gone") for number in range(12)),
    ]
    lines = module.board_summary(
        made, rows, [rows[0], BoardRow("a", "other", IN_TABLES, max_eval_instances=9)]
    )
    each_says(
        [*lines[:3], *lines[12:15]],
        ["lite: 1 runs", "1 kept out", "12 failed", "1 waiting"],
        ["b: 1 of 5", "kept out"],
        ["failed: f0: gone"],
        ["2 more"],
        ["other models: 2 runs"],
        ["warning: ", "5 and 9 instances"],
    )
    assert f"eval-factory view {made.folder}" in lines[-2]
    assert "--suite lite --output-path" in lines[-1]
    assert not any("view" in line for line in module.board_summary(made, rows[1:], []))
