"""Reads the word lists of perturbations.yml, and finds and replaces their words in questions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import SimpleNamespace

from eval_factory.core.plain_yaml import load_packaged


@dataclass(frozen=True)
class Analyte:
    """A laboratory value or body temperature, and the conversion between its two units."""

    names: tuple[str, ...]
    units: tuple[str, str]
    # value in the second unit = (value in the first unit - `offset`) * `factor`
    factor: Decimal
    offset: Decimal = Decimal(0)  # 0 for all laboratory values
    # values, in either unit, that are never converted: a recommendation changes at such a value
    thresholds: tuple[Decimal, ...] = ()

    def unrounded(self, value: Decimal, unit: str) -> Decimal:
        """Return the exact result of converting a value to the other unit.

        `unit`: the unit of `value`, one of the two `units`.
        """
        if unit == self.units[0]:
            return (value - self.offset) * self.factor
        return value / self.factor + self.offset


@lru_cache(maxsize=1)
def word_lists() -> SimpleNamespace:
    """Return the lists and tables of perturbations.yml, as attributes."""
    lists = load_packaged("tasks/perturbations.yml")
    analytes = []
    for entry in lists["analytes"]:
        thresholds = tuple(Decimal(str(value)) for value in entry.get("thresholds", ()))
        analyte = Analyte(
            names=tuple(entry["names"]),
            units=tuple(entry["units"]),
            factor=Decimal(entry["factor"]),
            offset=Decimal(entry.get("offset", 0)),
            thresholds=thresholds,
        )
        analytes.append(analyte)
    # The list of `Analyte` replaces the plain list of the file.
    return SimpleNamespace(**{**lists, "analytes": analytes})


@dataclass(frozen=True)
class PromptParts:
    """The parts of a question, and the random generator that chooses among changes."""

    # the text that may be changed: it ends before the options, or before a last line that asks for
    # the answer
    text: str
    tail: str  # the unchanged text after `text`
    context: str  # unchanged text that is sent with the question, such as choices
    rng: random.Random

    @property
    def unchanged_text(self) -> str:
        """The two texts that are never changed."""
        return f"{self.tail}\n{self.context}"

    @property
    def all_texts(self) -> str:
        """The three texts together."""
        return f"{self.text}{self.tail}\n{self.context}"


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
    flags = 0 if cased else re.IGNORECASE
    return re.compile(rf"(?<![\w/-])(?:{listed})(?![\w/-])", flags)


def has_word_beginning_with(parts: PromptParts, beginnings: Iterable[str]) -> bool:
    """Return True if the question or its context has a word with one of the beginnings.

    Args:
        parts: the parts of the question.
        beginnings: a list of perturbations.yml. A beginning with `$` at its end must occur as a
            complete word, or as its plural with "s".
    """
    return _pattern_of_beginnings(tuple(beginnings)).search(parts.all_texts) is not None


@lru_cache(maxsize=16)
def _pattern_of_beginnings(beginnings: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that finds words with one of these beginnings.

    A beginning with `$` at its end is found only as a complete word or its plural with "s". A
    beginning in lower case is found in upper and lower case; any other beginning only as it is
    written. Damaged spellings (see `_spellings`) are found too.
    """
    alternatives = []
    for beginning in beginnings:
        for spelling in _spellings(beginning):
            pattern = re.escape(spelling.rstrip("$"))
            if beginning.islower():
                pattern = f"(?i:{pattern})"
            if beginning.endswith("$"):
                pattern = rf"{pattern}s?(?!\w)"
            alternatives.append(pattern)
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})")


_LOST_LETTERS = "rt"
"""The letter pair that is missing in many words of MedMCQA's published rows: "aboion" (abortion),
"hypeension" (hypertension).
"""


def _spellings(beginning: str) -> list[str]:
    """Return the beginning, and also its damaged spelling if it contains `_LOST_LETTERS`."""
    damaged = beginning.replace(_LOST_LETTERS, "")
    if damaged == beginning:
        return [beginning]
    return [beginning, damaged]


def with_case_of(old: str, new: str) -> str:
    """Return the new word, with a capital letter if the old word begins with a capital letter."""
    if old[0].isupper():
        return new[0].upper() + new[1:]
    return new


def article_clashes(before: str, old: str, new: str) -> bool:
    """Return True if "a" or "an" stands before the old word and does not fit the new word.

    Example: "an elevated" would become "an raised".

    Args:
        before: the text before the old word.
        old: the old word.
        new: the new word.
    """
    old_has_vowel = old[0].lower() in "aeiou"
    new_has_vowel = new[0].lower() in "aeiou"
    has_article = re.search(r"\ban?\s+\Z", before, re.IGNORECASE) is not None  # "a ", "an "
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
