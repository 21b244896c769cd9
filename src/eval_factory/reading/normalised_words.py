"""Splits a text into normalised words, to compare texts regardless of case, signs and spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from eval_factory.reading.phrases import UNSPACED
from eval_factory.reading.spelling import BRITISH, american

_LETTER = rf"[^\W\d_{UNSPACED}]"
# a word, a number, a letter of a script without blanks between words (`UNSPACED`), or a sign that
# distinguishes texts: "<5%" differs from ">5%"
_WORD = re.compile(
    rf"({_LETTER}+(?:'{_LETTER}+)*"
    rf"|\d+(?:[.,]\d+)*|[{UNSPACED}]|[<>=\u2264\u2265\u00b1+%\u00b0]|(?<!\w)-(?=\d))"
)
_ASCII_WORD = re.compile(
    r"([a-z]+(?:'[a-z]+)*|\d+(?:[.,]\d+)*|[<>=+%]|(?<!\w)-(?=\d))", re.ASCII
)  # the same pattern for ASCII texts, which is much faster
_WORD_SIGN = re.compile(r"[^\W_]")  # a letter or a digit
_MAY_NEED_NORMALISING = re.compile(f"'|{BRITISH.pattern}")


@dataclass(frozen=True)
class Words:
    """The words of a text, without apostrophes and in American spelling, and their positions."""

    texts: tuple[str, ...]  # the normalised words
    # the positions of each word's start and end in turn, and then the end of the text
    bounds: Sequence[int]
    distinct: frozenset[str]  # the distinct words

    def start(self, number: int) -> int:
        """Return the position in the text where the word with this number starts."""
        return self.bounds[2 * number]

    def end(self, number: int) -> int:
        """Return the position in the text where the word with this number ends."""
        return self.bounds[2 * number + 1]


def words_of(lower: str) -> Words:
    """Return the normalised words of a text that is in lower case."""
    pattern = _WORD
    if lower.isascii():
        pattern = _ASCII_WORD
    pieces = pattern.split(lower)  # in turn: a text between words, and a word
    texts = pieces[1::2]
    # The ends of all pieces: the text before a word ends where the word starts.
    bounds = list(accumulate(map(len, pieces)))
    normalised = _normalised(texts)
    if normalised:
        texts = [normalised.get(word, word) for word in texts]
    return Words(tuple(texts), bounds, frozenset(texts))


def has_words(text: str) -> bool:
    """Return True if the text contains a letter or a digit."""
    return _WORD_SIGN.search(text) is not None


def _normalised(texts: Sequence[str]) -> dict[str, str]:
    """Return a dict from each word with an apostrophe or a British spelling to its normal form."""
    normalised = {}
    for word in filter(_MAY_NEED_NORMALISING.search, set(texts)):
        normalised[word] = american(word.replace("'", ""))
    return normalised


def in_lower_case(text: str) -> str:
    """Return the text in lower case, with each letter at the same position.

    A letter whose lower case has several characters is left unchanged.
    """
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    letters = []
    for letter in text:
        small = letter.lower()
        letters.append(letter if len(small) > 1 else small)
    return "".join(letters)
