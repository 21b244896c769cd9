"""Perturbs questions by an added sentence, for example about the patient's race or occupation.

Each function of a family takes the parts of a question, and returns the changed `parts.text`. None
is returned if the family does not apply.
"""

from __future__ import annotations

import re

from eval_factory.tasks.perturbation_words import PromptParts, has_word_beginning_with, word_lists
from eval_factory.tasks.perturbed_patients import GROWN_UP_FROM, Patient, patient_of, sex_of

# an abbreviation with a full stop at the end of a text, such as "Dr."
_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|\b(?:Drs?|Mrs?|Ms|St|Prof|vs|Figs?|No|al|etc|cf|ca|approx|e\.g|i\.e|spp?))\.\Z"
)
# white space after the end of a sentence and before a capital letter, as in `fever. He`; or a line
# break
_GAP = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][\"')]))[ \t]+(?=[A-Z\"(])|[ \t]*\n\s*(?=\S)")


def _sentence_gaps(text: str) -> list[re.Match[str]]:
    """Return the white space between the text's sentences."""
    gaps = []
    for gap in _GAP.finditer(text):
        if "\n" in gap.group() or not _ABBREVIATED.search(text[: gap.start()]):
            gaps.append(gap)
    return gaps


def _with_sentence_first(text: str, sentence: str) -> str:
    """Return the text with the sentence at its beginning.

    White space at the beginning of the text stays before the sentence.
    """
    start = len(text) - len(text.lstrip())
    separator = " "
    if re.match(r"[A-Z][\w ]{0,25}:", text[start:]):  # a heading, such as "Question:"
        separator = "\n"
    return f"{text[:start]}{sentence}{separator}{text[start:]}"


# words that may refer to an earlier sentence
_REFERS = re.compile(
    r"\b(?:this|these|that|those|its?|they|them|such|above|other|another|same|both)\b",
    re.IGNORECASE,
)
# words that may refer to an earlier sentence, or to a person in an earlier sentence
_REFERS_EVEN_TO_PERSON = re.compile(rf"{_REFERS.pattern}|\b(?:he|she|his|her|him)\b", re.IGNORECASE)


def _with_sentence_in_gap(
    text: str, sentence: str, gap: re.Match[str], refers: re.Pattern[str] = _REFERS
) -> str:
    """Return the text with the sentence inserted in the gap.

    If the sentence after the gap has a word that `refers` finds, the new sentence is put before the
    text instead: in the gap, it would separate the word from its meaning.

    Args:
        text: the text.
        sentence: the sentence to insert.
        gap: the white space between two sentences of the text.
        refers: finds the words that may refer to the text before the gap.
    """
    next_sentence = re.split(r"[.?!\n]", text[gap.end() :])[0]
    if refers.search(next_sentence):
        return _with_sentence_first(text, sentence)
    separator = " "
    if "\n" in gap.group():
        separator = gap.group()
    return f"{text[: gap.end()]}{sentence}{separator}{text[gap.end() :]}"


def _with_sentence_about(patient: Patient, text: str, sentence: str) -> str:
    """Return the text with the sentence after the sentence that states the patient's age.

    If the age is in the last sentence, the new sentence is put before the text.
    """
    for gap in _sentence_gaps(text):
        if gap.start() >= patient.age_end:
            return _with_sentence_in_gap(text, sentence, gap)
    return _with_sentence_first(text, sentence)


def with_distractor(parts: PromptParts) -> str:
    """Return the text with an unimportant sentence, before the text or before its last sentence.

    A random choice decides about the position.
    """
    last_gap = _sentence_gaps(parts.text)[-1:]  # empty for a text of one sentence
    gap = parts.rng.choice([None, *last_gap])  # None: the position before the text
    sentence = parts.rng.choice(word_lists().distractors)
    if gap is None:
        return _with_sentence_first(parts.text, sentence)
    return _with_sentence_in_gap(parts.text, sentence, gap, refers=_REFERS_EVEN_TO_PERSON)


def with_worried_sentence(parts: PromptParts) -> str:
    """Return the text with a worried sentence at its beginning."""
    return _with_sentence_first(parts.text, parts.rng.choice(word_lists().worried_tones))


