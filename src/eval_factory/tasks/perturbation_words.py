"""The words that a question's wording is changed with, and how they are found in it: perturbations.yml."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from eval_factory.core.plain_yaml import packaged
from eval_factory.core.strict_model import StrictModel


class _Refusal(StrictModel):
    families: tuple[str, ...] | Literal["all"]
    reason: str


class _TaskClass(StrictModel):
    tasks: tuple[str, ...]
    not_offered: tuple[_Refusal, ...]


class _Spelling(StrictModel):
    anywhere: dict[str, str]
    start: dict[str, str]
    whole: dict[str, str]


class _Names(StrictModel):
    female: tuple[str, ...]
    male: tuple[str, ...]
    either: tuple[str, ...]


class Analyte(StrictModel):
    names: tuple[str, ...]
    units: tuple[str, str]
    factor: Decimal
    offset: Decimal = Decimal(0)
    thresholds: tuple[Decimal, ...] = ()

    def exact(self, value: Decimal, unit: str) -> Decimal:
        """A value in one of its units, in the other."""
        first = unit == self.units[0]
        return (value - self.offset) * self.factor if first else value / self.factor + self.offset


class Data(StrictModel):
    version: int
    classes: dict[str, _TaskClass]
    english: tuple[str, ...]
    foreign: tuple[str, ...]
    negations: tuple[str, ...]
    typo_words: str
    never_made: tuple[str, ...]
    synonyms: dict[str, str]
    spelling: _Spelling
    distractors: tuple[str, ...]
    worried_tones: tuple[str, ...]
    voices: tuple[str, ...]
    races: tuple[str, ...]
    residences: tuple[str, ...]
    jobs: tuple[str, ...]
    names: _Names
    surnames: tuple[str, ...]
    sex_words: tuple[str, ...]
    ancestry_words: tuple[str, ...]
    first_person_stops: tuple[str, ...]
    demographic_stops: tuple[str, ...]
    name_stops: tuple[str, ...]
    name_question: tuple[str, ...]
    salts: tuple[str, ...]
    unit_question: tuple[str, ...]
    object_before: tuple[str, ...]
    two_objects: tuple[str, ...]
    brands: dict[str, str]
    analytes: tuple[Analyte, ...]
    other_analytes: tuple[str, ...]
    range_words: tuple[str, ...]
    value_words: tuple[str, ...]


@lru_cache(maxsize=1)
def data() -> Data:
    return Data.model_validate(packaged("tasks/perturbations.yml"))


@dataclass(frozen=True)
class Asked:
    head: str  # what may be changed: the text before its options and before a last line that asks for the answer
    tail: str
    beside: str
    chance: random.Random

    @property
    def all(self) -> str:
        return f"{self.head}{self.tail}\n{self.beside}"


@lru_cache(maxsize=16)
def any_of(words: tuple[str, ...], cased: bool = False) -> re.Pattern[str]:
    """Finds whole words, the longest first; no part of a word with a hyphen or a slash."""
    listed = "|".join(re.escape(one) for one in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![\w/-])(?:{listed})(?![\w/-])", 0 if cased else re.IGNORECASE)


def guarded(asked: Asked, words: tuple[str, ...]) -> bool:
    """Whether one of a guard's words stands in the text, or in what is asked with it."""
    return _guard(words).search(asked.all) is not None


@lru_cache(maxsize=16)
def _guard(words: tuple[str, ...]) -> re.Pattern[str]:
    parts = []
    for one in words:
        start = re.escape(one.rstrip("$"))
        start = f"(?i:{start})" if one.islower() else start
        parts.append(rf"{start}s?(?!\w)" if one.endswith("$") else start)
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})")


def in_case_of(old: str, new: str) -> str:
    return new[0].upper() + new[1:] if old[0].isupper() else new


def clashes(before: str, old: str, new: str) -> bool:
    """Whether the article in front fits the old word alone: an elevated, a raised."""
    vowels = [one[0].lower() in "aeiou" for one in (old, new)]
    return vowels[0] != vowels[1] and re.search(r"\ban?\s+\Z", before, re.IGNORECASE) is not None


def put(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """The text with each part, from where to where, replaced."""
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text
