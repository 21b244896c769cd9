from __future__ import annotations

from typing import Any

import pytest

from eval_factory.tasks.choice_question import ChoiceQuestion, RowFaultError, chosen_options, lettered, options_shown


def test_what_is_kept_beside_the_instance() -> None:
    one = ChoiceQuestion("q1", "What?", ("a", "b", "c"), 2, {"subject": "liver"}, ("patient", "p1"))
    assert (one.letter, one.extra_data()) == ("C", {"subject": "liver", "patient": "p1"})
    assert ChoiceQuestion("q1", "What?", ("a", "b"), 0).extra_data() == {}


AB = {"A": "fever", "B": "cough"}


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("What?\nA. fever\nB. cough\nAnswer:", AB),
        ("What?\n(A) fever\n (B)  cough ", AB),
        ("A: fever\r\nB: cough\r\n", AB),
        ("What? A) fever B) cough", AB),
        ("What? (A) fever (B) cough", AB),
        ("A. fever\nB. cough\nC. \nD.", AB),  # no text, no option
        ("A. fever\nB. cough\nD. rash", AB),
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
    assert options_shown(prompt) == options


def test_choices_without_text_are_none_and_the_right_one_keeps_its_place() -> None:
    assert chosen_options({"A": "a", "B": " ", "C": None, "D": " d "}, "D", "label", "options") == (["a", "d"], 1)


@pytest.mark.parametrize(
    ("choices", "right", "message"),
    [
        ({"A": "a"}, "A", "column options: must hold 2 to 26 choices, holds 1"),
        ({str(n): "x" for n in range(27)}, "1", "column options: must hold 2 to 26 choices, holds 27"),
        ({"A": "a", "B": 2}, "A", "column options: each choice must be text"),
        ({"A": "a", "B": "b", "C": ""}, "C", "column label: must be one of A, B"),
        ({"A": "a", "B": "b"}, "", "column label: must be one of A, B"),
    ],
)
def test_choices_that_are_none(choices: dict[str, Any], right: str, message: str) -> None:
    with pytest.raises(RowFaultError, match=f"^{message}$"):
        chosen_options(choices, right, "label", "options")


@pytest.mark.parametrize("value", ["text", ["A"], {"AB": "x"}, {"a": "x"}, {"": "x"}])
def test_what_is_no_mapping_from_letters(value: Any) -> None:
    with pytest.raises(RowFaultError, match=r"^column options: must be an object such as"):
        lettered({"options": value}, "options")
    with pytest.raises(RowFaultError, match=r"^column options: is missing"):
        lettered({"options": None}, "options")
