"""Perturbs questions: a family of perturbations changes the wording and keeps the right answer.

`perturbed` returns None for a question whose right answer might change. perturbations.yml holds
most word lists: the words that are replaced, and the words that forbid a change.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Literal, NamedTuple

from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.perturbation_words import (
    Analyte,
    PromptParts,
    clashes,
    guarded,
    in_case_of,
    pattern_of,
    with_changes,
    word_lists,
)


def not_offered(family: str, task_name: str) -> str | None:
    """Return the reason why a family is not offered for a task.

    None is returned if the family is offered, or if perturbations.yml does not list the task.
    """
    for questions in word_lists().classes.values():
        if task_name not in questions["tasks"]:
            continue
        for refusal in questions["not_offered"]:
            if refusal["families"] == "all" or family in refusal["families"]:
                return str(refusal["reason"])
    return None


def perturbed(family: str, text: str, instance_id: str, context: str = "") -> str | None:
    """Return the question as the family words it.

    None is returned if the family does not apply, if the right answer might change, if the question
    is not in English, or if it contains several lists of options.

    Args:
        family: a name of `FAMILIES`.
        text: the question.
        instance_id: the id of the instance; it seeds the random choices, together with the family.
        context: text that is sent with the question and never changed, such as choices that are not
            part of `text`. Words in this text can forbid a change too.

    Raises:
        KeyError: `FAMILIES` does not have the family.
    """
    change = FAMILIES[family].change
    head_and_tail = _split_changeable(text)
    if head_and_tail is None or not _is_english(text):
        return None
    head, tail = head_and_tail
    seed = hashlib.sha256(f"perturbation {family} of {instance_id}".encode()).digest()
    rng = random.Random(seed)  # noqa: S311  no secret depends on these random numbers
    changed = change(PromptParts(head, tail, context, rng))
    if changed is None or changed == head:
        return None
    return changed + tail


# The letter of the first option: "A.", "A:", "A)" or "(A)" at the start of a line, and only "A)" or
# "(A)" within a line.
_FIRST_OPTION = re.compile(r"(?:^[ \t]*[(\[]?A[.:)\]]|(?<=[ \t])\(?A\))[ \t]+(?=\S)", re.MULTILINE)
# The end of a text: a last line that asks for the answer, such as "Please answer with a letter", if
# there is such a line, and white space. This pattern matches every text.
_LAST_LINE = re.compile(
    r"\s*(?:\n[ \t]*(?:(?:please|your|final|the|best)\s+)*"
    r"(?:answer|respon[ds]e?|reply|choose|select|output|return)\b[^\n]*)?\s*\Z",
    re.IGNORECASE,
)


def _split_changeable(text: str) -> tuple[str, str] | None:
    """Return the part of the text that may be changed, and the rest of the text.

    None is returned for a text with several lists of options: such a text contains examples.
    """
    end = len(text)
    if options_shown(text):
        first, *others = _FIRST_OPTION.finditer(text)
        if others:
            return None
        end = first.start()
    last_line = _LAST_LINE.search(text[:end])
    if last_line:
        end = last_line.start()
    return text[:end], text[end:]


_FEW_WORDS = 8  # a text with fewer words is short
_WORDS_PER_TYPO = 20  # the number of words of five letters or more for one typing error
_GAPS_PER_CHANGE = 8  # the number of gaps between words for one gap with additional blanks


def _is_english(text: str) -> bool:
    """Return True if the text has listed English words, and at most as many listed foreign words.

    Also return True for a short ASCII text without any listed word.
    """
    words = re.findall(r"[^\W\d_]+", text.lower())
    english_words = set(word_lists().english)
    foreign_words = set(word_lists().foreign)
    english = sum(word in english_words for word in words)
    foreign = sum(word in foreign_words for word in words)
    if foreign > english:
        return False
    # A short English text may have none of the listed words.
    is_short = len(words) < _FEW_WORDS and text.isascii()
    return english > 0 or is_short


def _typos(parts: PromptParts) -> str | None:
    """Return the text with typing errors, in one word of twenty, and in at least one word.

    Words with fewer than five letters are not counted. Only words of the list `typo_words` get an
    error. None is returned if the text has no word of this list.
    """
    typo_words = set(word_lists().typo_words.split())
    words = list(re.finditer(r"(?<![\w/-])[A-Za-z]{5,}(?![\w/-])", parts.head))
    ordinary = [word for word in words if word.group() in typo_words]
    if not ordinary:
        return None
    wanted = max(1, round(len(words) / _WORDS_PER_TYPO))
    count = min(wanted, len(ordinary))
    changes = []
    for word in parts.rng.sample(ordinary, count):
        changes.append((*word.span(), _mistyped(word.group(), parts.rng)))
    return with_changes(parts.head, changes)


def _mistyped(word: str, rng: random.Random) -> str:
    """Return the word with two inner letters swapped, or one inner letter missing or doubled.

    The result is never a word of the lists `typo_words` and `never_made`.
    """
    inner = range(1, len(word) - 1)
    swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in inner[:-1]]
    missing = [word[:i] + word[i + 1 :] for i in inner]
    doubled = [word[:i] + word[i] + word[i:] for i in inner]
    real_words = {word, *word_lists().typo_words.split(), *word_lists().never_made}
    forms = [form for form in (*swapped, *missing, *doubled) if form not in real_words]
    return rng.choice(forms)


# A capitalized word. Words of two letters are listed here, because any other capital letter with a
# small letter may be a symbol (Na, Hg, Pa).
_WORD = re.compile(
    r"(?:He|In|It|Is|At|An|As|By|Do|If|Of|On|Or|So|To|Up|We|My|Be|Me)|[A-Z][a-z]{2,}"
)


def _case(parts: PromptParts) -> str:
    """Return the text with capitalized words in lower case.

    Symbols, abbreviations and negations stay unchanged.
    """
    negations = set(word_lists().negations)

    def lowered(match: re.Match[str]) -> str:
        token = match.group()
        if _WORD.fullmatch(token) and token.lower() not in negations:
            return token.lower()
        return token

    return re.sub(r"[^\W_]+", lowered, parts.head)


def _spaces(parts: PromptParts) -> str | None:
    """Return the text with additional blanks between some words; None if there is no gap."""
    gaps = list(re.finditer(r"(?<=[A-Za-z,]) (?=[A-Za-z])", parts.head))
    if not gaps:
        return None
    changes = []
    for gap in parts.rng.sample(gaps, max(1, round(len(gaps) / _GAPS_PER_CHANGE))):
        changes.append((*gap.span(), " " * parts.rng.randint(2, 4)))
    return with_changes(parts.head, changes)


def _synonyms(parts: PromptParts) -> str | None:
    """Return the text with half of the listed words, rounded up, replaced by their synonyms.

    A word in capitals is not replaced, and neither is a word whose "a" or "an" would not fit the
    synonym. None is returned if no word can be replaced.
    """
    pairs = word_lists().synonyms
    changes = []
    for match in pattern_of(tuple(pairs)).finditer(parts.head):
        word = match.group()
        new = in_case_of(word, pairs[word.lower()])
        if word[1:].islower() and not clashes(parts.head[: match.start()], word, new):
            changes.append((*match.span(), new))
    if not changes:
        return None
    return with_changes(parts.head, parts.rng.sample(changes, (len(changes) + 1) // 2))


def _dialect(parts: PromptParts) -> str:
    """Return the text in American spelling, or in British spelling if it is American already.

    American spelling is tried first because the British "oedema" contains the American "edema".
    """
    to_british = {}
    to_american: dict[str, dict[str, str]] = {}
    for position in _POSITIONS:
        to_british[position] = word_lists().spelling[position]
        to_american[position] = {}
        for american, british in to_british[position].items():
            to_american[position][british] = american
    # American words that contain a British spelling are replaced by themselves, so that they stay.
    for word in word_lists().spelling["american"]:
        to_american["anywhere"][word] = word
    american = _respelled(parts.head, to_american)
    if american != parts.head:
        return american
    return _respelled(parts.head, to_british)


_POSITIONS = {
    "anywhere": r"{}",
    "start": r"(?<![A-Za-z]){}(?=[a-z])",
    "whole": r"(?<![A-Za-z]){}(?![A-Za-z])",
}
"""Position of a spelling in a word -> the pattern that finds the spelling at this position."""


def _respelled(text: str, tables: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text with the spellings of each position's table replaced."""
    for position, pattern in _POSITIONS.items():
        table = tables[position]
        listed = "|".join(sorted(table, key=len, reverse=True))
        # `title` gives each listed spelling a capital letter, not only the first one. A word in
        # capitals does not match: the second letter must be in lower case.
        spelling = re.compile(pattern.format(f"(?:{listed}|(?:{listed.title()}))"))
        changes = []
        for match in spelling.finditer(text):
            old = match.group()
            changes.append((*match.span(), in_case_of(old, table[old.lower()])))
        text = with_changes(text, changes)
    return text


