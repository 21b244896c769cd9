"""Reads the word lists of perturbations.yml, and finds and replaces their words in questions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import SimpleNamespace

from eval_factory.core.plain_yaml import packaged


@dataclass(frozen=True)
class Analyte:
    """A laboratory value or body temperature, and the conversion between its two units."""

    names: tuple[str, ...]
    units: tuple[str, str]
    factor: Decimal  # second unit = (first unit - `offset`) * `factor`
    offset: Decimal = Decimal(0)
    thresholds: tuple[Decimal, ...] = ()  # numbers that are never converted

    def exact(self, value: Decimal, unit: str) -> Decimal:
        """Return a value after the conversion to the other unit, without rounding.

        `unit`: the unit of `value`, one of the two `units`.
        """
        if unit == self.units[0]:
            return (value - self.offset) * self.factor
        return value / self.factor + self.offset


@lru_cache(maxsize=1)
def word_lists() -> SimpleNamespace:
    """Return the lists and tables of perturbations.yml, as attributes."""
    lists = packaged("tasks/perturbations.yml")
    analytes = [
        Analyte(
            tuple(entry["names"]),
            tuple(entry["units"]),
            Decimal(entry["factor"]),
            Decimal(entry.get("offset", 0)),
            tuple(Decimal(str(value)) for value in entry.get("thresholds", ())),
        )
        for entry in lists["analytes"]
    ]
    # The list of `Analyte` replaces the plain list of the file.
    return SimpleNamespace(**{**lists, "analytes": analytes})


@dataclass(frozen=True)
class PromptParts:
    """The parts of a question, and the random generator that chooses among changes."""

    # the part that may be changed: the text before the options, and before a last line that asks
    # for the answer
    head: str
    tail: str  # the rest of the question
    context: str  # unchanged text that is sent with the question, such as choices
    rng: random.Random

    @property
    def all(self) -> str:
        """The three texts together."""
        return f"{self.head}{self.tail}\n{self.context}"


@lru_cache(maxsize=16)
def pattern_of(words: tuple[str, ...], cased: bool = False) -> re.Pattern[str]:
    """Return the pattern that finds these words, as complete words.

    If two of the words begin at one position, the longer word is found. The pattern does not match
    a part of a word with a hyphen or a slash.

    Args:
        words: the words or phrases to find.
        cased: True if the pattern distinguishes upper and lower case.
    """
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![\w/-])(?:{listed})(?![\w/-])", 0 if cased else re.IGNORECASE)


def guarded(parts: PromptParts, words: Iterable[str]) -> bool:
    """Return True if one of the words occurs in the question or its context and forbids a change.

    Args:
        parts: the parts of the question.
        words: the beginnings of the words that forbid the change. A word with `$` at its end must
            occur as a complete word, or as its plural with "s".
    """
    return _guard(tuple(words)).search(parts.all) is not None


@lru_cache(maxsize=16)
def _guard(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that finds words that begin with one of these words.

    A word with `$` at its end is found only as a complete word or its plural with "s". A word in
    lower case is found in upper and lower case; any other word only as it is written. Damaged
    spellings (see `_spellings`) are found too.
    """
    parts = []
    for word in words:
        for spelling in _spellings(word):
            start = re.escape(spelling.rstrip("$"))
            if word.islower():
                start = f"(?i:{start})"
            if word.endswith("$"):
                start = rf"{start}s?(?!\w)"
            parts.append(start)
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})")


_LOST_LETTERS = "rt"
"""The letter pair that is missing in many words of MedMCQA's published rows: "aboion" (abortion),
"hypeension" (hypertension).
"""
_SHORTEST_SPELLING = 5  # a damaged spelling with fewer letters must be a complete word


def _spellings(word: str) -> list[str]:
    """Return the word, and also the word without `_LOST_LETTERS` if it contains them.

    A short spelling gets a `$`: otherwise too many other words would begin with it.
    """
    damaged = word.replace(_LOST_LETTERS, "")
    if damaged == word:
        return [word]
    if len(damaged.rstrip("$")) < _SHORTEST_SPELLING and not damaged.endswith("$"):
        damaged += "$"
    return [word, damaged]


def in_case_of(old: str, new: str) -> str:
    """Return the new word, with a capital letter if the old word begins with a capital letter."""
    if old[0].isupper():
        return new[0].upper() + new[1:]
    return new


def clashes(before: str, old: str, new: str) -> bool:
    """Return True if "a" or "an" stands before the old word and does not fit the new word.

    Example: "an elevated" would become "an raised".

    Args:
        before: the text before the old word.
        old: the old word.
        new: the new word.
    """
    old_has_vowel = old[0].lower() in "aeiou"
    new_has_vowel = new[0].lower() in "aeiou"
    has_article = re.search(r"\ban?\s+\Z", before, re.IGNORECASE) is not None
    return has_article and old_has_vowel != new_has_vowel


def with_changes(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with each change made.

    Args:
        text: the complete text.
        changes: (start, end, new text) of each change. `end` is the position after the last
            replaced character. Changes must not overlap.
    """
    # The last change is made first, so that the positions of the other changes stay valid.
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text
