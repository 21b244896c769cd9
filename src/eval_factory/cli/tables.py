"""Tables for a terminal of any width: names stay whole, so that they can be copied."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, TextIO

NUMBERS = frozenset({"instances", "data size", "size"})
FOLDED = frozenset({"what it measures", "parameters", "needs", "where"})
"""Columns whose cells are broken into lines; all others are shown whole, or not at all."""

LEAST_FOLDED = 20
"""Characters in a line of such a column."""

_TEXT = "what it measures"
_GAP = 2


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], file: TextIO | None = None) -> None:
    """The first column names things. Where the terminal is too narrow, columns are left out, the last one first, and
    below that what is left stands under each name.

    rich is imported only here: it costs a tenth of a second.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    console = Console(file=file or sys.stdout, highlight=False)
    widths = [_least_width(name, [row[number] for row in rows]) for number, name in enumerate(columns)]
    shown = columns_that_fit(columns, widths, console.width)
    if not shown:
        _show_below_each_other(columns, rows, console.width, console.file)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number in shown:
        name = columns[number]
        right = name in NUMBERS
        table.add_column(name, justify="right" if right else "left", overflow="fold", min_width=widths[number])
    for row in rows:
        table.add_row(*(Text(row[number]) for number in shown))
    console.print(table)
    left_out = [name for number, name in enumerate(columns) if number not in shown]
    if left_out:
        console.print(Text(f"a wider terminal shows: {', '.join(left_out)}", style="dim"))


def _least_width(name: str, cells: Iterable[str]) -> int:
    longest = max((len(line) for cell in (name, *cells) for line in cell.splitlines()), default=0)
    return min(longest, LEAST_FOLDED) if name in FOLDED else longest


def columns_that_fit(columns: Sequence[str], widths: Sequence[int], available: int) -> list[int]:
    """The numbers of the columns to show; none where not even the names and the text about them fit."""
    text = _text_column(columns)
    shown = list(range(len(columns)))
    while sum(widths[number] for number in shown) + _GAP * (len(shown) - 1) > available:
        spare = [number for number in shown if number not in (0, text)]
        if not spare:
            return []
        shown.remove(spare[-1])
    return shown


def _text_column(columns: Sequence[str]) -> int:
    """The column that stays with the names."""
    if _TEXT in columns:
        return columns.index(_TEXT)
    return next((number for number, name in enumerate(columns) if name in FOLDED), len(columns) - 1)


def _show_below_each_other(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int, file: IO[str]) -> None:
    text = _text_column(columns)
    for row in rows:
        lines = textwrap.wrap(row[text], max(width, LEAST_FOLDED), initial_indent="  ", subsequent_indent="  ")
        file.writelines(f"{line}\n" for line in (row[0], *lines))
