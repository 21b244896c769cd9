"""What ends on the screen where a command fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_factory.cli import main


def test_a_message_is_printable_and_each_line_of_it_ours(capsys: pytest.CaptureFixture[str]) -> None:
    main._say("wrong \x1b[2J\u202e\x85eval-factory: a false line\u2028another\n  check it\nsecond\n")
    assert capsys.readouterr().err == (
        "eval-factory: wrong \\x1b[2J\\u202e\\x85eval-factory: a false line\\u2028another\n"
        "  check it\n"
        "eval-factory: second\n"
    )


def test_the_traceback_of_a_defect_is_printable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main._report_defect(ValueError("odd \x1b[2J")) == 70
    (file,) = tmp_path.glob("eval-factory-defect-*.log")
    assert "ValueError: odd \\x1b[2J\n" in file.read_text("utf-8")
    assert str(file) in capsys.readouterr().err


def test_on_a_terminal_a_long_message_goes_on_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "cannot reach " + "the endpoint that was given " * 4 + "\n  check it"
    main._say(message)
    assert capsys.readouterr().err == f"eval-factory: {message.splitlines()[0]}\n  check it\n", "one line in a log"
    monkeypatch.setattr("eval_factory.cli.console.Lasting.isatty", lambda _: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda _: os.terminal_size((40, 24)))
    main._say(message)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["eval-factory: cannot reach the endpoint", "    that was given the endpoint that was"]
    assert lines[-1] == "  check it"
    assert max(map(len, lines)) <= 40
