"""Which answers decline to answer."""

from __future__ import annotations

import pytest

from eval_factory.scoring.refusals import LONGEST_REFUSAL, is_refusal

REFUSAL = "I cannot provide medical advice."


@pytest.mark.parametrize(
    "answer",
    [
        REFUSAL, "I'm sorry, but I can't help with that.", "I\N{RIGHT SINGLE QUOTATION MARK}m sorry, but I can\N{RIGHT SINGLE QUOTATION MARK}t assist with that.",
        "Sorry, I can't answer this.", "I am unable to answer.", "I'm not able to determine this from the note.",
        "As an AI language model, I cannot diagnose.", "As a large language model, I am not able to provide this.",
        "Unfortunately, I will not do that.", "I must decline to answer this question.", "I won't comply.",
        " \"I can not give this.\"", "I apologize, but I am unable to fulfill this request.",
    ],
)  # fmt: skip
def test_an_answer_that_declines(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "", "A", "B.", "CORRECT", "I", "I'm sorry to hear that. Please see a doctor.", "I can help with that.",
        "The patient says: I cannot answer.", "I cannot rule out an infarction; order troponin.",
        "Sorry, the answer is B.", "As an AI model I think it is B.",
    ],
)  # fmt: skip
def test_an_answer_that_does_not(answer: str) -> None:
    assert not is_refusal(answer)


def test_what_goes_on_says_something_beside() -> None:
    assert is_refusal(REFUSAL.ljust(LONGEST_REFUSAL, "x"))
    assert not is_refusal(REFUSAL.ljust(LONGEST_REFUSAL + 1, "x"))
