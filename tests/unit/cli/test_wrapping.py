"""Lines that fit a screen."""

from __future__ import annotations

import io
import os
import re

import pytest

from eval_factory.cli import task_listing
from eval_factory.cli.console import columns, show_table, wrapped
from eval_factory.tasks.framework import load_framework


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]), ("", [""]), ("x" * 20, ["x" * 20]),
        ("one two three four five", ["one two three four", "    five"]),
        ("  note: one two three", ["  note: one two", "      three"]),
        ("one two  three four five six seven", ["one two  three four", "    five six seven"]),
        ("one two three four\n  five", ["one two three four", "  five"]),
        ("x" * 41, ["x" * 16, "    " + "x" * 16, "    " + "x" * 9]),
        ("see /a/path/that/is/longer/than/this", ["see", "    /a/path/that/is/longer/than/this"]),
        ("  results: /a/path/that/is/longer", ["  results: /a/path/that/is/longer"]),
        ("a score is 0.5  (0.1 .. 0.9)", ["a score is 0.5", "    (0.1 .. 0.9)"]),
        ("some (in 5 of all), of (9 of them were here)", ["some (in 5 of all),", "    of (9 of them", "    were here)"]),
        ("中文中文中文中 文中文", ["中文中文中文中", "    文中文"]), ("中文中文中文中文中文", ["中文中文中文中文中文"]),
    ],
)  # fmt: skip
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


def test_what_is_left_out_is_said_or_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a wider terminal shows: instances, data size, public since" in shown(80, monkeypatch)
    wide = shown(200, monkeypatch)
    assert wide[0].split() == " ".join(COLUMNS).split()
    assert not [line for line in wide if "a wider terminal" in line]
    lines = shown(40, monkeypatch)
    assert lines[:3] == ["medcalc_bench", "  Medical calculations from a patient", "  note and a question"]
