"""Finds the problems of a user's files, writes the messages about them, and reads tables.

The check before a run and the run itself both read tables with this module, so both get the same
cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from eval_factory.core import safe_files
from eval_factory.core.formats import counted
from eval_factory.core.safe_files import open_regular, open_text
from eval_factory.core.table_files import (
    DELIMITERS,
    WINDOWS_ENCODING,
    TableError,
    encoding_of,
    file_of_table,
    is_workbook,
    table_rows,
)

Row = TypeVar("Row")

_NOT_TEXT = "not text; save it as 'CSV UTF-8' (a prompt: as plain text in UTF-8)"
_UTF_16 = "is UTF-16, not UTF-8; save it as UTF-8 (or: iconv -f utf-16 -t utf-8)"
_KIND_MESSAGES = {
    b"PK\x03\x04": f"is an Excel or Word file or another ZIP archive, {_NOT_TEXT}",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"\xd0\xcf\x11\xe0": f"is an Excel or Word file, {_NOT_TEXT}",
    b"PAR1": f"is a Parquet file, {_NOT_TEXT}",
    b"\x1f\x8b": "is compressed by gzip, not text; unpack it first",
}
"""Dict from the first bytes of a file that is not text to the message, with the remedy."""

MAX_PROBLEMS_SHOWN = 10  # the maximum number of problems that are listed for one file


def first_problems(problems: Sequence[str], label: str = "", inside: str = "it") -> list[str]:
    """Return the first problems, and a line with the number of further problems.

    Args:
        problems: a message for each problem.
        label: the beginning of the last line, such as `FILE: `.
        inside: the end of the last line, such as `its rows` in `3 more mistakes in its rows`.
    """
    lines = list(problems[:MAX_PROBLEMS_SHOWN])
    number_left = len(problems) - len(lines)
    if number_left:
        lines.append(f"{label}{counted(number_left, 'more mistake')} in {inside}")
    return lines


@dataclass
class Findings:
    """The problems of a user's files, which stop a run, and the notes, which do not."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class ReadFile(Generic[Row]):
    """The rows of a file, and the problems of the file, each with its line or row."""

    rows: list[Row] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # the line number of each row (JSON lines only)
    problems: list[str] = field(default_factory=list)
    left_out: int = 0  # the number of skipped rows, which do not belong to the benchmark

    @contextmanager
    def reading(
        self,
        path: Path,
        *,
        empty: str,
        wrong_form: str = "",
        form_errors: tuple[type[Exception], ...] = (),
    ) -> Iterator[None]:
        """Add a problem if the block of the `with` statement reads no rows or raises an exception.

        Only UnicodeDecodeError and `form_errors` become problems. Other exceptions are not caught.

        Args:
            path: the path of the file that the block reads.
            empty: the message for a file without rows.
            wrong_form: the beginning of the message for a file that does not have the required
                form, such as `is not a CSV file`.
            form_errors: the exceptions that are reported with `wrong_form`.
        """
        try:
            yield
        except UnicodeDecodeError:
            self.problems.append(not_utf8(path))
        except form_errors as error:
            self.problems.append(f"{wrong_form}: {error}")
        if not self.rows and not self.problems:
            self.problems.append(empty)

    def all_or_none(self, name: str, values: Sequence[object], ending: str) -> None:
        """Add a problem if some rows have a value and other rows do not.

        An example: `line 3: id: is missing, and 7 other lines have one`.

        Args:
            name: the name of the field (`id` in the example).
            values: the value of each row; None for a row without a value.
            ending: the end of the message (`lines have one` in the example).
        """
        count = sum(value is not None for value in values)
        if 0 < count < len(values):
            line = self.lines[values.index(None)]
            self.problems.append(f"line {line}: {name}: is missing, and {count} other {ending}")


def read_text(path: Path, called: str, named_in: Path, findings: Findings) -> str | None:
    """Return the text of a prompt's file.

    If the file cannot be read, None is returned, and a problem is added to `findings`.

    Args:
        path: the path of the file.
        called: what messages call the file, such as the key that names the file.
        named_in: the user's file that names this file.
        findings: receives the problem.
    """
    try:
        text = safe_files.read_text(path)
    except OSError as error:
        problem = why_unreadable(error, called, named_in)
    except UnicodeDecodeError:
        problem = not_utf8(path)
    else:
        if "\0" in text:
            line = line_number_of(text, "\0")
            problem = f"line {line}: holds a NUL character (a byte that is 0)"
        elif text.startswith("\ufeff"):
            problem = (
                "begins with a byte order mark, which would become part of the prompt; "
                "save as UTF-8 without one"
            )
        else:
            return text
    findings.problems.append(f"{path}: {problem}")
    return None


def line_number_of(text: str, part: str) -> int:
    """Return the number of the line in which a part of the text begins; 1 if it does not occur."""
    position = max(text.find(part), 0)  # `find` returns -1 if the part does not occur
    return text.count("\n", 0, position) + 1


def why_unreadable(error: OSError, called: str, named_in: Path) -> str:
    """Return the message for a file that cannot be opened; arguments as in `read_text`."""
    if isinstance(error, FileNotFoundError):
        return (
            f"there is no such file; {named_in} names it as {called} "
            f"(relative to the folder of {named_in.name})"
        )
    return f"cannot be read: {error.strerror} ({named_in} names it as {called})"


