"""The rule alone; that it is HELM's is shown in tests/helm."""

from __future__ import annotations

import string

import pytest

from eval_factory.tasks.custom_table import QUASI_METRICS, becomes_nothing, note_on_quasi


@pytest.mark.parametrize(
    "answer", ["A", "a", " An ", "the", "The A.", "(A)", "a-n", "t.h.e", "--", "", " \n", "A a the", string.punctuation]
)
def test_articles_and_punctuation_are_nothing(answer: str) -> None:
    assert becomes_nothing(answer)


@pytest.mark.parametrize("answer", ["B", "as", "A1", "+1", "±", "A_b", "Ä", "\uff41", "the end", "Athe"])
def test_anything_else_is_something(answer: str) -> None:
    assert not becomes_nothing(answer)


def test_the_note_says_where_and_which_metrics() -> None:
    note = note_on_quasi("2 of 8 rows")
    assert note.startswith("2 of 8 rows: HELM's quasi metrics drop articles")
    assert "quasi_prefix_exact_match takes any answer for right" in note
    assert "and quasi_exact_match one such as 'the'" in note
    assert QUASI_METRICS == ("quasi_exact_match", "quasi_prefix_exact_match")
