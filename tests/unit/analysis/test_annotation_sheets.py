"""Sheets of raters as CSV, written and read again."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.analysis.annotation_sheets import (
    _CUT,
    _LARGEST,
    _MAX_CELL,
    BOM,
    COLUMNS,
    Returned,
    choice_of,
    csv_sheet,
    decoded_sheet,
    question_text,
    read_returns,
    sheet_cell,
)
from eval_factory.core.annotations import YES_NO, AnswerKey, Question, Rating, RatingChoice, SampledAnswer, ShownAnswer
from hostile_texts import ODD, payloads
from unit.core.test_annotations import ANSWER, SAMPLE

FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20|%"


def shown(answer: str = "a", question: str = "q") -> ShownAnswer:
    turns = (("user", question), ("assistant", "b"))
    return ShownAnswer(
        AnswerKey("secret-id", 0), turns, answer, ("ref",), (Question("first"), Question("=second")), "digest"
    )


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
    for text in [*payloads("http://127.0.0.1:9").values(), *(f'x;{sign}1\n{sign}2;"{sign}3' for sign in FORMULAS)]:
        made = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown(text, text)}, with_reference=True)
        rows = list(csv.reader(io.StringIO(made.removeprefix(BOM), newline=""), delimiter=delimiter))
        assert not [one for row in rows for one in row if one.lstrip(" \"'\t")[:1] in tuple(FORMULAS) and one[0] != "'"]


def test_the_rows_of_a_sheet() -> None:
    made = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown()}, with_reference=True)
    assert made.startswith(BOM)
    rows = list(csv.reader(io.StringIO(made.removeprefix(BOM), newline="")))
    assert rows == [
        list(COLUMNS),
        ["sheet", "1", "bcdfg", "1", "user: q \u23ce assistant: b", "a", "ref", "first", "yes / no", "", ""],
        ["sheet", "1", "bcdfg", "2", "", "", "", "second", "yes / no", "", ""],
    ]
    assert "secret-id" not in made
    assert "digest" not in made
    without = csv_sheet(SAMPLE, "1", ["bcdfg"], {"bcdfg": shown()}, with_reference=False)
    assert "ref," not in without


def test_one_turn_is_shown_without_a_role() -> None:
    assert question_text([("user", "hi")]) == "hi"


FIVE = tuple(RatingChoice(float(one), str(one)) for one in range(1, 6))
ALONE = SampledAnswer("qrstv", AnswerKey("b", 0), "b" * 64, 0, 0.5, (Question("alone"),))
SHEET = replace(SAMPLE, choices=FIVE, answers=(ANSWER, ALONE))
HEAD = "sheet,rater,item,number,rating,comment\n"


def returned(tmp_path: Path, *texts: str | bytes) -> Returned:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"r{number}.csv")
        files[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_returns(files, {"sheet": SHEET}, Path("out"))


def rating(code: str = "bcdfg", number: int = 1, value: float = 4.0, rater: str = "1", comment: str = "") -> Rating:
    return Rating("sheet", code, number, rater, value, comment)


@pytest.mark.parametrize("text", [
    HEAD + "sheet,1,bcdfg,1,4,\n", HEAD.encode("utf-8-sig") + b"sheet,1,bcdfg,1,4.0,\r\n",
    HEAD.replace(",", ";") + "sheet;1;BCDFG;1;4,0;\n", "sep=;\n" + HEAD.replace(",", ";") + "sheet;1;bcdfg;1;4;\n",
    (HEAD + "sheet,1,bcdfg,1,4,\n").replace(",", "\t").encode("utf-16"),
    "Rating , ITEM,rater,number,sheet,question\n4,bcdfg,1,1.0,sheet,\"a\nb\"\n\n,,,,,\n",
    HEAD + "sheet,1,bcdfg,1, 4 \n", HEAD + "sheet,1,bcdfg,1,4,\nsheet,1,bcdfg,1,4.0,\n",
])  # fmt: skip
def test_however_a_program_saved_it(tmp_path: Path, text: str | bytes) -> None:
    assert returned(tmp_path, text) == Returned([rating()])


def test_partial_returns_of_several_raters(tmp_path: Path) -> None:
    found = returned(
        tmp_path, HEAD + "sheet,1,bcdfg,1,4,\nsheet,1,bcdfg,2,,\nsheet,1,qrstv,,2,\n",
        (HEAD + "sheet,B\u00e4r,bcdfg,1,5,sch\u00f6n\n").encode("cp1252"),
    )  # fmt: skip
    assert found.ratings == [
        rating(), rating("qrstv", 1, 2.0), rating(value=5.0, rater="B\u00e4r", comment="sch\u00f6n"),
    ]  # fmt: skip
    assert (found.empty, found.faults) == (1, [])


@pytest.mark.parametrize(("row", "column", "said"), [
    ("other,1,bcdfg,1,4,", "sheet", "'other' is no sheet that was exported from out (known: sheet)"),
    (",1,bcdfg,1,4,", "sheet", "'' is no sheet that was exported from out (known: sheet)"),
    ("sheet,1,zzzzz,1,4,", "item", "'zzzzz' is no item of sheet sheet"),
    ("sheet,,bcdfg,1,4,", "rater", "write who rated, in 1 to 80 characters"),
    (f"sheet,{'x' * 81},bcdfg,1,4,", "rater", "write who rated, in 1 to 80 characters"),
    ("sheet,1,bcdfg,3,4,", "number", "'3' is no question about bcdfg: they are 1 to 2"),
    ("sheet,1,bcdfg,0,4,", "number", "'0' is no question about bcdfg: they are 1 to 2"),
    ("sheet,1,bcdfg,,4,", "number", "'' is no question about bcdfg: they are 1 to 2"),
    ("sheet,1,bcdfg,-1,4,", "number", "'-1' is no question about bcdfg: they are 1 to 2"),
    ("sheet,1,bcdfg,1,6,", "rating", "'6' is not on the scale: 1, 2, 3, 4, 5"),
    ("sheet,1,bcdfg,1,4.5,", "rating", "'4.5' is not on the scale: 1, 2, 3, 4, 5"),
    ("sheet,1,bcdfg,1,good\x1b[31m,", "rating", "'good\\x1b[31m' is not on the scale: 1, 2, 3, 4, 5"),
])  # fmt: skip
def test_a_wrong_row_is_named(tmp_path: Path, row: str, column: str, said: str) -> None:
    found = returned(tmp_path, HEAD + "sheet,1,qrstv,1,2,\n" + row + "\n")
    assert found.faults == [f"{tmp_path / 'r0.csv'}: row 3, column {column}: {said}"]


def test_everything_that_is_wrong_is_listed(tmp_path: Path) -> None:
    found = returned(
        tmp_path, HEAD + "sheet,,bcdfg,9,9,\nsheet,1,bcdfg,1,4,\n", HEAD + "sheet,1,bcdfg,1,3,\n", "item,rating\n",
        b"PK\0\3",
    )  # fmt: skip
    first, second, third, fourth = (str(tmp_path / f"r{number}.csv") for number in range(4))
    assert [fault.removeprefix(f"{first}: row 2, ") for fault in found.faults[:3]] == [
        "column rater: write who rated, in 1 to 80 characters",
        "column number: '9' is no question about bcdfg: they are 1 to 2",
        "column rating: '9' is not on the scale: 1, 2, 3, 4, 5",
    ]
    assert found.faults[3:] == [
        f"{second}: row 2, column rating: rater 1 rates bcdfg otherwise in row 3 of {first}",
        f"{third}: row 1: there is no column sheet, rater, number",
        f"{fourth}: is no text: save the sheet as CSV, or have the form give it",
    ]


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(_LARGEST + 1)
    found = read_returns([tmp_path / "none.csv", large], {}, Path("out"))
    assert found.faults == [f"{tmp_path / 'none.csv'}: No such file or directory", f"{large}: is larger than 64 MiB"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", 1), ("No", 0), ("1", 1), ("0.0", 0), ("TRUE", 1), ("n", 0), ("met", 1), ("not met", 0), ("2", None), ("", None)],
)  # fmt: skip
def test_ways_to_say_yes(text: str, value: float | None) -> None:
    assert choice_of(text, YES_NO) == value


def test_a_decimal_comma_and_what_is_no_number() -> None:
    quarters = (RatingChoice(0.25, "0.25"), RatingChoice(0.5, "0.5"))
    assert [choice_of(text, quarters) for text in ("0,25", ".5", "nan", "inf", "1e400", "yes")] == [
        0.25, 0.5, *[None] * 4,
    ]  # fmt: skip


def test_a_text_of_no_encoding_that_is_known_is_read_all_the_same() -> None:
    assert decoded_sheet(b"\x81\xe4") == "\ufffd\xe4"


def test_a_sheet_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sheet.csv")
    found = read_returns([tmp_path / "sheet.csv", Path("/dev/zero")], {}, tmp_path)
    assert found.faults == [f"{tmp_path / 'sheet.csv'}: is no regular file", "/dev/zero: is no regular file"]
