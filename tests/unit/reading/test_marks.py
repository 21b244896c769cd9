"""Thinking and a chat template's marks: nothing is read out of them."""

from __future__ import annotations

import unicodedata

import pytest

from eval_factory.reading import stated_option
from eval_factory.reading.cleaning import MAX_COMBINING, plain_text

OPTIONS = {"A": "fever", "B": "cough", "C": "rash"}

READ = [
    "<unused94>thought\nIs it A? C does not fit.<unused95>B",
    "thought\nThe answer is A.<unused95>B",
    "## Thinking\n\nThe answer is A. Or C.\n\n## Final Response\n\nThe answer is B.",
    "The answer is <|begin_of_box|>B<|end_of_box|>",
    "<think>The answer is A.</think>\n<|begin_of_box|>B<|end_of_box|>",
    "B<|im_end|>",
    "B<|eot_id|>",
    "B<end_of_turn>\n",
    "B</s>",
    "<|start_header_id|>assistant<|end_header_id|>\n\nB",
    "<|im_start|>assistant\nB<|im_end|>",
    "B<|im_end|>\n<|im_start|>user\nAnd what if it was C?<|im_end|>",
    "<|channel|>analysis<|message|>A?<|end|><|start|>assistant<|channel|>final<|message|>B",
    "[THINK]A or C[/THINK]B",
    "<s>[INST] the question [/INST] B</s>",
]
UNREAD = [
    "<unused94>thought\nThe answer is A",
    "## Thinking\n\nThe answer is A.",
    "<think>The answer is A.",
    "<",
    "<|im_end|>",
    "<|begin_of_box|><|end_of_box|>",
]


@pytest.mark.parametrize("answer", READ)
def test_what_stands_behind_thinking_and_within_marks_is_read(answer: str) -> None:
    assert stated_option(answer, OPTIONS) == "B"


@pytest.mark.parametrize("answer", UNREAD)
def test_nothing_is_read_out_of_thinking_or_marks(answer: str) -> None:
    assert stated_option(answer, OPTIONS) is None


def test_a_letter_keeps_thirty_marks() -> None:
    """Normalising takes the square of the marks in a row: a hostile answer would cost minutes."""
    tower = "C" + "\u0316\u0301" * 1_000
    assert len(plain_text(tower)) <= 1 + MAX_COMBINING
    assert plain_text("C" + "\u0316\u0301" * 15) == unicodedata.normalize(
        "NFC", "C" + "\u0316\u0301" * 15
    )
    assert stated_option(f"Answer: B {tower}", {"A": "one", "B": "two"}) == "B"
