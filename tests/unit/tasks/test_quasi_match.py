"""The rule alone; that it is HELM's is shown in tests/helm."""

from __future__ import annotations

import string

import pytest

from eval_factory.tasks.custom_table import becomes_nothing


@pytest.mark.parametrize(
    "answer", ["A", "a", " An ", "the", "The A.", "(A)", "a-n", "t.h.e", "--", "", " \n", "A a the", string.punctuation]
)
def test_articles_and_punctuation_are_nothing(answer: str) -> None:
    assert becomes_nothing(answer)


@pytest.mark.parametrize("answer", ["B", "as", "A1", "+1", "±", "A_b", "Ä", "\uff41", "the end", "Athe"])
def test_anything_else_is_something(answer: str) -> None:
    assert not becomes_nothing(answer)
