from __future__ import annotations

import json
import math
from typing import Any

import pytest

from eval_factory.core.safe_files import MAX_INTEGER_BITS, json_line

LINE_BREAKS = "a\n\r\x0b\x0c\x1c\x85\u2028\u2029b"


@pytest.mark.parametrize(
    "text",
    [LINE_BREAKS, "\x1b\x9b\x7f\u202e\u200b\ufeff\U000e0041", "\ud800 half", "only\x7f", "Ärztin 漢字 🙂 \xa0", ""],
)
def test_a_line_is_one_to_every_reader_and_says_the_same(text: str) -> None:
    line = json_line({"text": text, text: 1})
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text, text: 1}
    assert line.encode("utf-8")
    assert line.replace("\xa0", "").isprintable()


def test_letters_stay_readable() -> None:
    text = '{"a": "Ärztin 漢字 🙂", "b": [1, 2.5, null, true]}'
    assert json_line({"a": "Ärztin 漢字 🙂", "b": [1, 2.5, None, True]}) == text


@pytest.mark.parametrize(
    "odd", [math.inf, -math.inf, math.nan, 10**5000, -(10**5000)], ids=["inf", "-inf", "nan", "long", "-long"]
)
def test_numbers_that_nobody_can_read_are_null(odd: Any) -> None:
    line = json_line({"a": {"b": [odd, 1.5, "x", 7, True, None]}, "c": odd})
    assert json.loads(line, parse_constant=pytest.fail) == {"a": {"b": [None, 1.5, "x", 7, True, None]}, "c": None}


def test_large_numbers_stay_where_they_can_be_read() -> None:
    largest = 2**MAX_INTEGER_BITS - 1
    assert json.loads(json_line([largest, math.nan])) == [largest, None]
    assert json_line([largest + 1, math.nan]) == "[null, null]"