# An age, such as "45-year-old", "aged 45" or "a man of 45". The group `after` is the text that
# follows the age, at most 40 characters of the same clause.
_AGE = re.compile(
    r"\b(?:(?P<before_unit>\d{1,3})[- ]?(?P<unit>years?|yrs?|y|months?|weeks?|days?|hours?)[-. ]?"
    r"(?:old|of age|o\b)"
    r"|(?:aged|(?:m[ae]n|male|boy|girl|patient|person) of) (?P<after_aged>\d{1,3})"
    r"(?: years)?)\b"
    r"(?P<after>[^.;,]{0,40})",
    re.IGNORECASE,
)
# a word for one person
_SOMEBODY = re.compile(r"\b(?:patient|man|woman|boy|girl|male|female|he|she)\b", re.IGNORECASE)
# a word for several persons, which makes an age before the word the age of several patients
_SEVERAL = re.compile(
    r"\b(?:patients|women|men|adults|children|twins|males|females|subjects|volunteers|people)\b"
)

_GROWN_UP_FROM = 18  # the lowest age of an adult, in years


class _Patient(NamedTuple):
    """The one patient that a text is about."""

    age: int  # in whole years; 0 for an age in months, weeks, days or hours
    age_end: int  # the position after the age in the text


def _patient(text: str) -> _Patient | None:
    """Return the patient of the text.

    None is returned if the text does not state exactly one age, if this age is that of several
    patients, or if the text has no word for a person.
    """
    ages = list(_AGE.finditer(text))
    if len(ages) != 1:
        return None
    stated = ages[0]
    if _SEVERAL.search(stated["after"]) or not _SOMEBODY.search(text):
        return None
    years = 0
    unit = stated["unit"] or "years"
    if unit.lower().startswith("y"):
        years = int(stated["before_unit"] or stated["after_aged"])
    return _Patient(years, stated.end())


