"""What a terminal of any width shows."""

from __future__ import annotations

import io
import re

import pytest

from eval_factory.cli import task_listing
from eval_factory.cli.console import columns_that_fit, show_table
from eval_factory.tasks.framework import load_framework

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


@pytest.mark.parametrize(
    ("available", "expected"),
    [(57, [0, 1, 2, 3]), (56, [0, 1, 2]), (39, [0, 1, 2]), (38, [0, 2]), (32, [0, 2]), (31, [])],
)
def test_columns_that_fit(available: int, expected: list[int]) -> None:
    columns, widths = ("task", "access", "what it measures", "source"), (10, 5, 20, 16)
    assert columns_that_fit(columns, widths, available) == expected
