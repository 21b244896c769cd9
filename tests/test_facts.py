"""The helper that most tests of messages use: it must notice a fact that is missing or another."""

from __future__ import annotations

import re

import pytest

from facts import each_says, naming, rows_of, says

MESSAGE = "config.params.repeats: 25 is more\nthan 20. Use eval-factory ls (0.75 of 1,000)"


def test_facts_are_found_as_complete_words_and_numbers() -> None:
    present = ("config.params.repeats", "25", "more than 20", "eval-factory ls", "0.75", "1,000")
    says(MESSAGE, *present)
    assert re.search(naming(*present), MESSAGE)


@pytest.mark.parametrize("fact", ["2", "5", "0.7", "75", "1", "000", "repeat", "params.repeat"])
def test_a_part_of_a_number_or_a_word_is_not_the_fact(fact: str) -> None:
    with pytest.raises(AssertionError, match="missing"):
        says(MESSAGE, "25", fact)
    assert not re.search(naming("25", fact), MESSAGE)


def test_a_sentence_is_no_fact() -> None:
    with pytest.raises(ValueError, match="5 words"):
        says("one two three four five", "one two three four five")


def test_each_line_has_its_facts() -> None:
    lines = ["small: 3 cells", "big: 4 cells"]
    each_says(lines, ["small", "3 cells"], ["4"])
    with pytest.raises(AssertionError, match="missing"):
        each_says(lines, ["small"], ["3 cells"])
    with pytest.raises(AssertionError):
        each_says(lines, ["small"])


def test_the_cells_of_a_table() -> None:
    assert rows_of("Scores\n\n| a | b |\n| :-- | --: |\n| x y |  |\n") == [
        ["a", "b"],
        [":--", "--:"],
        ["x y", ""],
    ]
