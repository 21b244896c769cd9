"""Builds regular expressions from the phrases of statements in phrases.yml."""

from __future__ import annotations

import re
from typing import Any

from eval_factory.core.plain_yaml import load_packaged

_PHRASES: dict[str, Any] = load_packaged("reading/phrases.yml")

UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of languages that write no blanks between words, or no blank before a suffix."""
# the beginning and the end of a word, as regular expressions
WORD_BEGIN = rf"(?<![^\W_{UNSPACED}])"
WORD_END = r"(?!\w)"


def phrases_of_topic(topic: str) -> tuple[str, ...]:
    """Return the entries of a topic in phrases.yml: plain words, or regular expressions."""
    return tuple(str(entry) for entry in _PHRASES[topic])


def any_of(*topics: str) -> str:
    """Return a regular expression that matches any phrase of these topics, longest first."""
    entries: list[str] = []
    for topic in topics:
        entries.extend(phrases_of_topic(topic))
    entries.sort(key=len, reverse=True)
    return f"(?:{'|'.join(entries)})"


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for texts in lower case.

    A search in lower case takes half the time of a search that ignores case. In the pattern, `^`
    matches only at the start of the text, and `$` only at its end.
    """
    return re.compile(pattern)


def compiled_for_any_case(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that ignores case; `^` and `$` match at the ends of each line."""
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
