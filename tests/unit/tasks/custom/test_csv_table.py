"""What is read of a table: the cells that were written, and where it stops being one."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from eval_factory.tasks.file_problems import TableError, rows_below, table_columns, table_rows

SOUND = [
    ["q", "a"], ["007", "None"], ["a,b", 'say "A"'], ["one\r\ntwo\rthree\nfour", " x "], ["", "NA"], ['"', ""], ["ü", "1.10"],
]  # fmt: skip


@pytest.mark.parametrize("terminator", ["\n", "\r\n", "\r"])
def test_cells_are_as_written(tmp_path: Path, terminator: str) -> None:
    file = tmp_path / "data.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened, lineterminator=terminator * 2).writerows(SOUND)
    assert (table_columns(file), list(rows_below(file))) == (SOUND[0], SOUND[1:])


def test_a_row_with_other_cells_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("q,a\n1,2\n1\n")
    with pytest.raises(TableError, match="line 3 has 1 cells where the first line names 2 columns"):
        list(rows_below(tmp_path / "data.csv"))


def test_an_empty_table_names_no_columns(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("")
    with pytest.raises(TableError, match="is empty; its first line names the columns"):
        table_columns(tmp_path / "data.csv")
    assert list(rows_below(tmp_path / "data.csv")) == []


def test_the_line_of_a_fault_is_where_its_quote_opens(tmp_path: Path) -> None:
    """A stray quote in a sound table of cells on several lines, anywhere that opens one."""
    rng = random.Random(3)  # noqa: S311 - any tables do
    file = tmp_path / "data.csv"
    for _ in range(100):
        rows = [
            ['"' + rng.choice(["a", 'b""c', "d\ne", "f,g", "h\r\n\r\ni"]) + '"' for _ in range(3)] for _ in range(6)
        ]
        row, column = rng.randrange(1, 6), rng.randrange(3)
        rows[row][column] = '"stray'
        text = "\n".join(",".join(cells) for cells in rows)
        file.write_bytes(text.encode())
        with pytest.raises(TableError, match="the quote that opens the cell is") as raised:
            list(table_rows(file))
        before = text[: text.index('"stray')].replace("\r\n", "\n")
        assert (raised.value.line, raised.value.column) == (before.count("\n") + 1, column)
