"""A question in a changed wording that leaves its right answer as it is: what can be changed, and
where it is not.

A change is made where it is certain, and else left: `perturbed` returns None. What it replaces is a
list of words in perturbations.yml, so nothing else of a text can be hit.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Literal

from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.perturbation_words import (
    Analyte,
    PromptParts,
    any_of,
    clashes,
    data,
    guarded,
    in_case_of,
    put,
)


def not_offered(family: str, task_name: str) -> str | None:
    """The reason why a family is not offered for a task of framework.yml.

    None if it is offered, or the task is not ours.
    """
    for questions in data().classes.values():
        if task_name not in questions["tasks"]:
            continue
        for refusal in questions["not_offered"]:
            if refusal["families"] == "all" or family in refusal["families"]:
                return str(refusal["reason"])
    return None


def perturbed(family: str, text: str, instance_id: str, beside: str = "") -> str | None:
    """The text in the family's wording; None where the family does not apply, or the right answer
    might not stay.

    Args:
        instance_id: with the family, the only seed of chance.
        beside: what is asked with the text and stays as it is, such as choices that the text does
            not show; what forbids a change is looked for there too.

    Raises KeyError: there is no such family.
    """
    change = FAMILIES[family].change
    parted = _parted(text)
    if parted is None or not _is_english(text):
        return None
    # a text is no secret
    chance = random.Random(  # noqa: S311
        hashlib.sha256(f"perturbation {family} of {instance_id}".encode()).digest()
    )
    changeable, rest = parted
    head = change(PromptParts(changeable, rest, beside, chance))
    if head is None or head == changeable:
        return None
    return head + rest


_FIRST_OPTION = re.compile(r"(?:^[ \t]*[(\[]?A[.:)\]]|(?<=[ \t])\(?A\))[ \t]+(?=\S)", re.MULTILINE)
_LAST_LINE = re.compile(
    r"\s*(?:\n[ \t]*(?:(?:please|your|final|the|best)\s+)*"
    r"(?:answer|respon[ds]e?|reply|choose|select|output|return)\b[^\n]*)?\s*\Z",
    re.IGNORECASE,
)


def _parted(text: str) -> tuple[str, str] | None:
    """What may be changed, and what follows; None where several lists of options stand in the
    text (examples).
    """
    end = len(text)
    if options_shown(text):
        first, *rest = _FIRST_OPTION.finditer(text)
        if rest:
            return None
        end = first.start()
    last = _LAST_LINE.search(text[:end])
    cut = last.start() if last else end
    return text[:cut], text[cut:]


def _is_english(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+", text.lower())
    english_words = set(data().english)
    foreign_words = set(data().foreign)
    english = sum(word in english_words for word in words)
    foreign = sum(word in foreign_words for word in words)
    return english >= foreign and (english > 0 or (len(words) < 8 and text.isascii()))


def _typos(parts: PromptParts) -> str | None:
    typo_words = set(data().typo_words.split())
    words = list(re.finditer(r"(?<![\w/-])[A-Za-z]{5,}(?![\w/-])", parts.head))
    ordinary = [word for word in words if word.group() in typo_words]
    if not ordinary:
        return None
    count = min(max(1, round(len(words) / 20)), len(ordinary))
    changes = []
    for word in parts.chance.sample(ordinary, count):
        changes.append((*word.span(), _mistyped(word.group(), parts.chance)))
    return put(parts.head, changes)


def _mistyped(word: str, chance: random.Random) -> str:
    """The word with two inner letters swapped, one missing or one doubled; never another word."""
    inner = range(1, len(word) - 1)
    forms = []
    for i in inner[:-1]:
        forms.append(word[:i] + word[i + 1] + word[i] + word[i + 2 :])
    for i in inner:
        forms.append(word[:i] + word[i + 1 :])
    for i in inner:
        forms.append(word[:i] + word[i] + word[i:])
    real = {word, *data().typo_words.split(), *data().never_made}
    return chance.choice([form for form in forms if form not in real])


# two letters of another word are a symbol: Na, Hg, Pa
_WORD = re.compile(
    r"(?:He|In|It|Is|At|An|As|By|Do|If|Of|On|Or|So|To|Up|We|My|Be|Me)|[A-Z][a-z]{2,}"
)


def _case(parts: PromptParts) -> str:
    negations = set(data().negations)

    def lowered(match: re.Match[str]) -> str:
        token = match.group()
        if _WORD.fullmatch(token) and token.lower() not in negations:
            return token.lower()
        return token

    return re.sub(r"[^\W_]+", lowered, parts.head)


def _spaces(parts: PromptParts) -> str | None:
    gaps = list(re.finditer(r"(?<=[A-Za-z,]) (?=[A-Za-z])", parts.head))
    if not gaps:
        return None
    changes = []
    for gap in parts.chance.sample(gaps, max(1, round(len(gaps) / 8))):
        changes.append((*gap.span(), " " * parts.chance.randint(2, 4)))
    return put(parts.head, changes)


def _synonyms(parts: PromptParts) -> str | None:
    pairs = data().synonyms
    changes = []
    for match in any_of(tuple(pairs)).finditer(parts.head):
        word = match.group()
        new = in_case_of(word, pairs[word.lower()])
        if word[1:].islower() and not clashes(parts.head[: match.start()], word, new):
            changes.append((*match.span(), new))
    if not changes:
        return None
    return put(parts.head, parts.chance.sample(changes, (len(changes) + 1) // 2))


def _dialect(parts: PromptParts) -> str:
    """British spellings become American; a text without any becomes British.

    American comes first, for "oedema" holds "edema".
    """
    tables = []
    to_american = []
    for place in ("anywhere", "start", "whole"):
        table = data().spelling[place]
        tables.append(table)
        to_american.append({new: old for old, new in table.items()})
    for word in data().spelling["american"]:
        to_american[0][word] = word
    american = _respelled(parts.head, *to_american)
    if american != parts.head:
        return american
    return _respelled(parts.head, *tables)


def _respelled(
    text: str, anywhere: Mapping[str, str], start: Mapping[str, str], whole: Mapping[str, str]
) -> str:
    forms = (
        (r"{}", anywhere),
        (r"(?<![A-Za-z]){}(?=[a-z])", start),
        (r"(?<![A-Za-z]){}(?![A-Za-z])", whole),
    )
    for form, table in forms:
        listed = "|".join(sorted(table, key=len, reverse=True))
        # in words of capitals nothing is found: their second letter is no small one
        pattern = re.compile(form.format(f"(?:{listed}|(?:{listed.title()}))"))
        text = pattern.sub(
            lambda match, table=table: in_case_of(  # type: ignore[misc]
                match.group(), table[match.group().lower()]
            ),
            text,
        )
    return text


_AGE = re.compile(
    r"\b(?:(?P<a>\d{1,3})[- ]?(?P<unit>years?|yrs?|y|months?|weeks?|days?|hours?)[-. ]?"
    r"(?:old|of age|o\b)"
    r"|(?:aged|(?:m[ae]n|male|boy|girl|patient|person) of) (?P<b>\d{1,3})(?: years)?)\b"
    r"(?P<after>[^.;,]{0,40})",
    re.IGNORECASE,
)
_SOMEBODY = re.compile(r"\b(?:patient|man|woman|boy|girl|male|female|he|she)\b", re.IGNORECASE)
_SEVERAL = re.compile(
    r"\b(?:patients|women|men|adults|children|twins|males|females|subjects|volunteers|people)\b"
)


def _patient(text: str) -> tuple[int, int] | None:
    """The age in years, and the position after it; None if the text is not about one patient
    alone.
    """
    ages = list(_AGE.finditer(text))
    if len(ages) != 1 or _SEVERAL.search(ages[0]["after"]) or not _SOMEBODY.search(text):
        return None
    age = 0
    if (ages[0]["unit"] or "y").lower().startswith("y"):
        age = int(ages[0]["a"] or ages[0]["b"])
    return age, ages[0].end()


_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|\b(?:Drs?|Mrs?|Ms|St|Prof|vs|Figs?|No|al|etc|cf|ca|approx|e\.g|i\.e|spp?))\.\Z"
)
_REFERS = re.compile(
    r"\b(?:this|these|that|those|its?|they|them|such|above|other|another|same|both)\b",
    re.IGNORECASE,
)


def _sentences(text: str) -> list[re.Match[str]]:
    """The blanks between the text's sentences."""
    gaps = re.finditer(r"(?:(?<=[.?!])|(?<=[.?!][\"')]))[ \t]+(?=[A-Z\"(])|[ \t]*\n\s*(?=\S)", text)
    between = []
    for gap in gaps:
        if "\n" in gap.group() or not _ABBREVIATED.search(text[: gap.start()]):
            between.append(gap)
    return between