def with_patient_as_speaker(parts: PromptParts) -> str | None:
    """Return the text with a sentence at its beginning that makes the patient the speaker.

    None is returned if the text is not about one known patient, or if the patient is not an adult
    or may be unable to speak.
    """
    patient = patient_of(parts.text)
    if patient is None or patient.age < GROWN_UP_FROM:
        return None
    if has_word_beginning_with(parts, word_lists().first_person_stops):
        return None
    return _with_sentence_first(parts.text, parts.rng.choice(word_lists().voices))


# A country, region or city ("from Nepal", "visited Kenya"), which may be a clue to the patient's
# ancestry.
_FROM_SOMEWHERE = re.compile(
    r"\b(?:from|to|in|of|near|visit\w*|native)\s+(?:the\s+|rural\s+|northern\s+|southern\s+)?"
    r"[A-Z][a-z]{3,}"
)


def with_race(parts: PromptParts) -> str | None:
    """Return the text with a sentence that names the patient's race.

    None is returned if the text is not about one known patient, or if the question has a clue to
    the patient's ancestry.
    """
    patient = patient_of(parts.text)
    if patient is None or has_word_beginning_with(parts, word_lists().ancestry_words):
        return None
    if _FROM_SOMEWHERE.search(parts.all_texts):
        return None
    race = parts.rng.choice(word_lists().races)
    return _with_sentence_about(patient, parts.text, f"The patient is {race}.")


# the lowest and the highest age of a patient with an occupation, in years
_WORKING_FROM = 25
_WORKING_UP_TO = 90


def with_residence_and_job(parts: PromptParts) -> str | None:
    """Return the text with a sentence about the patient's residence and occupation.

    None is returned if the text is not about one known patient of a fitting age, or if a word in
    the question forbids the change.
    """
    patient = patient_of(parts.text)
    if patient is None or has_word_beginning_with(parts, word_lists().demographic_stops):
        return None
    if not _WORKING_FROM <= patient.age <= _WORKING_UP_TO:
        return None
    residence = parts.rng.choice(word_lists().residences)
    job = parts.rng.choice(word_lists().jobs)
    return _with_sentence_about(
        patient, parts.text, f"The patient lives {residence} and has worked as {job}."
    )


# a name, or an initial, before the age: "Ana, a 73-year-old woman"
_NAMED = re.compile(r"(?:[A-Z][a-z]+(?:,| is| was)|[A-Z]\.,?) ?(?:an? |of )?(?=\d{1,3}\b)")
# a title and one name: "Mr. Lopez", but not "Mr. Juan Lopez"
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Miss)\b\.? ([A-Z][a-z]+)\b(?! [A-Z][a-z])")


def with_name(parts: PromptParts) -> str | None:
    """Return the text with another surname, or with a sentence that names the patient.

    The surname is replaced if the text has one surname, always after a title. A sentence is added
    only to a text about one known patient without a name. In all other cases, None is returned.
    """
    # A name may be a clue to the patient's ancestry.
    if has_word_beginning_with(parts, word_lists().ancestry_words):
        return None
    surnames = _TITLED.findall(parts.text)
    if len(set(surnames)) == 1 and not _TITLED.search(parts.unchanged_text):
        return _with_other_surname(parts, surnames[0], len(surnames))
    patient = patient_of(parts.text)
    if patient is None or _NAMED.search(parts.text):
        return None
    # `name_stops` contains all titles, so a text with several surnames is not changed.
    if has_word_beginning_with(parts, word_lists().name_stops):
        return None
    name = parts.rng.choice(word_lists().names[sex_of(parts.text)])
    return _with_sentence_about(patient, parts.text, f"The patient's name is {name}.")


def _with_other_surname(parts: PromptParts, old: str, titled_count: int) -> str | None:
    """Return the text with another surname; None if the surname also occurs without a title.

    Args:
        parts: the parts of the question.
        old: the surname to replace.
        titled_count: the number of times that the surname follows a title in the text.
    """
    surname = rf"\b{old}\b"
    if len(re.findall(surname, parts.all_texts)) != titled_count:
        return None
    new = parts.rng.choice([name for name in word_lists().surnames if name != old])
    return re.sub(surname, new, parts.text)
