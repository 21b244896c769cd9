"""Lines that fit a screen."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from eval_factory.cli import task_listing
from eval_factory.cli.console import (
    columns,
    flush_or_silence,
    make_ready,
    show_table,
    silence,
    wrapped,
)
from eval_factory.tasks.framework import load_framework


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("x" * 20, ["x" * 20]),
        ("one two three four five", ["one two three four", "    five"]),
        ("  note: one two three", ["  note: one two", "      three"]),
        ("one two  three four five six seven", ["one two  three four", "    five six seven"]),
        ("one two three four\n  five", ["one two three four", "  five"]),
        ("x" * 41, ["x" * 16, "    " + "x" * 16, "    " + "x" * 9]),
        ("see /a/path/that/is/longer/than/this", ["see", "    /a/path/that/is/longer/than/this"]),
        ("  results: /a/path/that/is/longer", ["  results: /a/path/that/is/longer"]),
        ("a score is 0.5  (0.1 .. 0.9)", ["a score is 0.5", "    (0.1 .. 0.9)"]),
        (
            "some (in 5 of all), of (9 of them were here)",
            ["some (in 5 of all),", "    of (9 of them", "    were here)"],
        ),
        ("中文中文中文中 文中文", ["中文中文中文中", "    文中文"]),
        ("中文中文中文中文中文", ["中文中文中文中文中文"]),
    ],
)
def test_a_long_line_goes_on_below(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20).split("\n") == lines


def test_nothing_is_lost_and_nothing_is_wider() -> None:
    text = "\n".join(f"{' ' * (number % 5)}note: " + "words of any length " * number for number in range(9))
    for width in (20, 40, 80):
        shown = wrapped(text, width)
        assert shown.split() == text.split()
        assert max(map(len, shown.split("\n"))) <= width
    assert wrapped("x " * 60) == wrapped("x " * 60, 80)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("real", "used"), [(200, 80), (80, 80), (40, 40), (3, 20)])
def test_a_terminal_is_as_wide_as_it_is_up_to_80(real: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda _: os.terminal_size((real, 24)))
    assert columns(Terminal()) == used
    assert columns(io.StringIO()) == 80


ROWS = task_listing.task_rows(load_framework().evaluations)
COLUMNS = task_listing.TASK_COLUMNS


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = io.StringIO()
    show_table(COLUMNS, ROWS, file=screen)
    return [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]


@pytest.mark.parametrize("width", [200, 100, 80, 60, 52, 40, 28])
def test_names_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(width, monkeypatch)
    first_words = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    names = [row[0] for row in ROWS]
    assert [word for word in first_words if word in names] == names
    assert max(map(len, lines)) <= width


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a wider terminal shows: instances, data size, public since" in shown(80, monkeypatch)
    wide = shown(200, monkeypatch)
    assert wide[0].split() == " ".join(COLUMNS).split()
    assert not [line for line in wide if "a wider terminal" in line]


def test_below_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(40, monkeypatch)
    assert lines[:3] == ["medcalc_bench", "  Medical calculations from a patient", "  note and a question"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end that is read, and a stream that writes into the other."""
    reads, writes = os.pipe()
    stream = os.fdopen(writes, "w", encoding="utf-8")
    yield reads, stream
    with contextlib.suppress(OSError):  # a test has closed it
        os.close(reads)
    with contextlib.suppress(OSError):
        stream.close()


def test_a_silenced_stream_writes_nowhere(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    stream.write("in the buffer")
    before = len(list(Path("/proc/self/fd").iterdir()))
    silence(stream)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    stream.write("later")
    stream.flush()
    assert os.read(reads, 100) == b""  # its other end is closed, and nothing came
    silence(io.StringIO())  # no descriptor: nothing to do


def test_a_buffer_is_emptied_or_given_up(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    stream.write("kept")
    flush_or_silence(stream)
    assert os.read(reads, 100) == b"kept"
    stream.write("lost")
    os.close(reads)
    flush_or_silence(stream)
    stream.close()  # would raise BrokenPipeError
    flush_or_silence(stream)


class Started(Exception):
    """Stands for the program that takes this one's place."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of the programs that are begun in place of this one."""
    found: list[tuple[Any, ...]] = []

    def execv(*arguments: Any) -> None:
        found.append(arguments)
        raise Started

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "eval_factory", "ls"])
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    return found


def test_where_the_locale_is_not_utf_8_the_program_begins_again(
    started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(Started):
        make_ready()
    assert started == [(sys.executable, [sys.executable, "-X", "utf8", "-m", "eval_factory", "ls"])]
    assert os.environ["PYTHONUTF8"] == "1"
    make_ready()  # it was begun again already: once is enough
    assert len(started) == 1


def test_helm_run_gets_utf_8_and_streams_take_any_text(
    started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    latin, utf_8 = (io.TextIOWrapper(io.BytesIO(), encoding=name) for name in ("latin-1", "UTF8"))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "UTF-8")
    monkeypatch.setattr(sys, "stdout", latin)
    monkeypatch.setattr(sys, "stderr", utf_8)
    make_ready()
    assert started == []
    assert os.environ["PYTHONUTF8"] == "1"
    assert "PYTHONIOENCODING" not in os.environ
    assert (latin.errors, utf_8.errors) == ("backslashreplace", "strict")
    latin.write("é \u2028")
    latin.flush()
    assert latin.buffer.getvalue() == b"\xe9 \\u2028"
