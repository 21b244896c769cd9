"""The words of a text, so that texts are compared without regard to case, signs and spelling."""

from __future__ import annotations

import re
from typing import NamedTuple

from eval_factory.reading.phrases import UNSPACED
from eval_factory.reading.spelling import american

_LETTER = rf"[^\W\d_{UNSPACED}]"
# a word, a number, or a sign that tells texts apart: "<5%" is not ">5%"
_WORD = re.compile(
    rf"{_LETTER}+(?:'{_LETTER}+)*"
    rf"|\d+(?:[.,]\d+)*|[{UNSPACED}]|[<>=\u2264\u2265\u00b1+%\u00b0]|(?<!\w)-(?=\d)"
)
_ASCII_WORD = re.compile(
    r"[a-z]+(?:'[a-z]+)*|\d+(?:[.,]\d+)*|[<>=+%]|(?<!\w)-(?=\d)", re.ASCII
)  # the same, and much quicker


class Word(NamedTuple):
    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """The words in lower case, without apostrophes, and in American spelling."""
    found = []
    lower = _lower(text)
    is_british = "ae" in lower or "oe" in lower
    has_apostrophes = "'" in lower
    pattern = _ASCII_WORD if lower.isascii() else _WORD
    for match in pattern.finditer(lower):
        word = match[0]
        if has_apostrophes:
            word = word.replace("'", "")
        if is_british:
            word = american(word)
        found.append(Word(word, match.start(), match.end()))
    return found


def _lower(text: str) -> str:
    """The text in lower case, each letter in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    letters = []
    for letter in text:
        small = letter.lower()
        letters.append(small if len(small) == 1 else letter)
    return "".join(letters)
