"""Tests that tables are read as Excel, foreign spreadsheets and programs save them."""

from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path

import pytest
from openpyxl import Workbook

from eval_factory.core.table_files import TableError, file_of_table, table_rows
from eval_factory.tasks.file_problems import merged_by_message

ROWS = [["question", "correct_answer"], ["Is it größer, or not?", "B"], ["x;y", "A"]]


def rows_of(table: Path) -> list[list[str]]:
    return [cells for _, cells in table_rows(table)]


COMMAS = 'question,correct_answer\r\n"Is it größer, or not?",B\r\nx;y,A\r\n,\r\n,\r\n'
SEMICOLONS = 'question;correct_answer\nIs it größer, or not?;B\n"x;y";A\n;\n\n'
TABS = "question\tcorrect_answer\nIs it größer, or not?\tB\nx;y\tA\n\t\n"


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\r\n1,\x81\r\n",  # neither UTF-8 nor Windows-1252
        "a,b\r\n1,2\r\n".encode("utf-16") + b"\0",
        b"\xff\xfea\0\0\xd8,\0",
    ],
)
def test_what_no_encoding_reads_is_refused_and_not_replaced(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(content)
    with pytest.raises(TableError, match="UTF-8"):
        list(table_rows(file))


@pytest.mark.parametrize("text", [COMMAS, SEMICOLONS, TABS, f"sep=;\n{SEMICOLONS}"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_of_any_spreadsheet_has_the_same_rows(
    text: str, encoding: str, tmp_path: Path
) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(text.encode(encoding))
    assert rows_of(file) == ROWS


def workbook(path: Path) -> Path:
    book = Workbook()
    first = book.active
    assert first is not None
    first.append(["other"])
    second = book.create_sheet("Sheet2")
    for row in (["id", "day", "right", None], [7.0, date(2026, 5, 4), True, None], [], ["a"]):
        second.append(row)
    second.append([None, None, None])
    book.save(path)
    return path


def test_a_sheet_of_a_workbook_is_named_behind_its_file(tmp_path: Path) -> None:
    file = workbook(tmp_path / "data.xlsx")
    assert rows_of(file) == [["other"]]
    table = file.with_name("data.xlsx#Sheet2")
    assert list(table_rows(table)) == [
        (1, ["id", "day", "right"]),
        (2, ["7", "2026-05-04", "TRUE"]),
        (4, ["a", "", ""]),
    ]
    assert file_of_table(table) == file
    with pytest.raises(TableError, match="Sheet2"):
        rows_of(file.with_name("data.xlsx#Sheet9"))


def test_what_is_no_table_says_so(tmp_path: Path) -> None:
    other = tmp_path / "other.xlsx"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(TableError, match="workbook"):
        rows_of(other)
    nul = tmp_path / "nul.csv"
    nul.write_bytes(b"a,b\n1,\0\n")
    with pytest.raises(TableError, match="NUL") as raised:
        rows_of(nul)
    assert raised.value.line == 2
    quote = tmp_path / "quote.csv"
    quote.write_text('a,b\n1,"2\n3,4\n', encoding="utf-8")
    with pytest.raises(TableError, match="quote") as raised:
        rows_of(quote)
    assert raised.value.line == 2


def test_a_problem_of_many_rows_is_said_once_with_three_of_them() -> None:
    empty = [
        f"d.csv: row {number} (line {number + 1}), column x: is empty" for number in range(1, 6)
    ]
    alone = "d.csv: row 9 (line 10), column y: is empty"
    assert merged_by_message([*empty[:2], alone, *empty[2:], "d.csv: other"]) == [
        "d.csv: rows 1, 2, 3 and 2 more, column x: is empty",
        alone,
        "d.csv: other",
    ]
