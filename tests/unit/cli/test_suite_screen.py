"""Tests of where a suite stands: a table on a terminal, lines elsewhere, and their words."""

from __future__ import annotations

import io
import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import suite_by_hand
from eval_factory.cli import suite_screen
from eval_factory.cli.run_command import RunOutput
from eval_factory.cli.suite_screen import (
    CellRow,
    SuiteScreen,
    cell_rows,
    live_table,
    resume_lines,
    status_lines,
    watch,
)
from eval_factory.core.budget import Spending
from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import RunSuiteDir, SuiteDir
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.suite_check import CellCheck, SuiteCheck
from eval_factory.workflows.suite.suite_report import CellReport, SuiteReport
from eval_factory.workflows.suite.suite_status import (
    CellFigures,
    SuiteReader,
    SuiteStatus,
    read_suite_status,
    resume_command,
)
from eval_factory.workflows.verify import Finding
from facts import each_says, says
from suite_by_hand import (
    cell_ended,
    cell_events,
    cell_started,
    ended,
    held,
    paused,
    phase,
    started,
    suite_folder,
    tell,
)
from unit.cli.test_main import Terminal


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _a_terminal_of_this_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def told(folder: SuiteDir, screen: SuiteScreen, *events: dict[str, Any]) -> None:
    for event in events:
        tell(folder.events, event)
        screen.on_event(event)


def test_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    stream = io.StringIO()
    suite_by_hand.cell_result(folder, "small/qa")
    with SuiteScreen(stream, folder, Clock()) as screen:
        told(
            folder,
            screen,
            started(),
            cell_started("small/qa"),
            cell_ended("small/qa"),
            cell_started("big/qa", attempt=2),
            paused("host", "big/qa", time=995.0),
            suite_by_hand.back("host"),
            cell_ended("big/qa", "failed", reason="[bold]no\nkey"),
            cell_ended("big/medec", "failed", reason="4", again=True),
            cell_ended("small/medec", collected=True),
            cell_ended("big/medec", reused_from="x\x1b"),
            ended(),
        )
    each_says(
        stream.getvalue().splitlines(),
        [f"{tmp_path}: 4 cells"],
        ["small/qa: started"],
        ["small/qa: complete: exact_match", "0.5000", "n 4"],
        ["big/qa: started again", "attempt 2"],
        ["paused: host", "connection refused", "1 cell"],
        ["host: answers again"],
        ["big/qa: failed", "[bold]no key"],
        ["big/medec: failed: 4", "next attempt"],
        ["small/medec: complete", "finished before"],
        ["big/medec: complete", "x\\x1b"],
    )


