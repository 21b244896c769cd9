"""Finds the one patient of a question, and perturbs questions by the sex of this patient."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from eval_factory.tasks.perturbation_words import (
    PromptParts,
    has_word_beginning_with,
    with_case_of,
    with_changes,
    word_lists,
)

# An age, such as "45-year-old", "aged 45" or "a man of 45". The group `following` is the text after
# the age, at most 40 characters of the same clause.
_AGE = re.compile(
    r"\b(?:(?P<number>\d{1,3})[- ]?(?P<unit>years?|yrs?|y|months?|weeks?|days?|hours?)[-. ]?"
    r"(?:old|of age|o\b)"
    r"|(?:aged|(?:m[ae]n|male|boy|girl|patient|person) of) (?P<years>\d{1,3})"
    r"(?: years)?)\b"
    r"(?P<following>[^.;,]{0,40})",
    re.IGNORECASE,
)
# a word for one person
_SOMEBODY = re.compile(r"\b(?:patient|man|woman|boy|girl|male|female|he|she)\b", re.IGNORECASE)
# a word for several persons: an age before this word is the age of several patients
_SEVERAL = re.compile(
    r"\b(?:patients|women|men|adults|children|twins|males|females|subjects|volunteers|people)\b"
)


class Patient(NamedTuple):
    """The one patient that a text is about."""

    age: int  # in complete years; 0 for an age in months, weeks, days or hours
    age_end: int  # the position after the age in the text


def patient_of(text: str) -> Patient | None:
    """Return the patient of the text.

    None is returned in each of these cases:

    - The text does not state exactly one age.
    - The age is that of several patients.
    - The text has no word for a person.
    """
    ages = list(_AGE.finditer(text))
    if len(ages) != 1:
        return None
    stated = ages[0]
    if _SEVERAL.search(stated["following"]) or not _SOMEBODY.search(text):
        return None
    years = 0
    unit = stated["unit"] or "years"
    if unit.lower().startswith("y"):
        years = int(stated["number"] or stated["years"])
    return Patient(years, stated.end())


GROWN_UP_FROM = 18  # the lowest age of an adult, in years
_CHILD_UP_TO = 12  # the highest age of a child, in years
_CHILD = re.compile(r"\b(?:boy|girl)\b", re.IGNORECASE)
_GROWN_UP = re.compile(r"\b(?:m[ae]n|wom[ae]n|lady|gentleman)\b", re.IGNORECASE)


def _contradicts_age(text: str, years: int) -> bool:
    """Return True if a word for a person does not fit the age: a boy in a text on a man of 24."""
    if years >= GROWN_UP_FROM:
        return _CHILD.search(text) is not None
    return years <= _CHILD_UP_TO and _GROWN_UP.search(text) is not None


_TO_MALE = {
    "she": "he",
    "herself": "himself",
    "woman": "man",
    "female": "male",
    "girl": "boy",
    "lady": "gentleman",
}
_TO_FEMALE = {male: female for female, male in _TO_MALE.items()} | {"him": "her"}
# No table has these words or "his" as a key: `_other_pronoun` chooses their replacement.
_HERS = ("her", "hers")
# any word for one sex, except in "man-made"
_GENDERED = re.compile(
    rf"(?<![\w/])(?:{'|'.join([*_TO_MALE, *_HERS, *_TO_FEMALE, 'his'])})(?![\w/]|-made)",
    re.IGNORECASE,
)


def sex_of(text: str) -> Literal["female", "male", "either"]:
    """Return the sex of all words for persons; "either" if there are no such words, or both."""
    female_words = {*_TO_MALE, *_HERS}
    sexes: set[Literal["female", "male"]] = set()
    for word in _GENDERED.findall(text):
        if word.lower() in female_words:
            sexes.add("female")
        else:
            sexes.add("male")
    if len(sexes) != 1:
        return "either"
    return sexes.pop()


def with_other_sex(parts: PromptParts) -> str | None:
    """Return the text with all words for the patient in the other sex.

    None is returned in each of these cases:

    - The text is not about one known patient, or a word for a person does not fit the age.
    - No word for a sex occurs, or words for both sexes occur.
    - The unchanged text has a word for one sex.
    - A word for a sex is in capitals, or is a pronoun whose replacement is uncertain.
    - The answer may depend on the sex.
    """
    patient = patient_of(parts.text)
    if patient is None or _contradicts_age(parts.all_texts, patient.age):
        return None
    sex = sex_of(parts.all_texts)
    if sex == "either" or _GENDERED.search(parts.unchanged_text):
        return None
    if has_word_beginning_with(parts, word_lists().sex_words):
        return None
    table = _TO_FEMALE
    if sex == "female":
        table = _TO_MALE
    changes = []  # (start, end, new text)
    for word in _GENDERED.finditer(parts.text):
        old = word.group()
        # A word in capitals may be an abbreviation.
        if old.isupper() and len(old) > 1:
            return None
        new = table.get(old.lower())
        if new is None:
            before = parts.text[: word.start()]
            after = parts.text[word.end() :]
            new = _other_pronoun(old.lower(), before, after)
        if new is None:
            return None
        changes.append((*word.span(), with_case_of(old, new)))
    return with_changes(parts.text, changes)


def _other_pronoun(old: str, before: str, after: str) -> str | None:
    """Return the pronoun of the other sex for "her", "hers" or "his".

    None is returned if the words around the pronoun do not decide: "her" becomes "him" or "his".
    "his" without a noun after it ("the choice is his") is not changed.

    Args:
        old: the pronoun.
        before: the text before the pronoun.
        after: the text after the pronoun.
    """
    if old == "hers":
        return "his"
    next_word = re.match(r"\s+['\"]?([\w-]+)", after)  # ' sister', ' "sister'
    # True if no noun follows: then "her" is an object ("saw her and left")
    is_alone = next_word is None or next_word[1].lower() in word_lists().object_before
    if old == "his":
        if is_alone:
            return None
        return "her"
    if is_alone:
        return "him"
    last_word = re.search(r"(\w+)\s+\Z", before)
    if last_word and last_word[1].lower() in word_lists().two_objects:
        return None  # "gave her water" means "him", and "gave her sister water" means "his"
    return "his"