def _with_first(head: str, sentence: str) -> str:
    start = len(head) - len(head.lstrip())
    apart = "\n" if re.match(r"[A-Z][\w ]{0,25}:", head[start:]) else " "
    return f"{head[:start]}{sentence}{apart}{head[start:]}"


def _with_within(
    head: str, sentence: str, gap: re.Match[str] | None, refers: re.Pattern[str] = _REFERS
) -> str:
    """The sentence in that gap, else first: what follows may refer to what stands before."""
    if gap is None or refers.search(re.split(r"[.?!\n]", head[gap.end() :])[0]):
        return _with_first(head, sentence)
    apart = gap.group() if "\n" in gap.group() else " "
    return f"{head[: gap.end()]}{sentence}{apart}{head[gap.end() :]}"


def _about_patient(head: str, start: int, sentence: str) -> str:
    for gap in _sentences(head):
        if gap.start() >= start:
            return _with_within(head, sentence, gap)
    return _with_within(head, sentence, None)


_ANY_PERSON = re.compile(rf"{_REFERS.pattern}|\b(?:he|she|his|her|him)\b", re.IGNORECASE)


def _distractor(parts: PromptParts) -> str:
    gap = parts.chance.choice([None, *_sentences(parts.head)[-1:]])
    return _with_within(parts.head, parts.chance.choice(data().distractors), gap, _ANY_PERSON)