def test_a_line_of_figures_now_and_then(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    stream = io.StringIO()
    clock = Clock()
    with held(folder), SuiteScreen(stream, folder, clock) as screen:
        told(folder, screen, started())
        for seconds in (0.0, 9.9, 10.0):  # nothing runs yet
            clock.now = 1000.0 + seconds
            screen.tick()
        told(folder, screen, cell_started("big/qa"))
        cell_events(
            folder,
            "big/qa",
            phase("asking the model", time=111.0),
            suite_by_hand.progress(10, time=121.0),
        )
        clock.now = 1019.9
        screen.tick()
        assert "10/100" not in stream.getvalue()
        clock.now = 1020.0
        screen.tick()
        screen.tick()
    (figures,) = stream.getvalue().splitlines()[2:]
    says(figures, "0/4 cells ended", "1 running", "10/100 requests", "0 failed")


def test_a_terminal_shows_a_table_and_leaves_none_behind(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    stream = Terminal()
    clock = Clock()
    with held(folder), SuiteScreen(stream, folder, clock) as screen:
        told(folder, screen, started(), cell_started("big/qa"))
        cell_events(
            folder,
            "big/qa",
            phase("asking the model", time=111.0),
            suite_by_hand.progress(10, time=121.0),
        )
        clock.now += 0.2
        screen.tick()
        assert "10/100" not in stream.getvalue()
        clock.now += 0.05
        screen.tick()
        assert "10/100" in stream.getvalue()
        screen.say("a warning")
        before = len(stream.getvalue())
    sent = stream.getvalue()
    assert "big/qa" not in sent[before:], "the table is not drawn once more at the end"
    assert "a warning" in sent
    assert "big/qa: started" not in sent
    assert sent.rindex("\x1b[?25h") > sent.rindex("10/100"), "the cursor is shown again"
    assert sent.rpartition("\x1b[2K")[2] == "\x1b[?25h\r", "the table is taken away"


def status(tmp_path: Path, cells: int) -> SuiteStatus:
    names = [f"a_target_with_a_name_{number}/of_an_evaluation_with_one" for number in range(cells)]
    folder = suite_folder(
        tmp_path,
        started(names),
        *(cell_ended(name) for name in names[:3]),
        cell_ended(names[3], "failed", reason="many words " * 20),
        cell_started(names[4]),
        paused("host" * 30, names[5]),
    )
    with held(folder):
        return read_suite_status(folder)


def drawn(found: SuiteStatus, width: int, height: int) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    with console.capture() as capture:
        console.print(live_table(found, console, 200.0))
    return capture.get().splitlines()


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (80, 60), (60, 10), (40, 8), (200, 24), (80, 5)]
)
def test_a_table_never_leaves_the_terminal(tmp_path: Path, width: int, height: int) -> None:
    lines = drawn(status(tmp_path, 40), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width


def test_a_table_of_many_cells(tmp_path: Path) -> None:
    lines = drawn(status(tmp_path, 40), 80, 12)
    says(lines[1], "40 cells", "1 running", "35 waiting", "3 complete", "1 failed")
    assert lines[3].startswith("paused: hosthost")
    body = lines[4:-1]
    assert [line.split()[1] for line in body] == [
        "failed",
        "running",
        *["waiting"] * (len(body) - 2),
    ]
    assert body[0].rstrip().endswith("…")
    assert lines[-1] == f"and {35 - (len(body) - 2)} waiting, 3 complete"
    lines = drawn(status(tmp_path, 40), 80, 6)
    assert lines[3].split()[1] == "running", "what goes on stays the longest"
    says(lines[-1], "1 failed", "35 waiting", "3 complete")
    assert "running" not in lines[-1]


NAMES = ("small/qa", "a_longer_name/qa")


@pytest.fixture
def folder(tmp_path: Path) -> SuiteDir:
    failed = cell_ended(NAMES[1], "failed", reason="many words " * 15)
    found = suite_folder(tmp_path, started(NAMES), cell_ended(NAMES[0]), failed, ended())
    suite_by_hand.cell_result(found, NAMES[0])
    return found


def report(folder: SuiteDir, *codes: int, reason: str | None = None) -> SuiteReport:
    cells = []
    for name, code in zip(NAMES, codes, strict=True):
        target, evaluation = name.split("/")
        status = RunStatus.FAILED if code else RunStatus.COMPLETE
        cells.append(
            CellReport(
                target,
                evaluation,
                status,
                folder.cell_folder(target, evaluation),
                reason,
                1,
                exit_code=code,
            )
        )
    return SuiteReport(folder, tuple(cells), max(codes), "partial", "a summary\nof two lines")


def test_why_the_exit_code_is_what_it_is(
    folder: SuiteDir, capsys: pytest.CaptureFixture[str]
) -> None:
    def why(found: SuiteReport) -> str:
        suite_screen.show_end(found, RunOutput(quiet=True, stdout=io.StringIO()))
        return " ".join(capsys.readouterr().err.split()).removeprefix(
            f"exit code {found.exit_code}: "
        )

    assert why(report(folder, 0, 3, reason="no\nkey")) == "a_longer_name/qa: no key"
    assert why(report(folder, 1, 4)) == "a_longer_name/qa: failed"
    no_table = replace(
        report(folder, 0, 0),
        exit_code=3,
        summary="2 cells: 2 complete\nthe table cannot be written",
    )
    says(why(no_table), "table")


def test_one_line_or_a_record_at_the_end(
    folder: SuiteDir, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(folder, 0, 3, reason="no key")
    line = io.StringIO()
    out = io.StringIO()
    suite_screen.show_end(found, RunOutput(quiet=True, stdout=line))
    assert line.getvalue() == "a summary\n"
    assert capsys.readouterr().err.startswith("exit code 3")
    suite_screen.show_end(found, RunOutput(as_json=True, stdout=out))
    assert capsys.readouterr().err == ""
    end = json.loads(out.getvalue())
    assert end == json.loads(
        json.dumps(suite_screen.suite_end_record(found, read_suite_status(folder)))
    )
    first, second = end["cells"]
    assert (first["target"], first["evaluation"], first["status"]) == ("small", "qa", "complete")
    assert (first["result"]["value"], first["folder"]) == (0.5, f"{folder.root}/small/qa")
    assert (second["status"], second["result"]) == ("failed", None)
    assert (end["exit_code"], end["status"], end["counts"]) == (
        3,
        "partial",
        {"complete": 1, "failed": 1},
    )
    assert end["spent"] == {"requests": 0, "tokens": 0, "cost": 0.0}
    assert (end["suite"], end["results"]) == (str(folder.root), f"{folder.root}/suite_results.yaml")


def test_a_record_at_the_start_and_lines_beside_it(
    folder: SuiteDir, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    with suite_screen.progress_view(folder, RunOutput(as_json=True, stdout=out)) as observer:
        observer.on_event(started(NAMES))
        observer.on_event(cell_ended(NAMES[0]))
        observer.say("a word")
        observer.tick()
    (record,) = map(json.loads, out.getvalue().splitlines())
    assert (record["event"], record["suite"], record["total"]) == ("launch", str(folder.root), 2)
    complete, word = capsys.readouterr().err.splitlines()[1:]
    says(complete, "small/qa: complete", "0.5000", "n 4")
    assert word == "a word"


def steps(*actions: Callable[[], object]) -> Callable[[float], None]:
    """Let these happen, one after another, while the watcher sleeps."""
    left = iter(actions)
    return lambda _: (next(left)(), None)[1]


def nothing() -> None: ...


@pytest.fixture
def stack() -> ExitStack:
    """Closed when the suite lets go of its lock."""
    return ExitStack()


def test_one_record_a_change(tmp_path: Path, stack: ExitStack) -> None:
    folder = suite_folder(tmp_path, started(["a/b"]))
    out = io.StringIO()
    stack.enter_context(held(folder))

    def end() -> None:
        tell(folder.events, cell_ended("a/b"), ended())
        stack.close()

    begin = partial(tell, folder.events, cell_started("a/b"))
    watch(SuiteReader(folder), out, as_json=True, sleep=steps(nothing, nothing, begin, end))
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["state"], one["cells"][0]["status"]) for one in records] == [
        ("running", "waiting"),
        ("running", "running"),
        ("ended", "complete"),
    ]


def test_a_watcher_has_lines(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suite_folder(tmp_path, started(["a/b", "c/d"]))
    out = io.StringIO()
    stack.enter_context(held(folder))
    monkeypatch.setattr(suite_screen, "_PLAIN_INTERVAL_S", 0.0)
    tells = [
        partial(tell, folder.events, event)
        for event in (cell_started("a/b"), paused("host", "c/d"))
    ]
    watch(SuiteReader(folder), out, as_json=False, sleep=steps(*tells, nothing, stack.close))
    shown = out.getvalue().splitlines()[:4]
    says(shown[0], "0/2 cells ended", "1 running")
    assert shown[:3] == [shown[0]] * 3
    says(shown[3], f"{tmp_path}: not running", "stopped")


def test_a_terminal_has_a_table_and_at_the_end_all_lines(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_screen, "REFRESH_S", 0.0)
    folder = suite_folder(tmp_path, started(["a/b"]))
    out = Terminal()
    stack.enter_context(held(folder))
    watch(SuiteReader(folder), out, as_json=False, sleep=steps(nothing, stack.close))
    sent = out.getvalue()
    assert sent.count("1 cell: 1 waiting") >= 2
    assert sent.rindex("\x1b[?25h") < sent.rindex("1 cell: 1 missing")


def test_on_a_terminal_lines_fit_and_the_command_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    folder = suite_folder(
        tmp_path, started(["a/b"]), cell_ended("a/b", "failed", reason="many words " * 20)
    )
    for out, fits in ((Terminal(), True), (io.StringIO(), False)):
        suite_screen.show_status(read_suite_status(folder), out, as_json=False)
        lines = out.getvalue().splitlines()
        assert (
            lines[-1]
            == f"  eval-factory run_suite --run_config {tmp_path}/suite_config.yml --output_dir {tmp_path}"
        )
        words = [line for line in lines[:-1] if str(tmp_path) not in line]
        assert (max(map(len, words)) <= 50) is fits


FIGURES = CellFigures("qa", "exact_match", 0.71, 0.6, 0.82, 100, reportable=True)


@pytest.fixture
def running(tmp_path: Path) -> SuiteStatus:
    """One cell that is complete, two that run, one whose endpoint is gone."""
    folder = suite_folder(
        tmp_path,
        started(),
        cell_started("small/qa"),
        cell_ended("small/qa"),
        cell_started("big/qa"),
        cell_started("small/medec", attempt=2),
        paused("the host", "big/medec", reason="refused\x1b[0m"),
    )
    suite_by_hand.cell_result(folder, "small/qa")
    events = (
        phase("loading data", time=111.0, number=2, of=3),
        phase("asking the model", time=112.0),
    )
    cell_events(
        folder,
        "big/qa",
        *events,
        suite_by_hand.progress(10, time=122.0, failed=1, prompt_tokens=1500),
    )
    cell_events(
        folder,
        "small/medec",
        phase("asking the model", time=112.0),
        suite_by_hand.progress(30, time=122.0),
    )
    with held(folder):
        return read_suite_status(folder)


def test_a_line_for_each_cell_with_the_figures_that_fit_beside_the_phase(
    running: SuiteStatus,
) -> None:
    rows = cell_rows(running)
    states = [
        ("small/qa", "complete"),
        ("big/qa", "running"),
        ("small/medec", "running"),
        ("big/medec", "waiting"),
    ]
    assert [(row.name, row.status) for row in rows] == states
    each_says(
        [row.text for row in rows],
        ["exact_match 0.5000", "n 4"],
        ["2/3", "10/100", "1 failed", "1:30 min left", "1.0/s", "1.5k tokens"],
        ["attempt 2", "30/100", "0 failed", "23 s left", "3.0/s"],
        ["waits for its endpoint"],
    )
    says(cell_rows(running, 38)[1].text, "2/3", "10/100", "1 failed")
    assert "left" not in cell_rows(running, 38)[1].text
    says(cell_rows(running, 30)[1].text, "2/3", "10/100")
    assert "failed" not in cell_rows(running, 30)[1].text


def test_lines_about_all(running: SuiteStatus) -> None:
    says(suite_screen.counts_line(running), "4 cells", "2 running", "1 waiting", "1 complete")
    says(suite_screen.spent_line(running), "0 requests", "0 tokens")
    asked = [replace(cell, spent=Spending(20, 800, 0.125)) for cell in running.cells[:2]]
    status = replace(running, cells=tuple(asked), limits={"max_cost": 5, "max_requests": 100})
    says(
        suite_screen.spent_line(status),
        "40 requests",
        "1.6k tokens",
        "0.25 USD",
        "max_cost 5",
        "max_requests 100",
    )
    says(
        suite_screen.progress_line(running),
        "1/4 cells ended",
        "2 running",
        "40/200 requests",
        "1 failed",
    )
    who = f"process {os.getpid()} on {socket.gethostname()}"
    assert (
        suite_screen.state_line(running, 137.0)
        == f"{running.folder.root}: running ({who}), for 37 s"
    )
    (pause,) = [suite_screen.pause_line(cell_pause, 132.0) for cell_pause in running.pauses]
    says(pause, "paused", "the host", "refused\\x1b[0m", "1 cell", "2 s")
    assert resume_lines(running) == []


def test_cells_that_ended(tmp_path: Path) -> None:
    folder = suite_folder(
        tmp_path,
        started(),
        cell_ended("small/qa", collected=True),
        cell_ended("big/qa", reused_from="/else\nwhere"),
        cell_ended("small/medec", "failed", reason="no\nkey"),
        ended("partial", exit_code=3),
    )
    suite_by_hand.cell_result(folder, "small/qa")
    status = read_suite_status(folder)
    each_says(
        [row.text for row in cell_rows(status)],
        ["0.5000", "n 4", "finished before"],
        ["/else where"],
        ["no key"],
        ["not started"],
    )
    lines = status_lines(status, 200.0)
    says(lines[0], f"{tmp_path}: not running")
    assert re.search(r"at 19\d\d", lines[0])
    assert lines[0].endswith(", exit code 3")
    says(lines[1], "small/qa complete", "0.5000", "finished before")
    says(lines[4], "big/medec missing", "not started")
    each_says(
        lines[5:],
        ["4 cells", "2 complete", "1 failed", "1 missing"],
        ["0 requests", "0 tokens"],
        ["same command"],
        [
            f"eval-factory run_suite --run_config {tmp_path}/suite_config.yml --output_dir {tmp_path}"
        ],
    )


def test_a_suite_that_has_just_begun_and_a_cell_that_waits_again(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    with held(folder):
        folder.lock.write_text("")
        status = read_suite_status(folder)
    told = [f"{tmp_path}: running", "0 cells", "asked so far: 0 requests, 0 tokens"]
    assert status_lines(status, 0.0) == told
    folder = suite_folder(
        tmp_path, started(), cell_ended("small/qa", "failed", reason="429", again=True)
    )
    with held(folder):
        assert cell_rows(read_suite_status(folder))[0] == CellRow("small/qa", RunStatus.WAITING, "")


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (FIGURES, "exact_match 0.7100 (0.6000 .. 0.8200), n 100"),
        (replace(FIGURES, ci_high=None), "exact_match 0.7100, n 100"),
        (
            replace(FIGURES, ci_low=None, reportable=False),
            "exact_match 0.7100, n 100, not reportable",
        ),
        (
            replace(FIGURES, doubt="chance may explain it"),
            "exact_match 0.7100 (0.6000 .. 0.8200), n 100, chance may explain it",
        ),
        (
            CellFigures("qa", "f1", None, None, None, None, reportable=True),
            "f1 could not be computed",
        ),
    ],
)
def test_a_result(figures: CellFigures, text: str) -> None:
    assert suite_screen.result_text(figures) == text


def test_what_slurm_says_stands_beside_how_far_a_task_is(running: SuiteStatus) -> None:
    """Of a cell that waits there it is all; how to see its log is said for all."""
    _, first, *_others = running.cells
    job = suite_status.CellJob("Slurm: ef-1-w1 task 0, RUNNING", 2, Path("/log"))
    waiting = replace(
        first, progress=None, job=job, status=RunStatus.WAITING, reason="Priority\x1b"
    )
    found = replace(
        running,
        cells=(replace(first, job=job), waiting, replace(first, job=replace(job, task=None))),
    )
    what = [row.text for row in cell_rows(found)]
    says(what[0], "Slurm: ef-1-w1 task 0", "RUNNING")
    assert what[1] == "Priority\\x1b"
    assert "Slurm" not in what[2]


def test_the_command_of_a_run_is_no_suites(tmp_path: Path) -> None:
    status = read_suite_status(suite_folder(tmp_path, started()))
    of_a_run = replace(status, folder=RunSuiteDir(tmp_path / "out" / ".slurm"))
    file = tmp_path / "out" / ".slurm" / "run_config.yml"
    assert (
        resume_command(of_a_run)
        == f"eval-factory run_eval --run_config {file} --output_dir {tmp_path / 'out'}"
    )
    assert suite_screen.state_line(of_a_run, 0.0).startswith(f"{tmp_path / 'out'}: ")


DONE = CellCheck("small", "qa", RunStatus.COMPLETE, None, (), Path("/s/small/qa"))
NOTED = CellCheck("big", "qa", RunStatus.COMPLETE, "not reportable:\nwhy", (), Path("/s/big/qa"))
FAILED = CellCheck(
    "big",
    "medec",
    RunStatus.FAILED,
    "no\x1b key",
    ("set KEY\nor KEY_2", "run it"),
    Path("/s/big/medec"),
)
BARE = CellCheck("big", "bare", RunStatus.MISSING, None, (), Path("/s/big/bare"))
ALTERED = [f"  altered: suite_results.yaml: cells[{number}].value: is no" for number in range(20)]


def text(
    *cells: CellCheck, is_running: bool = False, in_table: bool = True, altered: int = 0
) -> list[str]:
    findings = tuple(
        Finding("suite_results.yaml", f"cells[{number}].value", "is\nno")
        for number in range(altered)
    )
    found = SuiteCheck(SuiteDir(Path("/s")), cells, "the command", is_running, in_table, findings)
    return suite_screen.text_of_check(found).splitlines()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (text(DONE), ["/s: complete: 1 cell"]),
        (text(DONE, NOTED), ["/s: complete: 2 cells", "  note: big/qa: not reportable: why"]),
        (
            text(DONE, FAILED, BARE),
            [
                "/s: not complete: 2 of 3 cells without a complete result",
                "  big/medec: failed: no\\x1b key",
                "    to do: set KEY",
                "      or KEY_2",
                "    to do: run it",
                "  big/bare: missing",
                "the same command goes on:",
                "  the command",
            ],
        ),
        (
            text(DONE, in_table=False)[1:],
            [
                "results are newer than the table: the same command only collects them into the table:",
                "  the command",
            ],
        ),
        (text(DONE, altered=20)[1:], ALTERED),
        (text(DONE, altered=22)[1:], [*ALTERED, "  altered: 2 more (--json)"]),
    ],
    ids=["complete", "noted", "missing", "newer", "altered", "more altered"],
)
def test_what_a_check_finds_and_what_to_do(lines: list[str], told: list[str]) -> None:
    assert lines == told
