"""Reads a user's table: the rows of a CSV file or of a sheet of an Excel workbook.

A CSV file may be UTF-8, UTF-16 or Windows-1252, with commas, semicolons or tabs between its cells,
and may begin with Excel's line `sep=;`. `data.xlsx#Sheet2` names a sheet; by default the first
sheet is read.
"""

from __future__ import annotations

import codecs
import csv
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any

from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, open_regular

DELIMITERS = (",", ";", "\t")  # the first delimiter is chosen if two are equally frequent
MAX_CELL_LENGTH = 2**31 - 1  # in characters; csv's own limit of 131,072 is too small for notes
WINDOWS_ENCODING = "cp1252"
_WORKBOOK = b"PK\x03\x04"  # the first bytes of a ZIP archive
_SHEET_OF = ".xlsx#"  # the part of a path between the file's name and the sheet's name
_CHUNK = 1 << 20  # in bytes
_NUL = "\udc00"
"""A placeholder for a NUL, which Python 3.10's csv module rejects. A decoded text cannot contain
this character, which is a lone surrogate.
"""


class TableError(ValueError):
    """A table that cannot be read; its message never quotes a cell."""

    def __init__(self, line: int, reason: str) -> None:
        """Take the number of the line with the problem, and the message."""
        super().__init__(reason)
        self.line = line


def file_of_table(table: Path) -> Path:
    """Return the path of a table's file: `data.xlsx` for `data.xlsx#Sheet2`."""
    name, sheet = _file_and_sheet(table)
    return table.with_name(name) if sheet else table