def _worried(parts: PromptParts) -> str:
    return _with_first(parts.head, parts.chance.choice(data().worried_tones))


def _first_person(parts: PromptParts) -> str | None:
    patient = _patient(parts.head)
    if patient is None or patient[0] < 18 or guarded(parts, data().first_person_stops):
        return None
    return _with_first(parts.head, parts.chance.choice(data().voices))


_FROM_SOMEWHERE = re.compile(
    r"\b(?:from|to|in|of|near|visit\w*|native)\s+(?:the\s+|rural\s+|northern\s+|southern\s+)?"
    r"[A-Z][a-z]{3,}"
)
"""Somebody from Nepal, or a traveller to Kenya: a place says something of descent, too."""


def _race(parts: PromptParts) -> str | None:
    patient = _patient(parts.head)
    if patient is None or guarded(parts, data().ancestry_words):
        return None
    if _FROM_SOMEWHERE.search(parts.all):
        return None
    return _about_patient(
        parts.head, patient[1], f"The patient is {parts.chance.choice(data().races)}."
    )


def _demographics(parts: PromptParts) -> str | None:
    patient = _patient(parts.head)
    if patient is None or not 25 <= patient[0] <= 90 or guarded(parts, data().demographic_stops):
        return None
    residence = parts.chance.choice(data().residences)
    job = parts.chance.choice(data().jobs)
    return _about_patient(
        parts.head, patient[1], f"The patient lives {residence} and has worked as {job}."
    )


_TO_MALE = {
    "she": "he",
    "herself": "himself",
    "woman": "man",
    "female": "male",
    "girl": "boy",
    "lady": "gentleman",
}
_TO_FEMALE = {new: old for old, new in _TO_MALE.items()} | {"him": "her"}
_HERS = ("her", "hers")
_GENDERED = re.compile(
    rf"(?<![\w/])(?:{'|'.join([*_TO_MALE, *_HERS, *_TO_FEMALE, 'his'])})(?![\w/]|-made)",
    re.IGNORECASE,
)


def _sex_of(text: str) -> Literal["female", "male", "either"]:
    female = {word.lower() in {*_TO_MALE, *_HERS} for word in _GENDERED.findall(text)}
    if len(female) != 1:
        return "either"
    return "female" if female == {True} else "male"


_CHILD = re.compile(r"\b(?:boy|girl)\b", re.IGNORECASE)
_GROWN_UP = re.compile(r"\b(?:m[ae]n|wom[ae]n|lady|gentleman)\b", re.IGNORECASE)
_GROWN_UP_FROM = 18
_CHILD_UP_TO = 12


def _tells_of_two(text: str, years: int) -> bool:
    """Return whether the words for the patient do not fit the age: a man of 24 and a boy."""
    if years >= _GROWN_UP_FROM:
        return _CHILD.search(text) is not None
    return years <= _CHILD_UP_TO and _GROWN_UP.search(text) is not None