# an abbreviation with a full stop at the end of a text, such as "Dr."
_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|\b(?:Drs?|Mrs?|Ms|St|Prof|vs|Figs?|No|al|etc|cf|ca|approx|e\.g|i\.e|spp?))\.\Z"
)
# words that may refer to an earlier sentence
_REFERS = re.compile(
    r"\b(?:this|these|that|those|its?|they|them|such|above|other|another|same|both)\b",
    re.IGNORECASE,
)


# white space after the end of a sentence, or a line break
_GAP = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][\"')]))[ \t]+(?=[A-Z\"(])|[ \t]*\n\s*(?=\S)")


def _sentence_gaps(text: str) -> list[re.Match[str]]:
    """Return the white space between the text's sentences."""
    gaps = []
    for gap in _GAP.finditer(text):
        if "\n" in gap.group() or not _ABBREVIATED.search(text[: gap.start()]):
            gaps.append(gap)
    return gaps


def _with_sentence_first(head: str, sentence: str) -> str:
    """Return the text with the sentence at its beginning.

    White space at the beginning of the text stays before the sentence.
    """
    start = len(head) - len(head.lstrip())
    separator = " "
    if re.match(r"[A-Z][\w ]{0,25}:", head[start:]):  # a heading, such as "Question:"
        separator = "\n"
    return f"{head[:start]}{sentence}{separator}{head[start:]}"


def _with_sentence_in_gap(
    head: str, sentence: str, gap: re.Match[str], refers: re.Pattern[str] = _REFERS
) -> str:
    """Return the text with the sentence inserted in the gap.

    The sentence is put before the text instead if a word in the sentence after the gap may refer
    to the text before the gap.

    Args:
        head: the text.
        sentence: the sentence to insert.
        gap: the white space between two sentences of the text.
        refers: finds the words that may refer to the text before the gap.
    """
    next_sentence = re.split(r"[.?!\n]", head[gap.end() :])[0]
    if refers.search(next_sentence):
        return _with_sentence_first(head, sentence)
    separator = " "
    if "\n" in gap.group():
        separator = gap.group()
    return f"{head[: gap.end()]}{sentence}{separator}{head[gap.end() :]}"


def _with_sentence_about(patient: _Patient, head: str, sentence: str) -> str:
    """Return the text with the sentence after the sentence that states the patient's age.

    The sentence is put before the text if the age is in the last sentence.
    """
    for gap in _sentence_gaps(head):
        if gap.start() >= patient.age_end:
            return _with_sentence_in_gap(head, sentence, gap)
    return _with_sentence_first(head, sentence)


# words that may refer to an earlier sentence, or to a person in an earlier sentence
_ANY_PERSON = re.compile(rf"{_REFERS.pattern}|\b(?:he|she|his|her|him)\b", re.IGNORECASE)


