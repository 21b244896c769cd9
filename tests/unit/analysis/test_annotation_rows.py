"""A sheet as CSV: what a spreadsheet gets of texts that others wrote."""

from __future__ import annotations

import csv
import io

import pytest

from eval_factory.analysis.annotation_rows import BOM, COLUMNS, CUT, LONGEST_CELL, cell, csv_sheet, question_text
from eval_factory.core.annotations import AnswerKey, Question
from eval_factory.core.rated_answers import Shown
from hostile_texts import ODD, payloads
from unit.core.test_annotations import SAMPLE

FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20|%"


def shown(answer: str = "a", question: str = "q") -> Shown:
    turns = (("user", question), ("assistant", "b"))
    return Shown(AnswerKey("secret-id", 0), turns, answer, ("ref",), (Question("first"), Question("=second")), "digest")


@pytest.mark.parametrize("sign", FORMULAS)
def test_a_cell_is_no_formula(sign: str) -> None:
    assert cell(f"{sign}1+1") == f"'{sign}1+1"
    assert cell(f' "{sign}1') == f"' \"{sign}1"
    assert cell(f"so; {sign}1;x") == f"so;' {sign}1;x"
    assert cell(f"a {sign} b, c") == f"a {sign} b, c"


def test_a_cell_is_one_line() -> None:
    assert cell("a\r\n\r\n=b\tc\u2028d") == "a \u23ce =b c \u23ce d"
    assert cell("\n=b") == " \u23ce =b"
    assert all(cell(f"x{odd}y").isprintable() for odd in ODD.values())
    assert cell("x" * LONGEST_CELL) == "x" * LONGEST_CELL
    assert cell("x" * (LONGEST_CELL + 1)) == "x" * LONGEST_CELL + CUT


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