def table_rows(table: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the row's last line, cells) for each row; the first row has the titles.

    Empty rows below the first row are skipped. Raises OSError and TableError.
    """
    file = file_of_table(table)
    if is_workbook(file):
        yield from _rows_of_workbook(file, _file_and_sheet(table)[1])
        return
    with open_regular(file) as opened:
        encoding = encoding_of(opened)
        opened.seek(0)
        text = io.TextIOWrapper(opened, encoding=encoding, newline="")
        number = 1
        try:
            for number, row in _rows_of_text(text):
                yield number, row
        # `encoding_of` does not test UTF-16, and Windows-1252 does not define all bytes.
        except UnicodeDecodeError:
            raise TableError(
                number, f"a row from here on is not {encoding}: save the file as UTF-8"
            ) from None


def is_workbook(file: Path) -> bool:
    """Return True if a file begins like an Excel workbook (or another ZIP archive)."""
    with open_regular(file) as opened:
        return opened.read(len(_WORKBOOK)) == _WORKBOOK


def encoding_of(opened: IO[bytes]) -> str:
    """Return the encoding of a table: UTF-16 if it has a byte-order mark, UTF-8 if all of it can be
    decoded, else Windows-1252.

    UTF-16 is not decoded here. Raises TableError if any other table contains a NUL or is too large.
    """
    beginning = opened.read(2)
    opened.seek(0)
    if beginning in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    encoding = "utf-8-sig"
    size = 0
    line = 1
    while chunk := opened.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES_OF_TABLE:
            raise TableError(line, f"is larger than {MAX_BYTES_OF_TABLE >> 20} MiB")
        if b"\0" in chunk:
            line += chunk[: chunk.index(b"\0")].count(b"\n")
            raise TableError(line, "holds a NUL character (a byte that is 0)")
        line += chunk.count(b"\n")
        if encoding == WINDOWS_ENCODING:
            continue  # The rest is read to check its size and to find a NUL.
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError:
            encoding = WINDOWS_ENCODING
    if encoding != WINDOWS_ENCODING:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            encoding = WINDOWS_ENCODING
    return encoding


def _rows_of_text(text: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV text, as `table_rows` does."""
    csv.field_size_limit(MAX_CELL_LENGTH)
    first = text.readline()
    lines_before = 0  # 1 if the file begins with `sep=`
    stated_delimiter = None
    if first.lower().startswith("sep="):
        stated_delimiter = first[len("sep=") :].strip("\r\n") or ","  # the line may be only `sep=`
        lines_before = 1
        first = text.readline()
    delimiter = stated_delimiter or max(DELIMITERS, key=first.count)
    lines = (line.replace("\0", _NUL) for line in _chained(first, text))
    # `[0]`: csv accepts one character only, and the line `sep=` may have more.
    reader = csv.reader(lines, delimiter=delimiter[0], strict=True)
    first_line_of_row = lines_before + 1
    try:
        for row in reader:
            line = reader.line_num + lines_before
            if any(_NUL in cell for cell in row):  # in UTF-16: `encoding_of` refuses other tables
                raise TableError(line, "holds a NUL character (a byte that is 0)")
            is_first_row = first_line_of_row == lines_before + 1
            if is_first_row or any(cell.strip() for cell in row):
                yield line, row
            first_line_of_row = line + 1
    except csv.Error as error:
        # The error has the line where csv stopped, which may be the last line of the file: report
        # the first line of the row instead.
        hint = (
            "a quote that opens a cell is not closed, or a quote inside a cell is not written twice"
        )
        raise TableError(
            first_line_of_row, f"the row that begins here is not CSV ({error}): {hint}"
        ) from None


def _chained(first: str, rest: Iterable[str]) -> Iterator[str]:
    """Yield the first line, if it is not empty, and the other lines."""
    if first:
        yield first
    yield from rest


# the exceptions of reading a damaged workbook; lxml's exceptions are SyntaxErrors
_NO_WORKBOOK = (
    zipfile.BadZipFile,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    SyntaxError,
    EOFError,
    zlib.error,
    NotImplementedError,
)


def _rows_of_workbook(file: Path, sheet: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a sheet, as `table_rows` does; "" is the first sheet."""
    from openpyxl import load_workbook  # only here: few tables need this slow import

    try:
        with open_regular(file) as opened:
            _refuse_large(opened)
            book = load_workbook(opened, read_only=True, data_only=True)
            if sheet and sheet not in book.sheetnames:
                sheets = ", ".join(book.sheetnames)
                raise TableError(line=1, reason=f"has no sheet {sheet!r}; its sheets are {sheets}")
            rows = (book[sheet] if sheet else book.worksheets[0]).iter_rows(values_only=True)
            width = 0  # the number of columns with a title; 0 before the first row
            for number, values in enumerate(rows, start=1):
                cells = [_cell(value) for value in values]
                if not any(cell.strip() for cell in cells):
                    continue
                if width == 0:  # the first row has the titles
                    while not cells[-1].strip():
                        cells.pop()  # empty cells after the last title
                    width = len(cells)
                # Cells beyond the titles stay if they have a text: the caller reports them.
                extra = [cell for cell in cells[width:] if cell.strip()]
                missing = [""] * (width - len(cells))  # empty if the row is not too short
                yield number, [*cells[:width], *missing, *extra]
    except TableError:
        raise
    except _NO_WORKBOOK as error:
        raise TableError(
            line=1, reason=f"is not a workbook that can be read ({type(error).__name__})"
        ) from None


def _refuse_large(opened: IO[bytes]) -> None:
    """Raise TableError if a workbook is too large after unpacking."""
    with zipfile.ZipFile(opened) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_BYTES_OF_TABLE:
        too_large = f"is larger than {MAX_BYTES_OF_TABLE >> 20} MiB, unpacked"
        raise TableError(line=1, reason=too_large)
    opened.seek(0)


def _cell(value: Any) -> str:
    """Return the value of a workbook's cell as text, in the form that a person types: `3`, not
    `3.0`.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():  # at midnight: only a date
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _file_and_sheet(table: Path) -> tuple[str, str]:
    """Return (name of the file, name of the sheet); the sheet is "" if the path names none."""
    name = table.name
    start = name.lower().find(_SHEET_OF)
    if start < 0:
        return name, ""
    end = start + len(_SHEET_OF)
    return name[: end - 1], name[end:]  # neither part has the `#`