def kind_problem(path: Path) -> str | None:
    """Return the message for a file that is not text, such as a gzip file, with the remedy.

    Only the first bytes of the file are compared. Returns None if they are not in `_KIND_MESSAGES`.
    """
    with open_regular(path) as file:
        beginning = file.read(8)
    for first_bytes, message in _KIND_MESSAGES.items():
        if beginning.startswith(first_bytes):
            return message
    return None


def not_utf8(path: Path) -> str:
    """Return the message for a file that could not be decoded as UTF-8, with the remedy."""
    problem = kind_problem(path)
    if problem:
        return problem
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                remedy = "save the file as UTF-8 (of a latin-1 file: iconv -f latin1 -t utf-8)"
                return f"line {number}: is not UTF-8; {remedy}"
    return "is not UTF-8"


# the beginning of JSON: `{"id"`, `[{` or `["B"`
_JSON_BEGINNING = re.compile(r'\s*[{\[]\s*["{\[]')


def table_problem(table: Path) -> str | None:
    """Return the reason why a file is not a readable table; None if its beginning shows no reason.

    `table` is the path of the file; in a workbook it may also name a sheet (`data.xlsx#Sheet2`).
    Workbooks are not checked here. Raises OSError and TableError.
    """
    file = file_of_table(table)
    if is_workbook(file):
        return None
    with open_regular(file) as opened:
        # `kind_problem` would reject UTF-16, which prompts must not have, but tables may.
        if encoding_of(opened) == "utf-16":
            return None
    return kind_problem(file) or form_problem(file)


def encoding_note(table: Path) -> str | None:
    """Return a note if the encoding of a table was guessed; None otherwise.

    Raises OSError and TableError.
    """
    file = file_of_table(table)
    if is_workbook(file):
        return None
    with open_regular(file) as opened:
        if encoding_of(opened) != WINDOWS_ENCODING:
            return None
    return (
        f"{file.name} is not UTF-8: it was read as Windows-1252; check that accents and umlauts "
        "are right"
    )


# matches the problem of one row, such as `data.csv: row 3 (line 4): is empty`
_ROW = re.compile(r"(?P<file>.*: )row (?P<row>\d+) \(line \d+\)(?P<problem>.*)", re.DOTALL)
MAX_ROWS_NAMED = 3  # the maximum number of rows in one merged line


def merged_by_message(problems: Sequence[str]) -> list[str]:
    """Return the problems, with one line for all rows that have the same problem.

    A line names up to `MAX_ROWS_NAMED` rows. Lines have the order of their first rows.
    """
    # Problems with equal keys are merged. A problem that names no row has its text as the key.
    merged: dict[tuple[str, str] | str, list[str]] = {}
    for problem in problems:
        match = _ROW.fullmatch(problem)
        key = problem if match is None else (match["file"], match["problem"])
        merged.setdefault(key, []).append(problem)
    return [_merged_line(equal_problems) for equal_problems in merged.values()]


def _merged_line(problems: Sequence[str]) -> str:
    """Return one line for equal problems of several rows; a single problem is not changed."""
    matches = [match for match in map(_ROW.fullmatch, problems) if match is not None]
    if len(matches) < 2:
        return problems[0]
    numbers = [match["row"] for match in matches]
    rows = ", ".join(numbers[:MAX_ROWS_NAMED])
    if len(numbers) > MAX_ROWS_NAMED:
        rows += f" and {len(numbers) - MAX_ROWS_NAMED} more"
    return f"{matches[0]['file']}rows {rows}{matches[0]['problem']}"


def table_columns(file: Path) -> list[str]:
    """Return the names of the columns, from the first line. Raises OSError, and TableError if the
    file is empty or not a readable table.
    """
    for _, header in table_rows(file):
        return header  # only the first row is read
    raise TableError(line=1, reason="is empty; the first line must name the columns")


def rows_below(file: Path) -> Iterator[list[str]]:
    """Yield the cells of each row below the names of the columns.

    Raises OSError, and TableError if the file is not a readable table or if a row does not have one
    cell for each column.
    """
    header: list[str] = []
    for line, row in table_rows(file):
        if not header:
            header = row
        elif len(row) != len(header):
            raise TableError(
                line,
                f"line {line} has {len(row)} cells, but the first line names {len(header)} columns",
            )
        else:
            yield row


def form_problem(file: Path) -> str | None:
    """Return the message for a text that is probably JSON or a table with `|`, with the remedy.

    Returns None for other texts. Raises OSError if the file cannot be read.
    """
    with open_text(file, encoding="utf-8-sig", errors="replace", newline="") as opened:
        first = opened.readline()
        beginning = first + opened.read(100)
    if _JSON_BEGINNING.match(beginning):
        return "is JSON, not CSV; save it as CSV, whose first line names the columns"
    has_delimiter = any(delimiter in first for delimiter in DELIMITERS)
    if "|" in first and not has_delimiter:
        return "its columns are separated by bars; save it as CSV with commas"
    return None