def _distractor(parts: PromptParts) -> str:
    """Return the text with an unimportant sentence, before the text or before its last sentence.

    A random choice decides about the position.
    """
    last_gap = _sentence_gaps(parts.head)[-1:]  # empty for a text of one sentence
    gap = parts.rng.choice([None, *last_gap])
    sentence = parts.rng.choice(word_lists().distractors)
    if gap is None:
        return _with_sentence_first(parts.head, sentence)
    return _with_sentence_in_gap(parts.head, sentence, gap, _ANY_PERSON)


def _worried(parts: PromptParts) -> str:
    """Return the text with a worried sentence at its beginning."""
    return _with_sentence_first(parts.head, parts.rng.choice(word_lists().worried_tones))


def _first_person(parts: PromptParts) -> str | None:
    """Return the text with a sentence at its beginning that makes the patient the speaker.

    None is returned if the text is not about one known patient, or if the patient is not an adult
    or may be unable to speak.
    """
    patient = _patient(parts.head)
    if (
        patient is None
        or patient.age < _GROWN_UP_FROM
        or guarded(parts, word_lists().first_person_stops)
    ):
        return None
    return _with_sentence_first(parts.head, parts.rng.choice(word_lists().voices))


_FROM_SOMEWHERE = re.compile(
    r"\b(?:from|to|in|of|near|visit\w*|native)\s+(?:the\s+|rural\s+|northern\s+|southern\s+)?"
    r"[A-Z][a-z]{3,}"
)
"""Finds places ("from Nepal", "visited Kenya"): a place may be a clue to the patient's ancestry."""


def _race(parts: PromptParts) -> str | None:
    """Return the text with a sentence that names the patient's race.

    None is returned if the text is not about one known patient, or if the question has a clue to
    the patient's ancestry.
    """
    patient = _patient(parts.head)
    if patient is None or guarded(parts, word_lists().ancestry_words):
        return None
    if _FROM_SOMEWHERE.search(parts.all):
        return None
    race = parts.rng.choice(word_lists().races)
    return _with_sentence_about(patient, parts.head, f"The patient is {race}.")


_WORKING_FROM = 25  # the lowest age of a patient with an occupation, in years
_OLDEST = 90  # the highest age of a patient with an occupation, in years


def _demographics(parts: PromptParts) -> str | None:
    """Return the text with a sentence about the patient's residence and occupation.

    None is returned if the text is not about one known patient of a fitting age, or if a word in
    the question forbids the change.
    """
    patient = _patient(parts.head)
    if patient is None or guarded(parts, word_lists().demographic_stops):
        return None
    if not _WORKING_FROM <= patient.age <= _OLDEST:
        return None
    residence = parts.rng.choice(word_lists().residences)
    job = parts.rng.choice(word_lists().jobs)
    return _with_sentence_about(
        patient, parts.head, f"The patient lives {residence} and has worked as {job}."
    )


_TO_MALE = {
    "she": "he",
    "herself": "himself",
    "woman": "man",
    "female": "male",
    "girl": "boy",
    "lady": "gentleman",
}
_TO_FEMALE = {male: female for female, male in _TO_MALE.items()} | {"him": "her"}
# These words and "his" are missing in both tables: `_pronoun` chooses the other word.
_HERS = ("her", "hers")
_GENDERED = re.compile(
    rf"(?<![\w/])(?:{'|'.join([*_TO_MALE, *_HERS, *_TO_FEMALE, 'his'])})(?![\w/]|-made)",
    re.IGNORECASE,
)


def _sex_of(text: str) -> Literal["female", "male", "either"]:
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


_CHILD = re.compile(r"\b(?:boy|girl)\b", re.IGNORECASE)
_GROWN_UP = re.compile(r"\b(?:m[ae]n|wom[ae]n|lady|gentleman)\b", re.IGNORECASE)
_CHILD_UP_TO = 12  # the highest age of a child, in years


def _contradicts_age(text: str, years: int) -> bool:
    """Return True if a word for a person does not fit the age: a boy in a text on a man of 24."""
    if years >= _GROWN_UP_FROM:
        return _CHILD.search(text) is not None
    return years <= _CHILD_UP_TO and _GROWN_UP.search(text) is not None


