from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eval_factory.executors.progress import (
    EventTail,
    ProgressDisplay,
    duration,
    progress_text,
    short_number,
)
from facts import each_says, says


def progress(**changes: Any) -> dict[str, Any]:
    event = {
        "event": "progress",
        "time": 15.0,
        "role": "model",
        "total": 100,
        "done": 50,
        "cached": 0,
        "failed": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }
    return {**event, **changes}


def test_figures() -> None:
    text = progress_text(progress(cached=10, failed=2, prompt_tokens=7, completion_tokens=8), 10.0)
    says(text, "50/100", "2 failed", "10 s left", "5.0/s", "15 tokens", "10 from cache")
    event = progress(role="gpt", total=0, cached=3)
    says(progress_text(event, 10.0), "gpt 50 done", "0 failed", "5.0/s", "3 from cache")
    says(progress_text(event, 0.0), "gpt 50 done", "0.0/s", "3 from cache")
    says(progress_text(event, 10.0, 21), "gpt 50 done", "0 failed")
    assert "cache" not in progress_text(event, 10.0, 21)
    assert progress_text(event, 10.0, 20) == progress_text(event, 10.0, -5) == "gpt 50 done"
    assert progress_text(progress(done=100), 10.0) == "100/100, 0 failed, 10.0/s"


ASKING = {"event": "phase", "phase": "asking the model", "total": 100, "time": 5.0}


def shown(*events: dict[str, Any]) -> str:
    """Show progress where there is no terminal."""
    screen = io.StringIO()
    with ProgressDisplay(screen) as display:
        for event in events:
            display.show(event)
    return screen.getvalue()


def test_plain_printable_lines_where_there_is_no_terminal() -> None:
    foreign = "first\n  it says: \x1b[2J\u202e\x9b\x07\u2028eval-factory stops: x"
    warnings = [{"event": "warning", "message": text} for text in ("[bold]look", foreign)]
    each_says(
        shown(ASKING, progress(), progress(done=100), *warnings).splitlines(),
        ["asking the model", "100 requests"],
        ["100/100", "0 failed", "10.0/s"],
        ["warning: [bold]look"],
        ["warning: first"],
        ["it says: \\x1b[2J\\u202e\\x9b\\x07\\u2028eval-factory"],
    )


def test_a_notebook_cell_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich asks whether it is in a notebook, and if so shows everything in the cell, whatever its file is."""

    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    assert Console().is_jupyter
    each_says(shown(ASKING).splitlines(), ["asking the model", "100 requests"])
    assert capsys.readouterr().out == ""


def test_tail_gives_whole_lines_of_its_run_or_of_every_one_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"run_id": "me", "event": "before"}\n')
    own = EventTail(path, run_id="me")
    every = EventTail(path, run_id=None)
    for written, of_own, of_every in (
        ("", [], ["before"]),
        (
            '{"run_id": "me", "event": "a"}\n{"event": "you"}\nbroken\n[1]\n"text"\n{"run_',
            ["a"],
            ["a", "you"],
        ),
        ('id": "me", "event": "b"}\n', ["b"], ["b"]),
        ("", [], []),
    ):
        with path.open("a") as file:
            file.write(written)
        assert [[event["event"] for event in tail.read_new_events()] for tail in (own, every)] == [
            of_own,
            of_every,
        ]
    assert EventTail(tmp_path / "none", run_id="me").read_new_events() == []


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what a terminal of some width is sent, line by line, without what moves its cursor."""
    for name in ("NO_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE", "FORCE_COLOR", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def shown(columns: int = 80, encoding: str = "utf-8", **env: str) -> str:
        for name, value in {"COLUMNS": str(columns), **env}.items():
            monkeypatch.setenv(name, value)
        screen = Terminal()
        screen.encoding = encoding
        with ProgressDisplay(screen) as display:
            display.show({"event": "phase", "phase": "loading data", "time": 5.0})
            display.show(ASKING)
            display.show(progress(cached=10, failed=2, prompt_tokens=4000, completion_tokens=1000))
            display.show({"event": "warning", "message": "look"})
        return screen.getvalue()

    return shown


SAID = ["loading data ...", "asking the model: 100 requests ...", "warning: look"]


def lines_of(sent: str) -> list[str]:
    return [
        line
        for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent).replace("\r", "\n").split("\n")
        if line
    ]


@pytest.mark.parametrize(
    ("columns", "figures"),
    [
        (100, "50/100, 2 failed, 10 s left, 5.0/s, 5.0k tokens, 10 from cache"),
        (80, "50/100, 2 failed, 10 s left, 5.0/s, 5.0k tokens"),
        (60, "50/100, 2 failed, 10 s left, 5.0/s"),
        (55, "50/100, 2 failed, 10 s left"),
        (40, "50/100"),
    ],
)
def test_a_terminal_has_a_bar_with_the_figures_that_fit(
    columns: int, figures: str, terminal: Any
) -> None:
    sent = terminal(columns)
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h") == 1
    assert sent.index("\x1b[?25l") < sent.index("\x1b[?25h"), "the cursor is shown again"
    lines = lines_of(sent)
    assert [line for line in lines if line.endswith(" ...") or "warning" in line] == SAID
    bars = [line for line in lines if line.startswith("asking the model \u2501")]
    assert bars[-1].endswith(f" {figures}")
    assert len(bars[-1]) == columns
    assert any(line.startswith("loading data \u2501") for line in lines), (
        "it moves, where the end is not known"
    )


@pytest.mark.parametrize("columns", [1, 5, 12])
def test_a_tiny_terminal_breaks_nothing(columns: int, terminal: Any) -> None:
    assert all(len(line) <= columns for line in lines_of(terminal(columns)) if line not in SAID)


def test_a_terminal_of_another_encoding_has_a_bar_of_its_letters(terminal: Any) -> None:
    sent = terminal(encoding="ascii")
    assert sent.isascii()
    assert any(line.startswith("asking the model -----") for line in lines_of(sent))


def test_a_terminal_that_cannot_go_back_has_lines(terminal: Any) -> None:
    assert terminal(TERM="dumb").splitlines() == SAID


@pytest.mark.parametrize(
    ("worded", "value", "told"),
    [
        (duration, 0.4, "0 s"),
        (duration, 59.4, "59 s"),
        (duration, 59.6, "1:00 min"),
        (duration, 245, "4:05 min"),
        (duration, 3599, "59:59 min"),
        (duration, 7500, "2:05 h"),
        (short_number, 999, "999"),
        (short_number, 1000, "1.0k"),
        (short_number, 999_949, "999.9k"),
        (short_number, 999_950, "1.0M"),
        (short_number, 1_240_000, "1.2M"),
    ],
)
def test_durations_and_short_numbers(
    worded: Callable[[float], str], value: float, told: str
) -> None:
    assert worded(value) == told
