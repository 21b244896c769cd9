"""What `run_suite` prints at its end."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.cli.console import write_record
from eval_factory.cli.run_command import RunOutput
from eval_factory.cli.suite_screen import looking_on, show_cells, show_end, suite_end_record, why
from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.suite_report import CellReport, SuiteReport
from eval_factory.workflows.suite.suite_status import status_of
from suite_by_hand import cell_ended, cell_result, ended, started, suite_folder

NAMES = ("small/qa", "a_longer_name/qa")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path) -> SuiteDir:
    reason = "many words " * 15
    found = suite_folder(
        tmp_path, started(NAMES), cell_ended(NAMES[0]), cell_ended(NAMES[1], "failed", reason=reason), ended()
    )
    cell_result(found, NAMES[0])
    return found


def report(folder: SuiteDir, *codes: int, reason: str | None = None) -> SuiteReport:
    cells = []
    for name, code in zip(NAMES, codes, strict=True):
        target, evaluation = name.split("/")
        status = RunStatus.FAILED if code else RunStatus.COMPLETE
        cells.append(CellReport(target, evaluation, status, folder.cell(target, evaluation), code, reason, 1))
    return SuiteReport(folder, tuple(cells), max(codes), "partial", "a summary\nof two lines")


def test_the_cells_line_up(folder: SuiteDir) -> None:
    out = io.StringIO()
    show_cells(status_of(folder), out)
    assert out.getvalue().splitlines() == [
        "small/qa          complete  exact_match 0.5000, n 4",
        "a_longer_name/qa  failed    " + ("many words " * 15).strip(),
    ]


def test_a_table_on_a_terminal_fits_and_loses_nothing(folder: SuiteDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    show_cells(status_of(folder), out)
    text = out.getvalue()
    assert text.splitlines()[:3] == [
        "small/qa          complete  exact_match 0.5000, n 4", "a_longer_name/qa  failed  ",
        "    many words many words many words many words many words many words many words",
    ]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("many") == text.count("words") == 15


def test_why_the_exit_code_is_what_it_is(folder: SuiteDir) -> None:
    assert why(report(folder, 0, 3, reason="no\nkey")) == "a_longer_name/qa: no key"
    assert why(report(folder, 1, 4)) == "a_longer_name/qa: failed; 1 more cell has something to look at"
    whole = report(folder, 4, 4)
    assert why(replace(whole, cells=whole.cells * 2)) == "small/qa: failed; 3 more cells have something to look at"
    assert why(replace(report(folder, 0, 0), exit_code=130)) == "the suite was stopped before its end"
    assert why(replace(report(folder, 0, 0), exit_code=3, no_table="no room\n  make some")) == "no room"
    assert why(replace(report(folder, 0, 3, reason="no key"), no_table="no room")) == "a_longer_name/qa: no key"


def test_the_end_on_the_screen(folder: SuiteDir, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    show_end(report(folder, 0, 3, reason="no key"), RunOutput(stdout=out))
    assert out.getvalue().splitlines()[2:] == ["asked so far: 0 requests, 0 tokens", "a summary", "of two lines"]
    assert capsys.readouterr().err == "exit code 3: a_longer_name/qa: no key\n"
    show_end(report(folder, 0, 0), RunOutput(stdout=out))
    assert capsys.readouterr().err == ""


def test_one_line(folder: SuiteDir, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    show_end(report(folder, 0, 3, reason="no key"), RunOutput(quiet=True, stdout=out))
    assert out.getvalue() == "a summary\n"
    assert capsys.readouterr().err.startswith("exit code 3")


def test_a_record_at_the_end(folder: SuiteDir, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    show_end(report(folder, 0, 3, reason="no key"), RunOutput(as_json=True, stdout=out))
    assert capsys.readouterr().err == ""
    found = json.loads(out.getvalue())
    assert found == json.loads(json.dumps(suite_end_record(report(folder, 0, 3, reason="no key"), status_of(folder))))
    first, second = found["cells"]
    assert first == {
        "target": "small", "evaluation": "qa", "status": "complete", "exit_code": 0, "reason": "no key",
        "main_metric": "exact_match", "value": 0.5, "ci_low": None, "ci_high": None, "n": 4, "reportable": True,
        "collected": False, "folder": f"{folder.root}/small/qa",
    }  # fmt: skip
    assert (second["exit_code"], second["value"], second["reportable"]) == (3, None, None)
    assert (found["exit_code"], found["status"], found["counts"]) == (3, "partial", {"complete": 1, "failed": 1})
    assert found["spent"] == {"requests": 0, "tokens": 0, "cost": 0.0}
    assert (found["suite"], found["results"]) == (str(folder.root), f"{folder.root}/suite_results.yaml")


def test_records_are_ascii_and_strict_json() -> None:
    out = io.StringIO()
    write_record(out, {"event": "é\u2028", "value": float("nan")})
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue()) == {"event": "é\u2028", "value": None}


def test_who_looks_on(folder: SuiteDir, capsys: pytest.CaptureFixture[str]) -> None:
    for output, err in ((RunOutput(stdout=io.StringIO()), True), (RunOutput(quiet=True, stdout=io.StringIO()), False)):
        with looking_on(folder, output) as observer:
            observer.on_event(started(NAMES))
            observer.say("a word")
            observer.tick()
        assert (capsys.readouterr().err.splitlines()[-1:] == ["a word"]) is err
        assert not isinstance(output.stdout, io.StringIO) or output.stdout.getvalue() == ""


def test_a_record_at_the_start_and_lines_beside_it(folder: SuiteDir, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with looking_on(folder, RunOutput(as_json=True, stdout=out)) as observer:
        observer.on_event(started(NAMES))
        observer.on_event(cell_ended(NAMES[0]))
        observer.say("a word")
        observer.tick()
    (record,) = map(json.loads, out.getvalue().splitlines())
    assert (record["event"], record["suite"], record["total"]) == ("launch", str(folder.root), 2)
    assert capsys.readouterr().err.splitlines()[1:] == ["small/qa: complete: exact_match 0.5000, n 4", "a word"]
