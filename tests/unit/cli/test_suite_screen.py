"""What is shown while a suite runs: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eval_factory.cli.suite_screen import SuiteScreen, live_table
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.suite_status import SuiteStatus, status_of
from suite_by_hand import (
    back,
    cell_ended,
    cell_events,
    cell_result,
    cell_started,
    ended,
    held,
    paused,
    phase,
    progress,
    started,
    suite_folder,
    tell,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _a_terminal_of_this_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.delenv("NO_COLOR", raising=False)


def told(folder: SuiteDir, screen: SuiteScreen, *events: dict[str, Any]) -> None:
    for event in events:
        tell(folder.events, event)
        screen.on_event(event)


def lines_of(folder: SuiteDir, *events: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    with SuiteScreen(stream, folder, Clock()) as screen:
        told(folder, screen, *events)
    return stream.getvalue().splitlines()


def test_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    cell_result(folder, "small/qa")
    assert lines_of(
        folder, started(), cell_started("small/qa"), cell_ended("small/qa"), cell_started("big/qa", attempt=2),
        paused("host", "big/qa", time=995.0), back("host"), cell_ended("big/qa", "failed", reason="[bold]no\nkey"),
        cell_ended("big/medec", "failed", reason="4", again=True),
        cell_ended("small/medec", collected=True), cell_ended("big/medec", reused_from="x\x1b"), ended(),
    ) == [
        f"{tmp_path}: 4 cells: 4 waiting",
        "small/qa: started",
        "small/qa: complete: exact_match 0.5000, n 4",
        "big/qa: started again (attempt 2)",
        "paused: host: connection refused (1 cell, for 5 s)",
        "host: answers again",
        "big/qa: failed: [bold]no key",
        "big/medec: failed: 4; it waits for its next attempt",
        "small/medec: complete: finished before",
        "big/medec: complete: from x\\x1b",
    ]  # fmt: skip


def test_a_line_of_figures_now_and_then(tmp_path: Path) -> None:
    folder, stream, clock = suite_folder(tmp_path), io.StringIO(), Clock()
    with SuiteScreen(stream, folder, clock) as screen:
        told(folder, screen, started())
        for seconds in (0.0, 9.9, 10.0):  # nothing runs yet
            clock.now = 1000.0 + seconds
            screen.tick()
        told(folder, screen, cell_started("big/qa"))
        cell_events(folder, "big/qa", phase("asking the model", time=111.0), progress(10, time=121.0))
        clock.now = 1019.9
        screen.tick()
        assert "10/100" not in stream.getvalue()
        clock.now = 1020.0
        screen.tick()
        screen.tick()
    assert stream.getvalue().splitlines()[2:] == [
        "  0/4 cells ended, 1 running: 10/100 requests, 1.0/s, 0 failed, 1:30 min left"
    ]


def test_a_terminal_shows_a_table_and_leaves_none_behind(tmp_path: Path) -> None:
    folder, stream, clock = suite_folder(tmp_path), Terminal(), Clock()
    with SuiteScreen(stream, folder, clock) as screen:
        told(folder, screen, started(), cell_started("big/qa"))
        cell_events(folder, "big/qa", phase("asking the model", time=111.0), progress(10, time=121.0))
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


def test_a_dumb_terminal_has_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    folder, stream = suite_folder(tmp_path), Terminal()
    with SuiteScreen(stream, folder, Clock()) as screen:
        told(folder, screen, started(), cell_started("big/qa"))
    assert "big/qa: started" in stream.getvalue()
    assert "\x1b[?25l" not in stream.getvalue()


def status(tmp_path: Path, cells: int) -> SuiteStatus:
    names = [f"a_target_with_a_name_{number}/of_an_evaluation_with_one" for number in range(cells)]
    folder = suite_folder(
        tmp_path, started(names), *(cell_ended(name) for name in names[:3]),
        cell_ended(names[3], "failed", reason="many words " * 20), cell_started(names[4]), paused("host" * 30, names[5]),
    )  # fmt: skip
    with held(folder):
        return status_of(folder)


def drawn(found: SuiteStatus, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(live_table(found, width, height, 200.0))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 60), (60, 10), (40, 8), (200, 24), (80, 5)])
def test_a_table_never_leaves_the_terminal(tmp_path: Path, width: int, height: int) -> None:
    lines = drawn(status(tmp_path, 40), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width


def test_a_table_of_many_cells(tmp_path: Path) -> None:
    lines = drawn(status(tmp_path, 40), 80, 12)
    assert lines[1] == "40 cells: 1 running, 1 paused, 34 waiting, 3 complete, 1 failed"
    assert lines[3].startswith("paused: hosthost")
    body = lines[4:-1]
    assert [line.split()[1] for line in body] == ["failed", "running", "paused", *["waiting"] * (len(body) - 3)]
    assert body[0].rstrip().endswith("…")
    assert lines[-1] == f"and {34 - (len(body) - 3)} waiting, 3 complete"
