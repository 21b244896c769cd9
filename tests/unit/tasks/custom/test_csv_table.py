"""Tests of what is read of a table: the cells that were written, and where it stops being one."""

from __future__ import annotations

import csv
import gzip
import string
from pathlib import Path

import pytest

from eval_factory.core.table_files import TableError
from eval_factory.tasks.custom_table import becomes_nothing
from eval_factory.tasks.file_problems import kind_problem, rows_below, table_columns
from facts import naming

SOUND = [
    ["q", "a"],
    ["007", "None"],
    ["a,b", 'say "A"'],
    ["one\r\ntwo\rthree\nfour", " x "],
    ["", "NA"],
    ['"', ""],
    ["ü", "1.10"],
]


@pytest.mark.parametrize("terminator", ["\n", "\r\n", "\r"])
def test_cells_are_as_written(tmp_path: Path, terminator: str) -> None:
    file = tmp_path / "data.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened, lineterminator=terminator * 2).writerows(SOUND)
    assert (table_columns(file), list(rows_below(file))) == (SOUND[0], SOUND[1:])


def test_a_row_with_other_cells_is_not_read_nor_an_empty_table(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("q,a\n1,2\n1\n")
    with pytest.raises(TableError, match=naming("line 3", "1 cells", "2 columns")):
        list(rows_below(file))
    file.write_text("")
    with pytest.raises(TableError, match=naming("is empty", "the first line")):
        table_columns(file)
    assert list(rows_below(file)) == []


SHEET = "text; save it as 'CSV UTF-8' (a prompt: as plain text in UTF-8)"
UTF_8 = "UTF-8; save it as UTF-8 (or: iconv -f utf-16 -t utf-8)"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04rest", f"is an Excel or Word file or another ZIP archive, not {SHEET}"),
        (b"\xd0\xcf\x11\xe0rest", f"is an Excel or Word file, not {SHEET}"),
        (b"PAR1rest", f"is a Parquet file, not {SHEET}"),
        (gzip.compress(b"a,b", mtime=0), "is compressed by gzip, not text; unpack it first"),
        ("a,b".encode("utf-16-le"), None),
        (b"\xff\xfea\0", f"is UTF-16, not {UTF_8}"),
        (b"\xfe\xff\0a", f"is UTF-16, not {UTF_8}"),
        (b"xPK\x03\x04", None),
        (b"", None),
    ],
)
def test_a_file_of_another_kind_is_known_by_its_first_bytes(
    content: bytes, kind: str | None, tmp_path: Path
) -> None:
    (tmp_path / "data.csv").write_bytes(content)
    assert kind_problem(tmp_path / "data.csv") == kind


NOTHING = (
    "A",
    "a",
    " An ",
    "the",
    "The A.",
    "(A)",
    "a-n",
    "t.h.e",
    "--",
    "",
    " \n",
    "A a the",
    string.punctuation,
)
SOMETHING = ("B", "as", "A1", "+1", "±", "A_b", "Ä", "\uff41", "the end", "Athe")


@pytest.mark.parametrize("answer", [*NOTHING, *SOMETHING])
def test_articles_and_punctuation_are_nothing(answer: str) -> None:
    """The rule alone; that it is HELM's is shown in tests/helm."""
    assert becomes_nothing(answer) is (answer in NOTHING)
