"""Instances in their order -> which of them are there already, and what a reader is told."""

from __future__ import annotations

import pytest

from eval_factory.scoring.notes import Importance
from eval_factory.scoring.repeated_rows import BETWEEN, RepeatedRows

ROWS = [
    ("id0", "Which?", "a"),
    ("id1", "Which one?", "a"),
    ("id2", "which? ", "A"),  # but for blanks and capitals
    ("id3", "Which?", "b"),
    ("id4", "Which?", "b"),
    ("id5", "Which?\n", "c"),
    ("id6", "Which?a", ""),
]


def test_a_row_is_repeated_where_question_and_gold_answer_are_there_already() -> None:
    rows = RepeatedRows()
    assert [rows.add(*row) for row in ROWS] == [False, False, True, False, True, False, False]
    assert rows.repeated == {"id2", "id4"}
    assert rows.with_another_gold == {"id3", "id5"}


def test_another_trial_of_an_instance_is_no_other_instance() -> None:
    rows = RepeatedRows()
    again = [rows.add(*row) for _ in range(2) for row in ROWS]
    assert again[: len(ROWS)] == again[len(ROWS) :]
    assert (len(rows.repeated), len(rows.with_another_gold)) == (2, 2)


def test_the_answers_to_choose_from_are_a_part_of_the_question() -> None:
    rows = RepeatedRows()
    assert not rows.add("id0", "Which?", "all", ["x", "all"])
    assert not rows.add("id1", "Which?", "all", ["y", "all"])
    assert rows.add("id2", "Which?", "all", ["all", "x"])
    assert rows.with_another_gold == set()
    assert not rows.add("id3", "Which?", "x", ["all", "x"])
    assert rows.with_another_gold == {"id3"}


def test_texts_are_not_run_together() -> None:
    rows = RepeatedRows()
    assert not rows.add("id0", "a", "g", ["b c"])
    assert not rows.add("id1", "a", "g", ["b", "c"])
    assert not rows.add("id2", "a b", "g", ["c"])


@pytest.mark.parametrize("blank", [BETWEEN, "\n", "\u2003"])
def test_any_blank_is_a_blank(blank: str) -> None:
    """Also what stands between two texts."""
    rows = RepeatedRows()
    assert not rows.add("id0", "a b", "g")
    assert rows.add("id1", f"a{blank}b", "g")
    assert not rows.add("id2", "a", "g", ["b"])


def test_half_a_character_is_a_text_too() -> None:
    rows = RepeatedRows()
    assert [rows.add(str(number), text, "g") for number, text in enumerate("\ud83d?\ud83d")] == [False, False, True]


def test_no_text_is_kept() -> None:
    rows = RepeatedRows()
    rows.add("id0", "a secret question", "a secret answer")
    assert "secret" not in repr(rows)


def test_notes_count_both_kinds() -> None:
    rows = RepeatedRows()
    assert list(rows.notes(9)) == []
    for row in ROWS[:5]:
        rows.add(*row)
    repeated, other = rows.notes(7)
    assert repeated.text.startswith("2 of 7 instances repeat an earlier one (the same question and gold answer,")
    assert other.text.startswith("1 of 7 instances repeat the question of an earlier one with another gold answer:")
    assert repeated.importance == other.importance == Importance.BACKGROUND
