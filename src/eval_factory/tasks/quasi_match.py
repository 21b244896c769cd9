"""Answers that HELM's quasi metrics take for nothing: `A`, the article, is one of them."""

from __future__ import annotations

import re
import string

QUASI_METRICS = ("quasi_exact_match", "quasi_prefix_exact_match")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def becomes_nothing(answer: str) -> bool:
    """Whether nothing is left by HELM's normalize_text: lower case, no punctuation, no articles."""
    return not _ARTICLES.sub("", answer.lower().translate(_PUNCTUATION)).strip()


def note_on_quasi(where: str) -> str:
    exact, prefix = QUASI_METRICS
    return (
        f"{where}: HELM's quasi metrics drop articles and punctuation, and nothing is left of the right answer (the"
        f" letter A is an article): {prefix} takes any answer for right there, and {exact} one such as 'the';"
        " exact_match is not touched"
    )