def _gender(parts: PromptParts) -> str | None:
    patient = _patient(parts.head)
    if patient is None or _tells_of_two(parts.all, patient[0]):
        return None
    sex = _sex_of(parts.all)
    is_elsewhere = _GENDERED.search(f"{parts.tail}\n{parts.beside}")
    if sex == "either" or is_elsewhere or guarded(parts, data().sex_words):
        return None
    table = _TO_FEMALE
    if sex == "female":
        table = _TO_MALE
    changes = []
    for word in _GENDERED.finditer(parts.head):
        old = word.group()
        new = table.get(old.lower()) or _pronoun(
            old.lower(), parts.head[: word.start()], parts.head[word.end() :]
        )
        if new is None or (old.isupper() and len(old) > 1):
            return None
        changes.append((*word.span(), in_case_of(old, new)))
    return put(parts.head, changes)


def _pronoun(old: str, before: str, after: str) -> str | None:
    """The pronoun of the other sex for her, hers or his; None if the words around it do not show
    which one it is.
    """
    follows = re.match(r"\s+['\"]?([\w-]+)", after)
    alone = follows is None or follows[1].lower() in data().object_before
    if old == "hers":
        return "his"
    if old == "his":
        return None if alone else "her"
    if alone:
        return "him"
    last = re.search(r"(\w+)\s+\Z", before)
    if last and last[1].lower() in data().two_objects:
        return None
    return "his"


# Ana, a 73-year-old woman
_NAMED = re.compile(r"(?:[A-Z][a-z]+(?:,| is| was)|[A-Z]\.,?) ?(?:an? |of )?(?=\d{1,3}\b)")
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Miss)\b\.? ([A-Z][a-z]+)\b(?! [A-Z][a-z])")


def _person_name(parts: PromptParts) -> str | None:
    # a name may hint at where somebody comes from
    if guarded(parts, data().ancestry_words):
        return None
    titled = set(_TITLED.findall(parts.head))
    if len(titled) == 1 and not _TITLED.search(f"{parts.tail}\n{parts.beside}"):
        old = titled.pop()
        new = parts.chance.choice([name for name in data().surnames if name != old])
        if len(re.findall(rf"\b{old}\b", parts.all)) != len(_TITLED.findall(parts.head)):
            return None
        return re.sub(rf"\b{old}\b", new, parts.head)
    patient = _patient(parts.head)
    if patient is None or _NAMED.search(parts.head) or guarded(parts, data().name_stops):
        return None
    name = parts.chance.choice(data().names[_sex_of(parts.head)])
    return _about_patient(parts.head, patient[1], f"The patient's name is {name}.")


def _brand_names(parts: PromptParts) -> str | None:
    brands = data().brands
    drugs = any_of(tuple(brands)).finditer(parts.head)
    return _renamed(parts, {drug.span(): brands[drug.group().lower()] for drug in drugs})


def _generic_names(parts: PromptParts) -> str | None:
    generic = {brand: name for name, brand in data().brands.items()}
    names = {}
    for drug in any_of(tuple(generic), cased=True).finditer(parts.head):
        name = generic[drug.group()]
        if re.search(r"(?:\A|[.?!:\n])\s*\Z", parts.head[: drug.start()]):
            name = in_case_of("A", name)
        names[drug.span()] = name
    return _renamed(parts, names)


def _renamed(parts: PromptParts, names: Mapping[tuple[int, int], str]) -> str | None:
    """The text with these drugs renamed; None if names are the question, or a salt, a form or an
    abbreviation follows.
    """
    salt = re.compile(rf"\s+(?:{'|'.join(data().salts)})\b|\s*\((?-i:[A-Z]{{2}})", re.IGNORECASE)
    changes = []
    for (start, end), new in names.items():
        old = parts.head[start:end]
        if (
            re.search(rf"\b{new}\b", parts.all, re.IGNORECASE)
            or old.isupper()
            or salt.match(parts.head[end:])
            or clashes(parts.head[:start], old, new)
        ):
            return None
        changes.append((start, end, new))
    if guarded(parts, data().name_question):
        return None
    return put(parts.head, changes)


