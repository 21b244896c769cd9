"""Sheets of raters as CSV, written and read again."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from eval_factory.analysis import annotation_sheets as sheets
from eval_factory.analysis.annotation_sheets import (
    _CUT,
    _MAX_CELL,
    BOM,
    ReturnedRatings,
    csv_sheet,
    read_returns,
    sheet_cell,
)
from eval_factory.core.annotations import (
    YES_NO,
    AnswerKey,
    Question,
    Rating,
    RatingChoice,
    SampledAnswer,
    ShownAnswer,
)
from facts import each_says
from hostile_texts import ODD, payloads
from unit.core.test_annotations import ANSWER, SAMPLE

FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20|%"


def shown(answer: str = "a", question: str = "q") -> ShownAnswer:
    turns = (("user", question), ("assistant", "b"))
    questions = (Question("first"), Question("=second"))
    return ShownAnswer(AnswerKey("secret-id", 0), turns, answer, ("ref",), questions, "digest")


@pytest.mark.parametrize("sign", FORMULAS)
def test_a_cell_is_no_formula(sign: str) -> None:
    assert sheet_cell(f"{sign}1+1") == f"'{sign}1+1"
    assert sheet_cell(f' "{sign}1') == f"' \"{sign}1"
    assert sheet_cell(f"so; {sign}1;x") == f"so;' {sign}1;x"
    assert sheet_cell(f"a {sign} b, c") == f"a {sign} b, c"


def test_a_cell_is_one_line() -> None:
    assert sheet_cell("a\r\n\r\n=b\tc\u2028d") == "a \u23ce =b c \u23ce d"
    assert sheet_cell("\n=b") == " \u23ce =b"
    assert all(sheet_cell(f"x{odd}y").isprintable() for odd in ODD.values())
    assert sheet_cell("x" * _MAX_CELL) == "x" * _MAX_CELL
    assert sheet_cell("x" * (_MAX_CELL + 1)) == "x" * _MAX_CELL + _CUT


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_no_cell_begins_as_a_formula_however_it_is_read(delimiter: str) -> None:
    """Also by a program that takes the semicolon for the end of a cell."""
    for text in [
        *payloads("http://127.0.0.1:9").values(),
        *(f'x;{sign}1\n{sign}2;"{sign}3' for sign in FORMULAS),
    ]:
        made = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown(text, text)}, with_reference=True)
        rows = list(
            csv.reader(io.StringIO(made.removeprefix(BOM), newline=""), delimiter=delimiter)
        )
        assert not [
            one
            for one in chain.from_iterable(rows)
            if one.lstrip(" \"'\t")[:1] in tuple(FORMULAS) and one[0] != "'"
        ]


def test_the_rows_of_a_sheet() -> None:
    made = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown()}, with_reference=True)
    assert made.startswith(BOM)
    rows = list(csv.reader(io.StringIO(made.removeprefix(BOM), newline="")))
    assert rows == [
        list(sheets.COLUMNS),
        [
            "sheet",
            "1",
            "bcdfg",
            "1",
            "user: q \u23ce assistant: b",
            "a",
            "ref",
            "first",
            "yes / no",
            "",
            "",
        ],
        ["sheet", "1", "bcdfg", "2", "", "", "", "second", "yes / no", "", ""],
    ]
    assert ("secret-id" in made, "digest" in made) == (False, False)
    assert sheets.prompt_text([("user", "hi")]) == "hi", "one turn is shown without a role"
    without = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown()}, with_reference=False)
    assert "ref," not in without


FIVE = tuple(RatingChoice(float(one), str(one)) for one in range(1, 6))
ALONE = SampledAnswer("qrstv", AnswerKey("b", 0), "b" * 64, 0, 0.5, (Question("alone"),))
SHEET = replace(SAMPLE, choices=FIVE, answers=(ANSWER, ALONE))
HEAD = "sheet,rater,item,number,rating,comment\n"


def returned(tmp_path: Path, *texts: str | bytes) -> ReturnedRatings:
    files = [tmp_path / f"r{number}.csv" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_returns(files, {"sheet": SHEET}, Path("out"))


def rating(
    code: str = "bcdfg", number: int = 1, value: float = 4.0, rater: str = "1", comment: str = ""
) -> Rating:
    return Rating("sheet", code, number, rater, value, comment)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "sheet,1,bcdfg,1,4,\n",
        HEAD.encode("utf-8-sig") + b"sheet,1,bcdfg,1,4.0,\r\n",
        HEAD.replace(",", ";") + "sheet;1;BCDFG;1;4,0;\n",
        "sep=;\n" + HEAD.replace(",", ";") + "sheet;1;bcdfg;1;4;\n",
        (HEAD + "sheet,1,bcdfg,1,4,\n").replace(",", "\t").encode("utf-16"),
        'Rating , ITEM,rater,number,sheet,question\n4,bcdfg,1,1.0,sheet,"a\nb"\n\n,,,,,\n',
        HEAD + "sheet,1,bcdfg,1, 4 \n",
        HEAD + "sheet,1,bcdfg,1,4,\nsheet,1,bcdfg,1,4.0,\n",
    ],
)
def test_however_a_program_saved_it(tmp_path: Path, text: str | bytes) -> None:
    assert returned(tmp_path, text) == ReturnedRatings([rating()])


def test_partial_returns_of_several_raters(tmp_path: Path) -> None:
    found = returned(
        tmp_path,
        HEAD + "sheet,1,bcdfg,1,4,\nsheet,1,bcdfg,2,,\nsheet,1,qrstv,,2,\n",
        (HEAD + "sheet,B\u00e4r,bcdfg,1,5,sch\u00f6n\n").encode("cp1252"),
    )
    assert found.ratings == [
        rating(),
        rating("qrstv", 1, 2.0),
        rating(value=5.0, rater="B\u00e4r", comment="sch\u00f6n"),
    ]
    assert (found.empty, found.faults) == (1, [])


@pytest.mark.parametrize(
    ("row", "column", "said"),
    [
        (
            "other,1,bcdfg,1,4,",
            "sheet",
            "'other' is not a sheet that was exported from out (known: sheet)",
        ),
        (",1,bcdfg,1,4,", "sheet", "'' is not a sheet that was exported from out (known: sheet)"),
        ("sheet,1,zzzzz,1,4,", "item", "'zzzzz' is not an item of sheet sheet"),
        ("sheet,,bcdfg,1,4,", "rater", "write who rated, in 1 to 80 characters"),
        (f"sheet,{'x' * 81},bcdfg,1,4,", "rater", "write who rated, in 1 to 80 characters"),
        (
            "sheet,1,bcdfg,3,4,",
            "number",
            "'3' is not a question about bcdfg: its questions have the numbers 1 to 2",
        ),
        (
            "sheet,1,bcdfg,0,4,",
            "number",
            "'0' is not a question about bcdfg: its questions have the numbers 1 to 2",
        ),
        (
            "sheet,1,bcdfg,,4,",
            "number",
            "'' is not a question about bcdfg: its questions have the numbers 1 to 2",
        ),
        (
            "sheet,1,bcdfg,-1,4,",
            "number",
            "'-1' is not a question about bcdfg: its questions have the numbers 1 to 2",
        ),
        ("sheet,1,bcdfg,1,6,", "rating", "'6' is not on the scale: 1, 2, 3, 4, 5"),
        ("sheet,1,bcdfg,1,4.5,", "rating", "'4.5' is not on the scale: 1, 2, 3, 4, 5"),
        (
            "sheet,1,bcdfg,1,good\x1b[31m,",
            "rating",
            "'good\\x1b[31m' is not on the scale: 1, 2, 3, 4, 5",
        ),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, column: str, said: str) -> None:
    found = returned(tmp_path, HEAD + "sheet,1,qrstv,1,2,\n" + row + "\n")
    assert found.faults == [f"{tmp_path / 'r0.csv'}: row 3, column {column}: {said}"]


def test_everything_that_is_wrong_is_listed(tmp_path: Path) -> None:
    found = returned(
        tmp_path,
        HEAD + "sheet,,bcdfg,9,9,\nsheet,1,bcdfg,1,4,\n",
        HEAD + "sheet,1,bcdfg,1,3,\n",
        "item,rating\n",
        b"PK\0\3",
    )
    first, second, third, fourth = (str(tmp_path / f"r{number}.csv") for number in range(4))
    each_says(
        found.faults[:3],
        [f"{first}: row 2", "column rater", "1 to 80 characters"],
        ["row 2", "column number", "'9'", "bcdfg", "1 to 2"],
        ["row 2", "column rating", "'9'", "1, 2, 3, 4"],
    )
    each_says(
        found.faults[3:],
        [f"{second}: row 2", "column rating", "rater 1", "bcdfg", f"row 3 of {first}"],
        [f"{third}: row 1", "no column sheet", "rater, number"],
        [f"{fourth}: ", "NUL character"],
    )


@pytest.mark.parametrize("name", ["rating", "Rating ", "comment"])
def test_two_columns_of_one_name(name: str, tmp_path: Path) -> None:
    """Which of them is the rating nobody knows."""
    head = HEAD.rstrip("\n") + f",{name}\n"
    found = returned(tmp_path, head + "sheet,1,qrstv,1,2,,4\n")
    (fault,) = found.faults
    assert "row 1: columns" in fault
    assert name.strip().lower() in fault
    assert found.ratings == []


def test_a_row_with_more_cells_than_columns(tmp_path: Path) -> None:
    """A comma without quotes: which cell is which nobody knows."""
    found = returned(tmp_path, HEAD + "sheet,1,qrstv,1,2,well, good\n")
    (fault,) = found.faults
    assert "row 2" in fault
    assert found.ratings == []
    assert returned(tmp_path, HEAD + "sheet,1,qrstv,1,2,well,,\n").faults == []


def test_a_sheet_is_a_regular_file_that_is_not_too_large(tmp_path: Path) -> None:
    none, large, pipe = (tmp_path / f"{name}.csv" for name in ("none", "large", "pipe"))
    with large.open("wb") as file:
        file.truncate(sheets._MAX_FILE_SIZE + 1)
    os.mkfifo(pipe)
    each_says(
        read_returns([none, large, pipe, Path("/dev/zero")], {}, Path("out")).faults,
        [f"{none}: ", "No such file"],
        [f"{large}: ", "64 MiB"],
        [f"{pipe}: ", "not a regular file"],
        ["/dev/zero: ", "not a regular file"],
    )


QUARTERS = (RatingChoice(0.25, "0.25"), RatingChoice(0.5, "0.5"))


@pytest.mark.parametrize(
    ("text", "scale", "value"),
    [
        ("yes", YES_NO, 1),
        ("No", YES_NO, 0),
        ("1", YES_NO, 1),
        ("0.0", YES_NO, 0),
        ("TRUE", YES_NO, 1),
        ("n", YES_NO, 0),
        ("met", YES_NO, 1),
        ("not met", YES_NO, 0),
        ("2", YES_NO, None),
        ("", YES_NO, None),
        ("0,25", QUARTERS, 0.25),
        (".5", QUARTERS, 0.5),
        ("nan", QUARTERS, None),
        ("inf", QUARTERS, None),
        ("1e400", QUARTERS, None),
        ("yes", QUARTERS, None),
    ],
)
def test_ways_to_say_a_value(text: str, scale: Sequence[RatingChoice], value: float | None) -> None:
    assert sheets.choice_of(text, scale) == value