def _gender(parts: PromptParts) -> str | None:
    """Return the text with all words for the patient in the other sex.

    None is returned if the text is not about one known patient, if words for both sexes occur, if
    the unchanged text has a word for a sex, or if the answer may depend on the sex.
    """
    patient = _patient(parts.head)
    if patient is None or _contradicts_age(parts.all, patient.age):
        return None
    sex = _sex_of(parts.all)
    in_unchanged_text = _GENDERED.search(f"{parts.tail}\n{parts.context}")
    if sex == "either" or in_unchanged_text or guarded(parts, word_lists().sex_words):
        return None
    table = _TO_FEMALE
    if sex == "female":
        table = _TO_MALE
    changes = []
    for word in _GENDERED.finditer(parts.head):
        old = word.group()
        # A word in capitals may be an abbreviation.
        if old.isupper() and len(old) > 1:
            return None
        new = table.get(old.lower())
        if new is None:
            before = parts.head[: word.start()]
            after = parts.head[word.end() :]
            new = _pronoun(old.lower(), before, after)
        if new is None:
            return None
        changes.append((*word.span(), in_case_of(old, new)))
    return with_changes(parts.head, changes)


def _pronoun(old: str, before: str, after: str) -> str | None:
    """Return the pronoun of the other sex for "her", "hers" or "his".

    None is returned if the words around the pronoun do not decide: "her" becomes "him" or "his".
    """
    if old == "hers":
        return "his"
    next_word = re.match(r"\s+['\"]?([\w-]+)", after)
    is_alone = next_word is None or next_word[1].lower() in word_lists().object_before
    if old == "his":
        if is_alone:
            return None
        return "her"
    if is_alone:
        return "him"
    last_word = re.search(r"(\w+)\s+\Z", before)
    if last_word and last_word[1].lower() in word_lists().two_objects:
        return None
    return "his"


# a name, or an initial, before the age: "Ana, a 73-year-old woman"
_NAMED = re.compile(r"(?:[A-Z][a-z]+(?:,| is| was)|[A-Z]\.,?) ?(?:an? |of )?(?=\d{1,3}\b)")
# a title and one name: "Mr. Lopez", but not "Mr. Juan Lopez"
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Miss)\b\.? ([A-Z][a-z]+)\b(?! [A-Z][a-z])")


def _person_name(parts: PromptParts) -> str | None:
    """Return the text with another surname, or with a sentence that names the patient.

    The surname is replaced if the text has one surname, always after a title. A sentence is added
    only to a text about one known patient without a name. In all other cases, and if a name may be
    a clue to the patient's ancestry, None is returned.
    """
    # A name may be a clue to the patient's ancestry.
    if guarded(parts, word_lists().ancestry_words):
        return None
    titled = _TITLED.findall(parts.head)
    if len(set(titled)) == 1 and not _TITLED.search(f"{parts.tail}\n{parts.context}"):
        old = titled[0]
        new = parts.rng.choice([name for name in word_lists().surnames if name != old])
        is_always_titled = len(re.findall(rf"\b{old}\b", parts.all)) == len(titled)
        if not is_always_titled:
            return None
        return re.sub(rf"\b{old}\b", new, parts.head)
    patient = _patient(parts.head)
    if patient is None or _NAMED.search(parts.head) or guarded(parts, word_lists().name_stops):
        return None
    name = parts.rng.choice(word_lists().names[_sex_of(parts.head)])
    return _with_sentence_about(patient, parts.head, f"The patient's name is {name}.")


def _brand_names(parts: PromptParts) -> str | None:
    """Return the text with generic names of drugs replaced by brands."""
    brands = word_lists().brands
    drugs = pattern_of(tuple(brands)).finditer(parts.head)
    return _renamed(parts, {drug.span(): brands[drug.group().lower()] for drug in drugs})


def _generic_names(parts: PromptParts) -> str | None:
    """Return the text with brands of drugs replaced by generic names."""
    generic = {brand: name for name, brand in word_lists().brands.items()}
    names = {}
    for drug in pattern_of(tuple(generic), cased=True).finditer(parts.head):
        name = generic[drug.group()]
        # At the start of a sentence, the name begins with a capital letter.
        if re.search(r"(?:\A|[.?!:\n])\s*\Z", parts.head[: drug.start()]):
            name = in_case_of("A", name)
        names[drug.span()] = name
    return _renamed(parts, names)


def _renamed(parts: PromptParts, names: Mapping[tuple[int, int], str]) -> str | None:
    """Return the text with the drugs at these positions renamed.

    None is returned if the question may be about a name, or already contains a new name. It is also
    returned if a name is in capitals, if a salt, a form or an abbreviation follows a name, or if
    "a" or "an" does not fit a new name.

    Args:
        parts: the text.
        names: (start, end) of a drug's name -> the new name.
    """
    salt = re.compile(
        rf"\s+(?:{'|'.join(word_lists().salts)})\b|\s*\((?-i:[A-Z]{{2}})", re.IGNORECASE
    )
    changes = []
    for (start, end), new in names.items():
        old = parts.head[start:end]
        has_new_name = re.search(rf"\b{new}\b", parts.all, re.IGNORECASE)
        if has_new_name or old.isupper() or salt.match(parts.head[end:]):
            return None
        if clashes(parts.head[:start], old, new):
            return None
        changes.append((start, end, new))
    if guarded(parts, word_lists().name_question):
        return None
    return with_changes(parts.head, changes)