_UNITS = {
    "mg/dL": "mg ?/ ?dl",
    "g/dL": "gm? ?/ ?dl",
    "mmol/L": "mmol ?/ ?l",
    "g/L": "g ?/ ?l",
    "µmol/L": "(?:[\u00b5\u03bcu]|micro)mol ?/ ?l",  # the sign micro, and the Greek letter
    "°F": "(?:[°º] ?|degrees )f(?:ahrenheit)?",
    "°C": "(?:[°º] ?|degrees )c(?:elsius)?",
}
_UNIT = rf"(?P<unit>{'|'.join(_UNITS.values())}|(?<=\d )[fc]|(?<=\d)[fc])(?![\w/%²^]| per )"
_ANY_UNIT = re.compile(rf"(?<![A-Za-z]){_UNIT}", re.IGNORECASE)
_NUMBER = r"\d+(?:\.\d+)?"
_JOINT = r"(?P<joint>\s?(?:[-\u2013±]|to|and)\s?)"
_VALUE = re.compile(
    rf"(?<![\w.,/^±-])(?<!± )(?P<low>{_NUMBER})(?:{_JOINT}(?P<high>{_NUMBER}))?(?P<gap>\s?){_UNIT}",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"\d\s?(?:m?g ?%|m?g ?/ ?100|(?:m|\u00b5|\u03bc|u)?(?:g|mol) per (?:d?l|100)\b)", re.IGNORECASE
)
# a body's temperature in °C; what is less is a difference, or no body's
MIN_CELSIUS = 30
MAX_CELSIUS = 45
_Whose = Analyte | Literal["other"] | None


def _in_other_units(parts: PromptParts) -> str | None:
    """The text with all values of analytes of perturbations.yml converted; None where one of them
    is not sure.

    A unit that stands without a value, or in what is asked with the text, may be what is asked for.
    """
    values = list(_VALUE.finditer(parts.head))
    if any(_belongs_to_more(parts.head, value) for value in values):
        return None
    units = len(list(_ANY_UNIT.finditer(parts.head)))
    is_elsewhere = _ANY_UNIT.search(f"{parts.tail}\n{parts.beside}")
    unsure = units != len(values) or is_elsewhere or _OTHERWISE.search(parts.head)
    if unsure or guarded(parts, data().unit_question):
        return None
    changes: list[tuple[int, int, str]] = []
    whose: _Whose = None
    end = 0
    in_both = _stated_twice(parts.head, values)
    for value in values:
        whose = _analyte_of(parts.head[end : value.start()], whose)
        end = value.end()
        if whose == "other" or value in in_both:
            continue
        new = whose and _in_other_unit(whose, value, parts.head[end:])
        if new is None:
            return None
        if new:
            changes.append((*value.span(), new))
    return put(parts.head, changes)


_OTHER_END = re.compile(
    r"\d\s*(?:,|/|;|or|and|to|through|up to|[-\u2013])\s*"
    r"(?:(?:more|less|greater|higher|lower|than|at|least|most|above|below|over|under|between|[<>\u2264\u2265])\s*)*\Z",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\s*(?:[-\u2013/]|to|or|and|through)\s*\d+(?:\.\d+)?(?!\s*[%\w])", re.IGNORECASE
)


def _belongs_to_more(text: str, value: re.Match[str]) -> bool:
    """Return whether a number without a unit beside it shares the unit of this value.

    To convert one of "70, 100 and 130 mg/dL", or one end of a range, would change what is said.
    """
    if _OTHER_END.search(text[max(0, value.start() - 60) : value.start()]):
        return True
    return _GOES_ON.match(text, value.end()) is not None


def _stated_twice(text: str, values: list[re.Match[str]]) -> list[re.Match[str]]:
    """The values that stand in both units: 38.3 C (100.9 F)."""
    twice = []
    for first, second in pairwise(values):
        is_beside = re.fullmatch(r"\s*[(/\[]\s*", text[first.end() : second.start()])
        if is_beside and _unit_of(first) != _unit_of(second):
            twice += [first, second]
    return twice


def _unit_of(value: re.Match[str]) -> str:
    for name, form in _UNITS.items():
        if re.fullmatch(form, value["unit"], re.IGNORECASE):
            return name
    return f"°{value['unit'].upper()}"


def _analyte_of(before: str, last: _Whose) -> _Whose:
    """Whose value follows these words; None where that is not certain."""
    clause = re.split(r"[;\n]|[.?!] ", before)[-1]
    table: dict[str, _Whose] = {}
    for analyte in data().analytes:
        table |= dict.fromkeys(map(str.lower, analyte.names), analyte)
    table |= dict.fromkeys(map(str.lower, data().other_analytes), "other")
    names = list(any_of(tuple(table)).finditer(clause))
    if not names:
        return last if _links(before, data().range_words) else None
    # of a list it is the one behind the last comma before the value
    names = [name for name in names if "," not in clause[name.end() :].lstrip()[1:]]
    whose = [table[name.group().lower()] for name in names]
    if not whose or any(analyte != whose[0] for analyte in whose):
        return None
    if not _links(clause[names[-1].end() :], data().range_words + data().value_words):
        return None
    return whose[0]


