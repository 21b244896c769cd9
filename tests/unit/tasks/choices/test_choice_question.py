"""A question with choices: its options, their orders, and the questions whose choices stay where they are."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.tasks import choice_question
from eval_factory.tasks.choice_question import (
    RowFaultError,
    options_and_right_index,
    orders_of,
    why_not_reordered,
)
from facts import naming

AB = {"A": "fever", "B": "cough"}


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("What?\nA. fever\nB. cough\nAnswer:", AB),
        ("What?\n(A) fever\n (B)  cough ", AB),
        ("A: fever\r\nB: cough\r\n", AB),
        ("What? A) fever B) cough", AB),
        ("What? (A) fever (B) cough", AB),
        ("A. fever\nB. cough\nD. rash", AB),
        ("A. fever\nB. cough\nC. \nD.", AB),  # no text, no option
        ("B. x\nA. fever\nB. cough", AB),
        ("A. Notes\nB. Labs\n\nA. fever\nB. cough", AB),  # of equals the last
        ("A. fever\nB. cough\nC. rash\n\nA. Be brief.\nB. Say the letter.", AB | {"C": "rash"}),
        ("A. fever\nB. cough\n\nA. The end", AB),
        ("He has group A. She has group B. What?", {}),
        ("A. fever", {}),
        ("B. cough\nC. rash", {}),
        ("", {}),
    ],
)
def test_the_options_that_a_prompt_lists(prompt: str, options: dict[str, str]) -> None:
    assert choice_question.options_shown(prompt) == options


@pytest.mark.parametrize(
    ("choices", "right", "message"),
    [
        ({"A": "a"}, "A", "column options: must hold 2 to 26 choices, holds 1"),
        (
            {str(n): "x" for n in range(27)},
            "1",
            "column options: must hold 2 to 26 choices, holds 27",
        ),
        ({"A": "a", "B": 2}, "A", "column options: each choice must be text"),
        ({"A": "a", "B": "b", "C": ""}, "C", "column label: must be one of A, B"),
        ({"A": "a", "B": "b"}, "", "column label: must be one of A, B"),
    ],
)
def test_choices_that_are_none(choices: dict[str, Any], right: str, message: str) -> None:
    kept = options_and_right_index(
        {"A": "a", "B": " ", "C": None, "D": " d "}, "D", "label", "options"
    )
    assert kept == (("a", "d"), 1), "without text they are none, and the right one keeps its place"
    with pytest.raises(RowFaultError, match=f"^{message}$"):
        options_and_right_index(choices, right, "label", "options")


@pytest.mark.parametrize("value", ["text", ["A"], {"AB": "x"}, {"a": "x"}, {"": "x"}])
def test_what_is_no_mapping_from_letters(value: Any) -> None:
    with pytest.raises(RowFaultError, match=naming("column options: ", "an object")):
        choice_question.lettered_options({"options": value}, "options")
    with pytest.raises(RowFaultError, match=r"^column options: is missing"):
        choice_question.lettered_options({"options": None}, "options")


FOUR = ["Aspirin", "Insulin", "Heparin", "Warfarin"]


@pytest.mark.parametrize(
    "choice",
    [
        "None of the above",
        "All of the above.",
        "all the above",
        "Any of these",
        "None of these",
        "None",
        "Both",
        "Either of the above",
        "More than one of the above",
        "None of the other answers is correct",
        "All are correct",
        "Both A and B",
        "both a) and c)",
        "Neither A nor B",
        "Only A and C",
        "Only B",
        "All except B",
        "A and C",
        "A, B, and C are correct",
        "B and C only",
        "1, 2 and 3",
        "2 and 3 are true",
        "I and III only",
        "a & b",
        "Option A",
        "Options 1 and 2",
        "Statement II is false, as mentioned above",
        "Todas las anteriores",
        "Ninguna de las anteriores",
        "Ninguna de las respuestas anteriores",
        "Las dos anteriores",
        "Son correctas 1 y 2",
        "1 y 3 son correctas.",
        "Las respuestas 1 y 2 son correctas",
        "Todas son falsas",
        "Solo 1",
        "A y B son ciertas",
    ],
)
def test_what_refers_to_other_choices(choice: str) -> None:
    assert choice_question.refers_to_others(choice)
    assert why_not_reordered([*FOUR, choice]) == choice_question.REFERS


@pytest.mark.parametrize(
    "choice",
    [
        "Vitamin A and D",
        "Vitamin A",
        "Hepatitis A and B",
        "Factor V and VIII",
        "Type I and II pneumocytes",
        "Protein C and S deficiency",
        "5 and 10 mg",
        "1 or 2 tablets",
        "Both kidneys",
        "One of the ribs",
        "E. coli",
        "A lesion of all of the cranial nerves",
        "Either arm or leg",
        "None needed",
        "Both eyes and ears",
        "C5-C6",
        "Only a tibial fracture",
        "both A-band and I-band shorten",
        "Stage I or II",
        "HLA-A and B",
        "All patients",
        "Todas las mañanas",
        "Ninguna medicación",
        "Yes",
        "Above the knee",
    ],
)
def test_what_does_not(choice: str) -> None:
    assert not choice_question.refers_to_others(choice)
    assert why_not_reordered([*FOUR, choice]) is None


def test_choices_that_are_letters_or_alone_are_kept() -> None:
    assert why_not_reordered(["A", "B", "C"]) == choice_question.LABELS
    assert why_not_reordered(["(a)", "b."]) == choice_question.LABELS
    assert why_not_reordered(["A", "Both lungs"]) is None
    assert (
        why_not_reordered(["yes"])
        == why_not_reordered([])
        == why_not_reordered(["same", "same"])
        == choice_question.ALONE
    )


def test_orders_are_different_and_the_original_is_first() -> None:
    orders = orders_of("id7", FOUR, 5)
    assert orders[0] == (0, 1, 2, 3)
    assert len(orders) == len(set(orders)) == 5
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert orders_of("q", ["yes", "no"], 5) == [(0, 1), (1, 0)], "no more than there can be"
    assert len(set(orders_of("q", ["yes", "no", "maybe"], 24))) == 6
    assert orders_of("q", [*FOUR, "None of the above"], 4) == [(0, 1, 2, 3, 4)]


def test_they_depend_on_the_question_alone() -> None:
    """Fixed: what was asked before is found again after a new version."""
    assert orders_of("id7", FOUR, 3) == orders_of("id7", ["one", "two", "three", "four"], 5)[:3]
    assert orders_of("id7", FOUR, 3) == [(0, 1, 2, 3), (3, 1, 2, 0), (1, 2, 3, 0)]
    assert len({tuple(orders_of(f"id{number}", FOUR, 2)) for number in range(40)}) > 15


def test_the_name_of_an_order_is_read_again() -> None:
    assert choice_question.perturbation_of_order(3) == f"{choice_question._PERTURBATION_PREFIX}3"
    assert [
        choice_question.number_of_order(name)
        for name in (
            None,
            choice_question.perturbation_of_order(2),
            choice_question.perturbation_of_order(12),
        )
    ] == [1, 2, 12]
    assert [
        choice_question.number_of_order(name)
        for name in (
            "robustness",
            f"{choice_question._PERTURBATION_PREFIX}2.worst",
            choice_question._PERTURBATION_PREFIX,
            "3",
        )
    ] == [None] * 4