_UNITS = {
    "mg/dL": "mg ?/ ?dl",
    "g/dL": "gm? ?/ ?dl",
    "mmol/L": "mmol ?/ ?l",
    "g/L": "g ?/ ?l",
    "µmol/L": "(?:[\u00b5\u03bcu]|micro)mol ?/ ?l",  # the sign micro, and the Greek letter
    "°F": "(?:[°º] ?|degrees )f(?:ahrenheit)?",
    "°C": "(?:[°º] ?|degrees )c(?:elsius)?",
}
"""The name of a unit -> the pattern that finds the unit's spellings."""
# A unit, or the bare letter F or C after a number. The unit must not continue ("mg/dL per hour").
_UNIT = rf"(?P<unit>{'|'.join(_UNITS.values())}|(?<=\d )[fc]|(?<=\d)[fc])(?![\w/%²^]| per )"
_ANY_UNIT = re.compile(rf"(?<![A-Za-z]){_UNIT}", re.IGNORECASE)
_NUMBER = r"\d+(?:\.\d+)?"
_JOINT = r"(?P<joint>\s?(?:[-\u2013±]|to|and)\s?)"  # joins the two numbers of a range
# a number or a range of numbers, with a unit
_VALUE = re.compile(
    rf"(?<![\w.,/^±-])(?<!± )(?P<low>{_NUMBER})(?:{_JOINT}(?P<high>{_NUMBER}))?(?P<gap>\s?){_UNIT}",
    re.IGNORECASE,
)
# a unit in a form that is not converted: mg%, mg/100, mg per dl
_OTHERWISE = re.compile(
    r"\d\s?(?:m?g ?%|m?g ?/ ?100|(?:m|\u00b5|\u03bc|u)?(?:g|mol) per (?:d?l|100)\b)", re.IGNORECASE
)
# The limits of body temperatures, in °C. Values outside are differences between temperatures, or
# temperatures of something else.
MIN_CELSIUS = 30
MAX_CELSIUS = 45
_Measured = Analyte | Literal["other"] | None
"""The analyte of a value. "other": an analyte that is not converted; None: the analyte is
uncertain.
"""


def _in_other_units(parts: PromptParts) -> str | None:
    """Return the text with all values of the analytes in perturbations.yml converted.

    None is returned if the analyte of a value is uncertain. None is also returned for a unit
    without a value, and for a unit in the unchanged text: the question may ask for this unit.
    """
    values = list(_VALUE.finditer(parts.head))
    if any(_belongs_to_more(parts.head, value) for value in values):
        return None
    units = list(_ANY_UNIT.finditer(parts.head))
    in_unchanged_text = _ANY_UNIT.search(f"{parts.tail}\n{parts.context}")
    if len(units) != len(values) or in_unchanged_text or _OTHERWISE.search(parts.head):
        return None
    if guarded(parts, word_lists().unit_question):
        return None
    changes: list[tuple[int, int, str]] = []
    measured: _Measured = None
    end = 0
    in_both_units = _stated_twice(parts.head, values)
    for value in values:
        measured = _analyte_of(parts.head[end : value.start()], measured)
        end = value.end()
        if measured == "other" or value in in_both_units:
            continue
        if measured is None:
            return None
        new = _in_other_unit(measured, value, parts.head[end:])
        if new is None:
            return None
        changes.append((*value.span(), new))
    return with_changes(parts.head, changes)


# a number before a value that may share its unit: "70, " or "between 70 and "
_OTHER_END = re.compile(
    r"\d\s*(?:,|/|;|or|and|to|through|up to|[-\u2013])\s*"
    r"(?:(?:more|less|greater|higher|lower|than|at|least|most|above|below|over|under|between|[<>\u2264\u2265])\s*)*\Z",
    re.IGNORECASE,
)
# a number without a unit after a value: " to 130"
_GOES_ON = re.compile(
    r"\s*(?:[-\u2013/]|to|or|and|through)\s*\d+(?:\.\d+)?(?!\s*[%\w])", re.IGNORECASE
)


