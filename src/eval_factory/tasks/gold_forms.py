"""Reads right answers that a table writes neither as the option's letter nor as the option's text.

Published tables number options from 1 or from 0, or write `opa`, `B. text`, or the option's text in
another letter case. If one of these forms matches every right answer of a column, each answer is
mapped to its option's letter. If two forms match but give different letters, no answer is mapped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Options = Mapping[str, str]
"""Dict from a letter to the text of the option with this letter in the prompt."""

_MARKED = re.compile(r"\W{0,2}([A-Za-z])\W{0,2}")  # "(b)"
_WITH_TEXT = re.compile(r"\W?([A-Za-z])[.:)\]-]\s*(.+)", re.DOTALL)  # "B. fever"
# "opb", "option_b"
_NAMED = re.compile(r"(?:op|opt|option|choice|ans|answer)[ _-]?([A-Za-z])", re.IGNORECASE)
# "2", "2.0", "option2"
_NUMBER = re.compile(
    r"(?:(?:op|opt|option|choice|ans|answer)[ _-]?)?(\d{1,2})(?:\.0+)?", re.IGNORECASE
)
_LOOK_ALIKES = dict(zip("\u0410\u0412\u0421\u0415", "ABCE", strict=True))
"""Dict from a Cyrillic letter to the Latin letter that looks the same."""
_CYRILLIC = dict(zip("\u0410\u0411\u0412\u0413\u0414\u0415", "ABCDEF", strict=True))
"""Dict from a Cyrillic letter to the Latin letter with the same position in the alphabet."""


def _option_letter(letter: str, options: Options) -> str | None:
    """Return a letter in upper case; None if no option has this letter."""
    if letter.upper() in options:
        return letter.upper()
    return None


def _marked(answer: str, options: Options) -> str | None:
    """Read a letter with other characters around it: "(b)"."""
    match = _MARKED.fullmatch(answer)
    if match is not None:
        return _option_letter(match[1], options)
    return None


def _with_text(answer: str, options: Options) -> str | None:
    """Read a letter with its option's text: "B. fever"."""
    match = _WITH_TEXT.fullmatch(answer)
    if match is None:
        return None
    letter = _option_letter(match[1], options)
    if letter is None or _plain(options[letter]) != _plain(match[2]):
        return None
    return letter


def _in_other_case(answer: str, options: Options) -> str | None:
    """Read "Fever" if exactly one option has the text "fever", apart from spaces and full stops."""
    letters = []
    for letter, text in options.items():
        if _plain(text) == _plain(answer):
            letters.append(letter)
    if len(letters) != 1:
        return None
    return letters[0]


def _named(answer: str, options: Options) -> str | None:
    """Read a letter after a word: "opb" or "option_b"."""
    match = _NAMED.fullmatch(answer)
    if match is not None:
        return _option_letter(match[1], options)
    return None


def _numbered(answer: str, options: Options, first: int) -> str | None:
    """Read the number of an option; the first option has the number `first`."""
    match = _NUMBER.fullmatch(answer)
    if match is None:
        return None
    index = int(match[1]) - first
    letters = sorted(options)
    if not (0 <= index < len(letters)):
        return None
    return letters[index]


def _from_one(answer: str, options: Options) -> str | None:
    """Read the number of an option, counted from 1: "2", "2.0" or "option2"."""
    return _numbered(answer, options, first=1)


def _from_zero(answer: str, options: Options) -> str | None:
    """Read the number of an option, counted from 0: "1" is the second option."""
    return _numbered(answer, options, first=0)


def _look_alike(answer: str, options: Options) -> str | None:
    """Read a Cyrillic letter that looks like the option's Latin letter, or the Latin letter."""
    letter = _LOOK_ALIKES.get(answer.strip(".) ").upper(), answer)
    return _option_letter(letter, options)


def _cyrillic(answer: str, options: Options) -> str | None:
    """Read the Cyrillic letter with the option's position in the alphabet, or the Latin letter."""
    letter = _CYRILLIC.get(answer.strip(".) ").upper(), answer)
    return _option_letter(letter, options)


def _plain(text: str) -> str:
    """Return the text in lower case, with single spaces and without full stops at its end."""
    return " ".join(text.casefold().split()).rstrip(".")


FORMS: dict[str, Callable[[str, Options], str | None]] = {
    "letters with other characters around them": _marked,
    "letters with their option's text": _with_text,
    "options' texts in another letter case": _in_other_case,
    "letters after a word such as op": _named,
    "numbers from 1": _from_one,
    "numbers from 0": _from_zero,
    "Cyrillic letters that look like Latin ones": _look_alike,
    "Cyrillic letters": _cyrillic,
}
"""Dict from the name of a form in messages to the function that reads the form.

The function returns the letter of the option that an answer means; None if the answer does not have
this form.
"""


def is_option(answer: str, options: Options) -> bool:
    """Return True if an answer is exactly the letter or the text of an option."""
    return answer in options or answer in options.values()


@dataclass
class GoldForms:
    """The forms that match all right answers of a column so far. No answer is stored."""

    are_options: bool = True
    """True if each answer so far is exactly the letter or the text of an option; True without
    answers.
    """
    count: int = 0
    """The number of answers so far."""
    _hashes: dict[str, str] = field(default_factory=lambda: dict.fromkeys(FORMS, ""))
    """Dict from each form that matches all answers so far to a hash of the letters that it reads.
    Forms that read the same letters have the same hash.
    """

    def add(self, answer: str, options: Options) -> None:
        """Try one more right answer, and drop the forms that do not match the answer."""
        self.count += 1
        self.are_options = self.are_options and is_option(answer, options)
        for name, previous_hash in list(self._hashes.items()):
            letter = FORMS[name](answer, options)
            if letter is None:
                del self._hashes[name]
            else:
                # The previous hash is included, so the new hash covers all letters so far.
                text = f"{previous_hash}{letter}"
                self._hashes[name] = hashlib.sha256(text.encode()).hexdigest()

    def form(self) -> str | None:
        """Return the name of the form that maps all answers to letters; None without such a form.

        There is no such form if all answers are already letters or texts of options, or if two
        forms match all answers but read different letters.
        """
        if self.are_options:
            return None
        different_readings = set(self._hashes.values())
        if len(different_readings) != 1:
            return None
        # All remaining forms read the same letters, so any of them may be returned.
        return next(iter(self._hashes))


def right_letters(pairs: Sequence[tuple[str, Options]]) -> list[str]:
    """Return the options' letters of right answers that all have one of `FORMS`.

    The list is empty if the answers are already letters or texts of options, if a question has no
    options, or if `GoldForms.form` finds no form.

    Args:
        pairs: (right answer, options) of each question.
    """
    forms = GoldForms()
    for answer, options in pairs:
        if not options:
            return []
        forms.add(answer.strip(), options)
    name = forms.form()
    if name is None:
        return []
    letters = []
    for answer, options in pairs:
        # The form matches every answer, so its function does not return None here.
        letters.append(str(FORMS[name](answer.strip(), options)))
    return letters
