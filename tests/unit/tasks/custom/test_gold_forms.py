"""Right answers that a table writes in a known form, mapped to the letters of their options."""

from __future__ import annotations

import pytest

from eval_factory.tasks.gold_forms import GoldForms, right_letters

OPTIONS = {"A": "fever", "B": "cough", "C": "pain"}


@pytest.mark.parametrize(
    ("answers", "letters"),
    [
        (["1", "3"], "AC"),
        (["1.0", "2.0", "3.0"], "ABC"),
        (["0", "2"], "AC"),
        (["option1", "option3"], "AC"),
        (["opa", "opc"], "AC"),
        (["option_b"], "B"),
        (["B. cough", "A) Fever"], "BA"),
        (["Cough", "PAIN."], "BC"),
        (["b", "(C)"], "BC"),
        (["\u0412", "\u0421"], "BC"),  # Cyrillic letters that look like B and C
        (["\u0411", "\u0410"], "BA"),  # the second and the first Cyrillic letter
    ],
)
def test_a_known_form(answers: list[str], letters: str) -> None:
    assert right_letters([(answer, OPTIONS) for answer in answers]) == list(letters)


@pytest.mark.parametrize(
    "answers",
    [
        ["A", "cough"],  # options as they stand
        ["1", "2"],  # from 1 or from 0
        ["\u0412", "\u0410"],  # the look of B, or the third letter
        ["B. fever"],  # the text of another option
        ["4"],
        ["rash"],
        ["Cough", "rash"],
    ],
)
def test_other_columns_stay_as_they_are(answers: list[str]) -> None:
    assert right_letters([(answer, OPTIONS) for answer in answers]) == []


def test_without_options_nothing_is_mapped() -> None:
    assert right_letters([("1", OPTIONS), ("3", {})]) == []
    assert GoldForms().form() is None
