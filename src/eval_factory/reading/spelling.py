"""Recognises words that differ only in their spelling.

Two words are the same if they are the British and the American spelling of a word, or if both words
are long and differ by a single missing letter. Words with a different letter are different words:
abduction and adduction, peroneal and perineal.
"""

from __future__ import annotations

import re

# the letters of a British spelling -> the letters of the American spelling
_AMERICAN = {"ae": "e", "oe": "e", "our": "or", "is": "iz", "ys": "yz", "re": "er"}
BRITISH = re.compile(
    r"ae|oe"  # "anaemia", "oedema"
    r"|(?<=..)our(?=s?$)"  # "tumour"
    r"|(?<=..)is(?=(?:e[ds]?|ing|ations?)$)"  # "localised", "localisation"
    r"|ys(?=(?:e[ds]?|ing)$)"  # "paralysed"
    r"|(?<=[bt])re(?=s?$)"  # "fibre", "litres"
)
MIN_LENGTH = 7
"""The smallest number of letters in words that may have one letter more or less."""


def is_same_word(word: str, expected: str) -> bool:
    """Return True if `word` is the word `expected` with one letter more or less."""
    if len(word) < MIN_LENGTH or len(expected) < MIN_LENGTH:
        return False
    if not word.isalpha() or not expected.isalpha():
        return False
    if word[0] != expected[0]:
        return False
    return has_letter_left_out(word, expected) or has_letter_left_out(expected, word)


def american(word: str) -> str:
    """Return a word in American spelling: oesophagus is esophagus, tumour is tumor."""
    return BRITISH.sub(lambda match: _AMERICAN[match[0]], word)


def has_letter_left_out(short: str, long: str) -> bool:
    """Return True if `short` is `long` without one of its letters."""
    if len(long) != len(short) + 1:
        return False
    same = 0
    while same < len(short) and short[same] == long[same]:
        same += 1
    return short[same:] == long[same + 1 :]
