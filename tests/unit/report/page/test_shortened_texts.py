"""The texts of a page are shortened."""

from __future__ import annotations

import pytest

from eval_factory.core.secrets import REDACTED
from eval_factory.report.page import shortened_texts


@pytest.mark.parametrize(
    ("texts", "shared"),
    [
        (["ex 1\nex 2\nWho?", "ex 1\nex 2\nWhat?"], "ex 1\nex 2\n"),
        (["Why", "Who"], ""),
        (["one\ntwo"], ""),
        ([], ""),
    ],
)
def test_what_all_prompts_begin_with_is_no_preview(texts: list[str], shared: str) -> None:
    assert shortened_texts.common_beginning(texts) == shared


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one  \n two", "one two"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 9 + "…"),
        ("xx xx xx xxx", "xx xx xx…"),
        (f"a {REDACTED} and more than ten", f"a {REDACTED}"),
        (f"{REDACTED}", REDACTED),
        (f"xxxxxxxxxxxx {REDACTED}", "x" * 9 + "…"),
    ],
)
def test_the_first_words_of_a_text(text: str, words: str) -> None:
    assert shortened_texts.first_words(text, 10) == words