def _links(between: str, words: list[str]) -> bool:
    return set(re.findall(r"[^\W\d_]+|\d", between.lower())) <= set(map(str.lower, words))


def _in_other_unit(analyte: Analyte, value: re.Match[str], after: str) -> str | None:
    unit = _unit_of(value)
    low = Decimal(value["low"])
    numbers = [low]
    if value["high"]:
        numbers.append(Decimal(value["high"]))
    if unit not in analyte.units or any(number in analyte.thresholds for number in numbers):
        return None
    bare = re.match(r"\s*\(([^)]*)\)", after)
    if bare and re.search(r"\d", bare[1]) and not _VALUE.search(bare[1]):
        return None
    if analyte.offset:
        for number in numbers:
            celsius = number
            if unit != analyte.units[1]:
                celsius = analyte.exact(number, unit)
            if not MIN_CELSIUS <= celsius <= MAX_CELSIUS:
                return None
    other = analyte.units[unit == analyte.units[0]]
    converted = _converted(value["low"], analyte, unit, other)
    if value["high"]:
        converted += value["joint"] + _converted(value["high"], analyte, unit, other)
    return f"{converted}{value['gap'] or ' '}{other}"


def _converted(number: str, analyte: Analyte, unit: str, other: str) -> str:
    """The number in the other unit, with three digits or more: as many as give the number again
    when they are converted back and rounded as it was.

    A temperature has a decimal at least: at 38 °C, 100.4 °F, fever begins.
    """
    value = Decimal(number)
    exact = analyte.exact(value, unit)
    fewest = exact.adjusted() + 2 if analyte.offset else 3
    for digits in range(max(fewest, len(value.as_tuple().digits)), 12):
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_HALF_UP)
        if analyte.exact(rounded, other).quantize(Decimal(number), ROUND_HALF_UP) == value:
            break
    text = f"{rounded:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


@dataclass(frozen=True)
class Family:
    """One way to word a question differently."""

    about: str  # what is changed, as a clause
    why_safe: str  # why the right answer stays
    needs: str  # what a question has to hold, so that the family applies
    change: Callable[[PromptParts], str | None]
    # whether a clinician has to read the changed questions: its guards do not hold everywhere
    unchecked: bool = False


_NOT_ASKED = "the ingredient is the same, and the names are not what is asked for"
_ADDED = (
    "only for one patient whose age is stated; "
    "nothing in the text or its choices may depend on it (word lists)"
)
_ONE_PATIENT = "one patient, whose age is stated, and nothing that may depend on the change"
FAMILIES: Mapping[str, Family] = {
    "typos": Family(
        "one word in twenty has a typing error",
        "ordinary words alone, still to be recognized",
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
        "the pairs mean the same wherever they stand",
        "a word of the list of pairs",
        _synonyms,
    ),
    "dialect": Family(
        "American spelling is made British, or British American",
        "no word is exchanged",
        "a word that the two spell differently",
        _dialect,
        unchecked=True,
    ),
    "gender": Family(
        "the patient's sex is swapped, with all words for it",
        _ADDED,
        _ONE_PATIENT,
        _gender,
        unchecked=True,
    ),
    "race": Family(
        "a sentence names the patient's race", _ADDED, _ONE_PATIENT, _race, unchecked=True
    ),
    "person_name": Family(
        "the patient gets a name, or another one",
        _ADDED,
        _ONE_PATIENT,
        _person_name,
        unchecked=True,
    ),
    "brand_names": Family(
        "generic names of drugs are replaced by brands",
        _NOT_ASKED,
        "a drug of the list by its generic name",
        _brand_names,
        unchecked=True,
    ),
    "generic_names": Family(
        "brands of drugs are replaced by generic names",
        _NOT_ASKED,
        "a drug of the list by its brand",
        _generic_names,
        unchecked=True,
    ),
    "units": Family(
        "laboratory values are in other units",
        "each is converted, and rounds back the same",
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
        "one grown-up patient who can speak, whose age is stated",
        _first_person,
    ),
    "worried": Family(
        "a worried sentence comes first",
        "it tells a feeling and nothing of the case",
        "a text in English",
        _worried,
    ),
    "demographics": Family(
        "residence and occupation are added",
        _ADDED,
        _ONE_PATIENT,
        _demographics,
        unchecked=True,
    ),
}
CHECKED_FAMILIES = tuple(name for name, family in FAMILIES.items() if not family.unchecked)
