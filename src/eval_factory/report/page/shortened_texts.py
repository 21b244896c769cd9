"""Shortens the texts of a page: prompts, answers, and the explanations of judges."""

from __future__ import annotations

import os
from collections.abc import Sequence

from eval_factory.core.secrets import REDACTED

MAX_SHORT_TEXT = 2_000
"""The maximum number of characters that a page has of a judge's explanation, a criterion or a tag.
results.jsonl has the complete text.
"""
MAX_SHOWN_TEXT = 500_000
"""The maximum number of characters that a page has of a prompt, an answer or a model's reasoning:
about 100,000 words. Browsers cannot show many longer texts. results.jsonl and instances.jsonl have
the complete texts.
"""


def shortened_text(text: str) -> str:
    """Return a text that is cut after `MAX_SHORT_TEXT` characters, with a note on its length."""
    if len(text) <= MAX_SHORT_TEXT:
        return text
    return f"{text[:MAX_SHORT_TEXT]} … ({len(text):,} characters: results.jsonl)"


def without_middle(text: str | None) -> str | None:
    """Return a text. If the text is too long for a page, a note replaces its middle."""
    if text is None or len(text) <= MAX_SHOWN_TEXT:
        return text
    half = MAX_SHOWN_TEXT // 2
    left_out = len(text) - 2 * half
    return (
        f"{text[:half]}\n\n[... {left_out:,} characters are left out of this page ...]\n\n"
        f"{text[-half:]}"
    )


def common_beginning(texts: Sequence[str]) -> str:
    """Return the complete lines with which all texts begin; empty if there is only one text."""
    if len(texts) < 2:
        return ""
    shared = os.path.commonprefix(list(texts))  # noqa: RUF071 - compares characters, not paths
    return shared[: shared.rfind("\n") + 1]


def first_words(text: str, length: int) -> str:
    """Return the beginning of a text on one line, with at most `length` characters.

    The result ends at the first redaction mark. `verify` makes the page again without knowing the
    secrets, so its text may have the secret instead. When `verify` compares the texts, the mark
    stands for any text: a beginning that ends with the mark matches the one with the secret.
    """
    # Only a part of a long text is read. Blanks are removed, so the part is longer than `length`.
    before, redacted, _ = text[: 8 * length].partition(REDACTED)
    shown = " ".join(before.split())
    if len(shown) > length:
        return shown[: length - 1].rstrip() + "…"
    if redacted:
        return f"{shown} {REDACTED}".lstrip()
    return shown