def _belongs_to_more(text: str, value: re.Match[str]) -> bool:
    """Return True if a number without a unit shares the unit of this value.

    In "70, 100 and 130 mg/dL", only the last number would be converted.
    """
    if _OTHER_END.search(text[max(0, value.start() - 60) : value.start()]):
        return True
    return _GOES_ON.match(text, value.end()) is not None


def _stated_twice(text: str, values: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return the values that are stated in both units, such as 38.3 C (100.9 F)."""
    twice = []
    for first, second in pairwise(values):
        is_beside = re.fullmatch(r"\s*[(/\[]\s*", text[first.end() : second.start()])
        if is_beside and _unit_of(first) != _unit_of(second):
            twice += [first, second]
    return twice


def _unit_of(value: re.Match[str]) -> str:
    """Return the value's unit, as a key of `_UNITS`."""
    for name, form in _UNITS.items():
        if re.fullmatch(form, value["unit"], re.IGNORECASE):
            return name
    # a bare C or F
    return f"°{value['unit'].upper()}"


def _analyte_of(before: str, last: _Measured) -> _Measured:
    """Return the analyte of the value that follows `before`; None if the analyte is uncertain.

    If only words for a range stand between two values, both values have the same analyte.

    Args:
        before: the text between the previous value and this value.
        last: the analyte of the previous value.
    """
    clause = re.split(r"[;\n]|[.?!] ", before)[-1]
    table: dict[str, _Measured] = {}
    for analyte in word_lists().analytes:
        table |= dict.fromkeys(map(str.lower, analyte.names), analyte)
    table |= dict.fromkeys(map(str.lower, word_lists().other_analytes), "other")
    names = list(pattern_of(tuple(table)).finditer(clause))
    if not names:
        if _has_only(before, word_lists().range_words):
            return last
        return None
    # In a list of names, the value belongs to the name after the last comma. A comma directly after
    # the name ("glucose, 90 mg/dL") does not end the list: `[1:]` skips this comma.
    names = [name for name in names if "," not in clause[name.end() :].lstrip()[1:]]
    analytes = [table[name.group().lower()] for name in names]
    if not analytes or any(analyte != analytes[0] for analyte in analytes):
        return None
    between = clause[names[-1].end() :]
    if not _has_only(between, word_lists().range_words + word_lists().value_words):
        return None
    return analytes[0]


def _has_only(text: str, words: list[str]) -> bool:
    """Return True if the text has no digits, and only words of the list."""
    words_and_digits = set(re.findall(r"[^\W\d_]+|\d", text.lower()))
    return words_and_digits <= set(map(str.lower, words))


def _in_other_unit(analyte: Analyte, value: re.Match[str], after: str) -> str | None:
    """Return the value or range in the analyte's other unit.

    None is returned if the unit is not a unit of the analyte, or if the value must not be
    converted: a threshold, a temperature that is not a body's, or a value that is followed by a
    number without a unit in brackets.

    Args:
        analyte: the analyte of the value.
        value: a match of `_VALUE`.
        after: the text after the value.
    """
    unit = _unit_of(value)
    low = Decimal(value["low"])
    numbers = [low]
    if value["high"]:
        numbers.append(Decimal(value["high"]))
    if unit not in analyte.units or any(number in analyte.thresholds for number in numbers):
        return None
    brackets = re.match(r"\s*\(([^)]*)\)", after)
    if brackets and re.search(r"\d", brackets[1]) and not _VALUE.search(brackets[1]):
        return None
    first_unit, second_unit = analyte.units
    if _is_temperature(analyte):
        for number in numbers:
            celsius = number
            if unit != second_unit:
                celsius = analyte.exact(number, unit)
            if not MIN_CELSIUS <= celsius <= MAX_CELSIUS:
                return None
    other_unit = first_unit
    if unit == first_unit:
        other_unit = second_unit
    converted = _converted(value["low"], analyte, unit, other_unit)
    if value["high"]:
        converted += value["joint"] + _converted(value["high"], analyte, unit, other_unit)
    gap = value["gap"] or " "
    return f"{converted}{gap}{other_unit}"


_MAX_DIGITS = 11  # significant digits of a converted number


def _is_temperature(analyte: Analyte) -> bool:
    """Return True if the analyte's units have different zero points."""
    return bool(analyte.offset)


def _converted(number: str, analyte: Analyte, unit: str, other_unit: str) -> str:
    """Return the number in the other unit, with the smallest sufficient number of digits.

    Digits are sufficient if the result, converted back and rounded, is the original number. The
    result is rounded to at least three significant digits, to at least the original number of
    digits, and to at most `_MAX_DIGITS` digits. A temperature is rounded to at least one decimal:
    fever begins at 38 °C, which is 100.4 °F. Then zeros at the end of the decimals are removed.
    """
    value = Decimal(number)
    exact = analyte.exact(value, unit)
    min_digits = 3
    if _is_temperature(analyte):
        digits_before_point = exact.adjusted() + 1
        min_digits = digits_before_point + 1
    for digits in range(max(min_digits, len(value.as_tuple().digits)), _MAX_DIGITS + 1):
        # the place value of the last digit, such as 0.01: `quantize` rounds to this place
        last_digit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        rounded = exact.quantize(last_digit, ROUND_HALF_UP)
        converted_back = analyte.exact(rounded, other_unit)
        if converted_back.quantize(value, ROUND_HALF_UP) == value:
            break
    text = f"{rounded:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


@dataclass(frozen=True)
class Family:
    """A family of perturbations: one way to word a question differently.

    Attributes:
        about: a clause that describes the change.
        why_safe: a clause that gives the reason why the right answer stays the same.
        needs: the words or values that a question must contain for the family to apply.
        change: a function that returns the changed text; None if the family does not apply.
        unchecked: True if a clinician must read the changed questions, because the word lists do
            not cover every case.
    """

    about: str
    why_safe: str
    needs: str
    change: Callable[[PromptParts], str | None]
    unchecked: bool = False


# clauses that several families share
_SAME_INGREDIENT = "the ingredient is the same, and the question does not ask for names"
_NOTHING_DEPENDS_ON_CHANGE = (
    "only for one patient whose age is stated; "
    "nothing in the text or its choices may depend on it (word lists)"
)
_ONE_PATIENT = "one patient whose age is stated, and nothing that may depend on the change"
FAMILIES: Mapping[str, Family] = {
    "typos": Family(
        "one word in twenty has a typing error",
        "only ordinary words, which can still be recognized",
        "an ordinary word of five letters or more",
        _typos,
    ),
    "case": Family(
        "all is in lower case",
        "units, symbols, abbreviations and negations stay as written",
        "a capital letter",
        _case,
    ),
    "spaces": Family(
        "there are extra blanks between words",
        "no word, number or line is changed",
        "two words",
        _spaces,
    ),
    "synonyms": Family(
        "plain words are replaced by others",
        "each pair means the same in every text",
        "a word of the list of pairs",
        _synonyms,
    ),
    "dialect": Family(
        "American spelling becomes British, or British American",
        "the words stay the same",
        "a word that the two spell differently",
        _dialect,
        unchecked=True,
    ),
    "gender": Family(
        "the patient's sex is swapped, with all words for it",
        _NOTHING_DEPENDS_ON_CHANGE,
        _ONE_PATIENT,
        _gender,
        unchecked=True,
    ),
    "race": Family(
        "a sentence names the patient's race",
        _NOTHING_DEPENDS_ON_CHANGE,
        _ONE_PATIENT,
        _race,
        unchecked=True,
    ),
    "person_name": Family(
        "the patient gets a name, or another one",
        _NOTHING_DEPENDS_ON_CHANGE,
        _ONE_PATIENT,
        _person_name,
        unchecked=True,
    ),
    "brand_names": Family(
        "generic names of drugs are replaced by brands",
        _SAME_INGREDIENT,
        "a drug of the list by its generic name",
        _brand_names,
        unchecked=True,
    ),
    "generic_names": Family(
        "brands of drugs are replaced by generic names",
        _SAME_INGREDIENT,
        "a drug of the list by its brand",
        _generic_names,
        unchecked=True,
    ),
    "units": Family(
        "laboratory values are in other units",
        "each value, converted back and rounded, is the same",
        "laboratory values of known analytes, each with its unit",
        _in_other_units,
    ),
    "distractor": Family(
        "a sentence about the surroundings is added",
        "it holds no finding, number or negation",
        "a text in English",
        _distractor,
    ),
    "first_person": Family(
        "the patient asks, in a sentence before the case",
        "the case stays word for word",
        "one adult patient who can speak, whose age is stated",
        _first_person,
    ),
    "worried": Family(
        "a worried sentence comes first",
        "it states a feeling, and nothing about the case",
        "a text in English",
        _worried,
    ),
    "demographics": Family(
        "residence and occupation are added",
        _NOTHING_DEPENDS_ON_CHANGE,
        _ONE_PATIENT,
        _demographics,
        unchecked=True,
    ),
}
"""The name of each family, as `extra.perturb` names it -> the family."""
# the names of the families whose changed questions a clinician need not read
CHECKED_FAMILIES = tuple(name for name, family in FAMILIES.items() if not family.unchecked)
