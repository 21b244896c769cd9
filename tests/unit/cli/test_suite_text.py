"""Where a suite stands, in words."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

import suite_by_hand
from eval_factory.cli import suite_text
from eval_factory.cli.suite_text import CellRow, cell_rows, log_lines, next_lines, rows_that_fit, status_lines
from eval_factory.core.budget import Spending
from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import RunSuiteDir, SuiteDir
from eval_factory.workflows.suite.suite_check import CellCheck, SuiteCheck
from eval_factory.workflows.suite.suite_status import CellFigures, CellJob, SuiteStatus, same_command, status_of
from eval_factory.workflows.verify import Finding
from suite_by_hand import cell_ended, cell_started, ended, held, paused, phase, progress, started, suite_folder

FIGURES = CellFigures("qa", "exact_match", 0.71, 0.6, 0.82, 100, reportable=True)


@pytest.fixture
def running(tmp_path: Path) -> SuiteStatus:
    """One cell that is complete, two that run, one whose endpoint is gone."""
    folder = suite_folder(
        tmp_path, started(), cell_started("small/qa"), cell_ended("small/qa"), cell_started("big/qa"),
        cell_started("small/medec", attempt=2), paused("the host", "big/medec", reason="refused\x1b[0m"),
    )  # fmt: skip
    suite_by_hand.cell_result(folder, "small/qa")
    events = phase("loading data", time=111.0, number=2, of=3), phase("asking the model", time=112.0)
    suite_by_hand.cell_events(folder, "big/qa", *events, progress(10, time=122.0, failed=1, prompt_tokens=1500))
    suite_by_hand.cell_events(folder, "small/medec", phase("asking the model", time=112.0), progress(30, time=122.0))
    with held(folder):
        return status_of(folder)


def test_a_line_for_each_cell_with_the_figures_that_fit_beside_the_phase(running: SuiteStatus) -> None:
    assert cell_rows(running) == [
        CellRow("small/qa", "complete", "exact_match 0.5000, n 4"),
        CellRow("big/qa", "running", "2/3 asking the model: 10/100, 1 failed, 1:30 min left, 1.0/s, 1.5k tokens"),
        CellRow("small/medec", "running", "asking the model (attempt 2): 30/100, 0 failed, 23 s left, 3.0/s"),
        CellRow("big/medec", "paused", "refused\\x1b[0m"),
    ]
    assert cell_rows(running, 38)[1].what == "2/3 asking the model: 10/100, 1 failed"
    assert cell_rows(running, 30)[1].what == "2/3 asking the model: 10/100"


def test_lines_about_all(running: SuiteStatus) -> None:
    assert suite_text.counts_line(running) == "4 cells: 2 running, 1 paused, 1 complete"
    assert suite_text.spent_line(running) == "asked so far: 0 requests, 0 tokens"
    asked = [replace(cell, spent=Spending(20, 800, 0.125)) for cell in running.cells[:2]]
    status = replace(running, cells=tuple(asked), limits={"max_cost": 5, "max_requests": 100})
    told = "asked so far: 40 requests, 1.6k tokens, 0.25 USD; limits: max_cost 5, max_requests 100"
    assert suite_text.spent_line(status) == told
    going = "1/4 cells ended, 2 running: 40/200 requests, 4.0/s, 1 failed, 1:30 min left"
    assert suite_text.going_line(running) == going
    who = f"process {os.getpid()} on {socket.gethostname()}"
    assert suite_text.state_line(running, 137.0) == f"{running.folder.root}: running ({who}), for 37 s"
    assert suite_text.pause_lines(running.pauses, 132.0) == ["paused: the host: refused\\x1b[0m (1 cell, for 2 s)"]
    assert next_lines(running) == []


def test_cells_that_ended(tmp_path: Path) -> None:
    folder = suite_folder(
        tmp_path, started(), cell_ended("small/qa", collected=True), cell_ended("big/qa", reused_from="/else\nwhere"),
        cell_ended("small/medec", "failed", reason="no\nkey"), ended("partial", exit_code=3),
    )  # fmt: skip
    suite_by_hand.cell_result(folder, "small/qa")
    status = status_of(folder)
    assert [row.what for row in cell_rows(status)] == [
        "exact_match 0.5000, n 4; finished before", "from /else where", "no key", "not begun yet",
    ]  # fmt: skip
    lines = status_lines(status, 200.0)
    assert lines[0].startswith(f"{tmp_path}: not running; ended at 19")
    assert lines[0].endswith(", exit code 3")
    assert lines[1] == "  small/qa     complete  exact_match 0.5000, n 4; finished before"
    assert lines[4] == "  big/medec    missing   not begun yet"
    assert lines[5:] == [
        "4 cells: 2 complete, 1 failed, 1 missing", "asked so far: 0 requests, 0 tokens", "the same command goes on:",
        f"  eval-factory run_suite --run_config {tmp_path}/suite_config.yml",
    ]  # fmt: skip


def test_a_suite_at_a_limit_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    stopped = status_of(suite_folder(tmp_path, started(), ended("partial", exit_code=1)))

    def having_sent(requests: int) -> SuiteStatus:
        one, *others = stopped.cells
        cells = (replace(one, spent=Spending(requests)), *others)
        return replace(stopped, limits={"max_requests": 8, "max_wall_s": 5}, cells=cells)

    first, command = next_lines(having_sent(8))
    assert first == "max_requests (8) of the suite is reached: raise it, and the same command goes on:"
    assert command == next_lines(stopped)[1]
    assert next_lines(having_sent(7))[0] == "the same command goes on:"


def test_a_suite_that_has_just_begun_and_a_cell_that_waits_again(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    with held(folder):
        folder.lock.write_text("")
        status = status_of(folder)
    told = [f"{tmp_path}: running", "0 cells", "asked so far: 0 requests, 0 tokens"]
    assert status_lines(status, 0.0) == told
    folder = suite_folder(tmp_path, started(), cell_ended("small/qa", "failed", reason="429", again=True))
    with held(folder):
        assert cell_rows(status_of(folder))[0] == CellRow("small/qa", "waiting", "")


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (FIGURES, "exact_match 0.7100 (0.6000 .. 0.8200), n 100"), (replace(FIGURES, ci_high=None), "exact_match 0.7100, n 100"),
        (replace(FIGURES, ci_low=None, reportable=False), "exact_match 0.7100, n 100, not reportable"),
        (CellFigures("qa", "f1", None, None, None, None, reportable=True), "f1 could not be computed"),
    ],
)  # fmt: skip
def test_a_result(figures: CellFigures, text: str) -> None:
    assert suite_text.result_text(figures) == text


def many(*statuses: str) -> list[CellRow]:
    return [CellRow(f"t/{number}", status, "") for number, status in enumerate(statuses)]


def test_what_goes_on_or_went_wrong_is_shown_first() -> None:
    found = many("complete", "waiting", "failed", "running", "paused", "complete", "partial", "missing")
    shown, others = rows_that_fit(found, 4)
    assert [row.status for row in shown] == ["failed", "running", "paused"]
    assert others == "and 1 partial, 1 waiting, 1 missing, 2 complete"
    assert [row.name for row in rows_that_fit(found, 2)[0]] == ["t/3"]
    assert rows_that_fit(found, 0)[0] == []


def test_what_slurm_says_stands_beside_how_far_a_task_is(running: SuiteStatus) -> None:
    """Of a cell that waits there it is all; how to see its log is said for all."""
    _, first, *_others = running.cells
    job = CellJob("Slurm: ef-1-w1 task 0, RUNNING", 2, Path("/log"), None)
    state = replace(first.state, status=RunStatus.WAITING, reason="Priority\x1b")
    waiting = replace(first, progress=None, job=job, state=state)
    found = replace(running, cells=(replace(first, job=job), waiting, replace(first, job=replace(job, task=None))))
    what = [row.what for row in cell_rows(found)]
    assert what[0].endswith("; Slurm: ef-1-w1 task 0, RUNNING")
    assert what[1] == "Priority\\x1b"
    assert "Slurm" not in what[2]
    assert log_lines(found) == [f"logs: eval-factory suite logs -f {running.folder.root} CELL"]
    of_a_run = replace(found, folder=RunSuiteDir(Path("/a b/.slurm")))
    assert log_lines(of_a_run) == ["logs: eval-factory suite logs -f '/a b'"]
    assert log_lines(of_a_run)[0] in status_lines(of_a_run, 0.0)
    assert log_lines(running) == []


def test_the_command_of_a_run_is_no_suites(tmp_path: Path) -> None:
    status = status_of(suite_folder(tmp_path, started()))
    of_a_run = replace(status, folder=RunSuiteDir(tmp_path / "out" / ".slurm"))
    file = tmp_path / "out" / ".slurm" / "run_config.yml"
    assert same_command(of_a_run) == f"eval-factory run_eval --run_config {file}"
    assert same_command(status) == f"eval-factory run_suite --run_config {tmp_path / 'suite_config.yml'}"
    assert suite_text.state_line(of_a_run, 0.0).startswith(f"{tmp_path / 'out'}: ")


DONE = CellCheck("small", "qa", "complete", None, (), Path("/s/small/qa"))
NOTED = CellCheck("big", "qa", "complete", "not reportable:\nwhy", (), Path("/s/big/qa"))
FAILED = CellCheck("big", "medec", "failed", "no\x1b key", ("set KEY\nor KEY_2", "run it"), Path("/s/big/medec"))
BARE = CellCheck("big", "bare", "missing", None, (), Path("/s/big/bare"))
ALTERED = [f"  altered: suite_results.yaml: cells[{number}].value: is no" for number in range(20)]


def text(*cells: CellCheck, is_running: bool = False, in_table: bool = True, altered: int = 0) -> list[str]:
    findings = tuple(Finding("suite_results.yaml", f"cells[{number}].value", "is\nno") for number in range(altered))
    found = SuiteCheck(SuiteDir(Path("/s")), cells, "the command", is_running, in_table, findings)
    return suite_text.check_text(found).splitlines()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (text(DONE), ["/s: complete: 1 cell"]),
        (text(DONE, NOTED), ["/s: complete: 2 cells", "  note: big/qa: not reportable: why"]),
        (text(DONE, FAILED, BARE), [
            "/s: not complete: 2 of 3 cells without a complete result", "  big/medec: failed: no\\x1b key",
            "    to do: set KEY", "      or KEY_2", "    to do: run it", "  big/bare: missing", "the same command goes on:",
            "  the command",
        ]),
        (text(DONE, in_table=False)[1:], [
            "results are newer than the table: the same command only collects them into it:", "  the command",
        ]),
        (text(DONE, altered=20)[1:], ALTERED), (text(DONE, altered=22)[1:], [*ALTERED, "  altered: 2 more (--json)"]),
    ],
    ids=["complete", "noted", "missing", "newer", "altered", "more altered"],
)  # fmt: skip
def test_what_a_check_finds_and_what_to_do(lines: list[str], told: list[str]) -> None:
    assert lines == told
