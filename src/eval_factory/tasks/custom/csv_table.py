"""The rows of a user's CSV table, read here by the check and by the run, so that both see the same cells."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

LONGEST_CELL = 2**31 - 1
_NUL = "\udc00"
"""Stands in for a NUL, which Python 3.10's csv module does not take; no UTF-8 text holds half a surrogate pair."""

_CELL = re.compile(r'("[^"]*(?:""[^"]*)*"|[^",\r\n][^,\r\n]*|)(,|\r\n?|\n)')
_LINE_BREAK = re.compile(r"\r\n?|\n")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_JSON = re.compile(r'\s*[{\[]\s*["{\[]')


class TableError(ValueError):
    """A table that cannot be read any further; no message quotes a cell."""

    def __init__(self, line: int, reason: str, *, column: int | None = None) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column
        """Index of the cell in its row, where it is one cell's fault."""


def rows_of(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of the line where it ends, cells) of the first line and of each row below it; empty lines are no rows.

    Raises:
        OSError, UnicodeDecodeError
        TableError: it is not CSV, or holds a NUL.
    """
    csv.field_size_limit(LONGEST_CELL)
    begins = 1
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.reader((line.replace("\0", _NUL) for line in opened), strict=True)
        try:
            for row in reader:
                for column, cell in enumerate(row):
                    if _NUL in cell:
                        raise TableError(reader.line_num, "holds a NUL character (a byte that is 0)", column=column)
                if begins == 1 or len(row) > 1 or any(cell.strip() for cell in row):
                    yield reader.line_num, row
                begins = reader.line_num + 1
        except csv.Error as error:
            raise _explained(file, begins, reader.line_num, error) from None


def columns_of(file: Path) -> list[str]:
    """What the first line names. Raises as `rows_of`, and TableError where there is none."""
    for _, header in rows_of(file):
        return header
    raise TableError(1, "is empty; its first line names the columns")


def rows_below(file: Path) -> Iterator[list[str]]:
    """The rows below the names of the columns. Raises as `rows_of`, and TableError where a row has other cells."""
    header: list[str] = []
    for line, row in rows_of(file):
        if not header:
            header = row
        elif len(row) != len(header):
            raise TableError(line, f"line {line} has {len(row)} cells where the first line names {len(header)} columns")
        else:
            yield row


def other_form(file: Path) -> str | None:
    """What a text that is no table with commas probably is, in words that end with what to do. Raises as `open`."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
        first = opened.readline()
        beginning = first + opened.read(100)
    if _JSON.match(beginning):
        return "is JSON, not CSV; save it as CSV, whose first line names the columns"
    if "," not in first:
        for separator, name in _SEPARATORS.items():
            if separator in first.rstrip():
                return f"its columns are separated by {name}; save it as CSV with commas"
    return None


def _explained(file: Path, begins: int, ends: int, error: csv.Error) -> TableError:
    """Where the quote stands that csv stumbled over: it knows only the line where it gave up, maybe the last one.

    Args:
        begins, ends: the lines of the row, from 1.
    """
    with file.open(encoding="utf-8-sig", newline="") as opened:
        text = "".join(islice(opened, begins - 1, ends))
    position = column = 0
    while match := _CELL.match(text, position):
        position, column = match.end(), column + 1
    if text[position : position + 1] != '"':
        return TableError(ends, f"is not CSV: {error}")
    line = begins + len(_LINE_BREAK.findall(text, 0, position))
    end = "never closed" if "unexpected end" in str(error) else f"closed on line {ends} before the cell's end"
    reason = f"the quote that opens the cell is {end}; a quote inside a cell is written twice"
    return TableError(line, reason, column=column)
