from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from eval_factory.executors.progress import EventTail, ProgressDisplay, figures_text


def progress(**changes: Any) -> dict[str, Any]:
    event = {
        "event": "progress", "time": 15.0, "role": "model", "total": 100, "done": 50, "cached": 0, "failed": 0,
        "prompt_tokens": 0, "completion_tokens": 0,
    }  # fmt: skip
    return {**event, **changes}


def test_figures() -> None:
    text = figures_text(progress(cached=10, failed=2, prompt_tokens=7, completion_tokens=8), 10.0)
    assert text == "50/100 done (10 from cache), 5.0/s, 10 s left, 2 failed, 7+8 tokens"
    assert figures_text(progress(role="gpt", total=0), 10.0) == "judge gpt: 50 done, 5.0/s, 0 failed"


def test_plain_lines_where_there_is_no_terminal() -> None:
    screen = io.StringIO()
    with ProgressDisplay(screen) as display:
        display.show({"event": "phase", "phase": "asking the model", "total": 100, "time": 5.0})
        display.show(progress())
        display.show(progress(done=100))
        display.show({"event": "warning", "message": "[bold]look"})
    lines = screen.getvalue().splitlines()
    assert lines == [
        "asking the model: 100 requests ...", "  100/100 done, 10.0/s, 0 failed", "warning: [bold]look",
    ]  # fmt: skip


def test_tail_gives_whole_lines_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"run_id": "me", "event": "before"}) + "\n")
    tail = EventTail(path, "me")
    assert tail.new() == []
    with path.open("a") as file:
        file.write(
            json.dumps({"run_id": "me", "event": "a"}) + "\n" + json.dumps({"run_id": "you"}) + '\nbroken\n{"run_'
        )
    assert [event["event"] for event in tail.new()] == ["a"]
    with path.open("a") as file:
        file.write('id": "me", "event": "b"}\n')
    assert [event["event"] for event in tail.new()] == ["b"]
    assert EventTail(tmp_path / "none", "me").new() == []


def test_what_is_told_is_printable() -> None:
    screen = io.StringIO()
    with ProgressDisplay(screen) as display:
        display.show(
            {"event": "warning", "message": "first\n  it says: \x1b[2J\u202e\x9b\x07\u2028eval-factory stops: x"}
        )
    told = "warning: first\n  it says: \\x1b[2J\\u202e\\x9b\\x07\\u2028eval-factory stops: x\n"
    assert screen.getvalue() == told
