"""Perturbs questions by units: converts laboratory values and temperatures to their other unit."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Final, Literal

from eval_factory.tasks.perturbation_words import (
    Analyte,
    PromptParts,
    has_word_beginning_with,
    pattern_of,
    with_changes,
    word_lists,
)

_UNITS = {
    "mg/dL": "mg ?/ ?dl",
    "g/dL": "gm? ?/ ?dl",
    "mmol/L": "mmol ?/ ?l",
    "g/L": "g ?/ ?l",
    "µmol/L": "(?:[\u00b5\u03bcu]|micro)mol ?/ ?l",  # the sign micro, and the Greek letter
    "°F": "(?:[°º] ?|degrees )f(?:ahrenheit)?",
    "°C": "(?:[°º] ?|degrees )c(?:elsius)?",
}
"""A dict from the name of a unit to the pattern that finds the unit's spellings."""
# A unit, or the bare letter F or C after a number. The unit must not continue ("mg/dL per hour").
_UNIT = rf"(?P<unit>{'|'.join(_UNITS.values())}|(?<=\d )[fc]|(?<=\d)[fc])(?![\w/%²^]| per )"
_ANY_UNIT = re.compile(rf"(?<![A-Za-z]){_UNIT}", re.IGNORECASE)  # a unit, also without a number
_NUMBER = r"\d+(?:\.\d+)?"
_JOINT = r"(?P<joint>\s?(?:[-\u2013±]|to|and)\s?)"  # joins the two numbers of a range
# A number or a range of numbers, with a unit: "90 mg/dL", "3.5-5.0 g/dL". `low` is the number, or
# the first number of a range. It must not continue another number, as in "120/80 mg/dL", and must
# not be a deviation, as the 5 in "90 mg/dL ± 5 mg/dL".
_VALUE = re.compile(
    rf"(?<![\w.,/^±-])(?<!± )(?P<low>{_NUMBER})(?:{_JOINT}(?P<high>{_NUMBER}))?(?P<gap>\s?){_UNIT}",
    re.IGNORECASE,
)
# a number with a unit in a form that is not converted: mg%, mg/100, mg per dl
_UNSUPPORTED_UNIT = re.compile(
    r"\d\s?(?:m?g ?%|m?g ?/ ?100|(?:m|\u00b5|\u03bc|u)?(?:g|mol) per (?:d?l|100)\b)", re.IGNORECASE
)

NOT_CONVERTED: Final = "not converted"
_AnalyteOfValue = Analyte | Literal["not converted"] | None
"""The analyte of a value. `NOT_CONVERTED`: an analyte of the list `other_analytes`; None: the
analyte is uncertain.
"""


def in_other_units(parts: PromptParts) -> str | None:
    """Return the text with all values of the analytes in perturbations.yml converted.

    None is returned in each of these cases:

    - The analyte of a value is uncertain.
    - A number shares its unit with another number, or a unit has no number.
    - The question may ask for a unit, or the unchanged text has a unit.
    """
    values = list(_VALUE.finditer(parts.text))
    if any(_shares_unit(parts.text, value) for value in values):
        return None
    units = list(_ANY_UNIT.finditer(parts.text))
    if len(units) != len(values) or _UNSUPPORTED_UNIT.search(parts.text):
        return None
    if _ANY_UNIT.search(parts.unchanged_text) or has_word_beginning_with(
        parts, word_lists().unit_question
    ):
        return None
    changes: list[tuple[int, int, str]] = []  # (start, end, new text)
    analyte: _AnalyteOfValue = None  # of the previous value, until the loop sets it to the next
    end = 0  # the position after the previous value
    in_both_units = _stated_twice(parts.text, values)
    for value in values:
        analyte = _analyte_of(parts.text[end : value.start()], analyte)
        end = value.end()
        if analyte == NOT_CONVERTED or value in in_both_units:
            continue
        if analyte is None:
            return None
        new = _in_other_unit(analyte, value, parts.text[end:])
        if new is None:
            return None
        changes.append((*value.span(), new))
    return with_changes(parts.text, changes)


# a number before a value that may share the value's unit: "70, " or "between 70 and "
_NUMBER_BEFORE = re.compile(
    r"\d\s*(?:,|/|;|or|and|to|through|up to|[-\u2013])\s*"
    r"(?:(?:more|less|greater|higher|lower|than|at|least|most|above|below|over|under|between"
    r"|[<>\u2264\u2265])\s*)*\Z",
    re.IGNORECASE,
)
_MAX_LENGTH_BEFORE = 60  # the number of characters before a value in which a number is searched
# a number without a unit after a value: " to 130"
_NUMBER_AFTER = re.compile(
    r"\s*(?:[-\u2013/]|to|or|and|through)\s*\d+(?:\.\d+)?(?!\s*[%\w])", re.IGNORECASE
)


def _shares_unit(text: str, value: re.Match[str]) -> bool:
    """Return True if a number without a unit shares the unit of this value.

    In "70, 100 and 130 mg/dL", only the last number would be converted.
    """
    start = max(0, value.start() - _MAX_LENGTH_BEFORE)
    if _NUMBER_BEFORE.search(text[start : value.start()]):
        return True
    return _NUMBER_AFTER.match(text, value.end()) is not None


def _stated_twice(text: str, values: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return the values that are stated in both units, such as 38.3 C (100.9 F)."""
    twice = []
    for first, second in pairwise(values):
        is_beside = re.fullmatch(r"\s*[(/\[]\s*", text[first.end() : second.start()])  # " (", "/"
        if is_beside and _unit_of(first) != _unit_of(second):
            twice += [first, second]
    return twice


def _unit_of(value: re.Match[str]) -> str:
    """Return the value's unit, as a key of `_UNITS`."""
    for name, spellings in _UNITS.items():
        if re.fullmatch(spellings, value["unit"], re.IGNORECASE):
            return name
    bare_letter = value["unit"].upper()  # C or F
    return f"°{bare_letter}"


def _analyte_of(before: str, previous: _AnalyteOfValue) -> _AnalyteOfValue:
    """Return the analyte of the value that follows `before`; None if the analyte is uncertain.

    If only words for a range stand between two values, both values have the same analyte.

    Args:
        before: the text between the previous value and this value.
        previous: the analyte of the previous value.
    """
    clause = re.split(r"[;\n]|[.?!] ", before)[-1]  # the text after the last sentence or clause
    analytes_by_name = _analytes_by_name()
    names = list(pattern_of(tuple(analytes_by_name)).finditer(clause))
    if not names:
        if _has_only(before, word_lists().range_words):
            return previous
        return None
    # In a list of names, the value belongs to the name after the last comma. A comma directly after
    # the name ("glucose, 90 mg/dL") does not end the list: `[1:]` skips this comma.
    names = [name for name in names if "," not in clause[name.end() :].lstrip()[1:]]
    analytes = [analytes_by_name[name.group().lower()] for name in names]
    if not analytes or any(analyte != analytes[0] for analyte in analytes):
        return None
    between = clause[names[-1].end() :]
    if not _has_only(between, word_lists().range_words + word_lists().value_words):
        return None
    return analytes[0]


def _analytes_by_name() -> dict[str, _AnalyteOfValue]:
    """Return a dict from each listed name, in lower case, to the analyte or `NOT_CONVERTED`."""
    analytes_by_name: dict[str, _AnalyteOfValue] = {}
    for analyte in word_lists().analytes:
        for name in analyte.names:
            analytes_by_name[name.lower()] = analyte
    for name in word_lists().other_analytes:
        analytes_by_name[name.lower()] = NOT_CONVERTED
    return analytes_by_name


def _has_only(text: str, words: list[str]) -> bool:
    """Return True if the text has no digits, and only words of the list."""
    words_and_digits = set(re.findall(r"[^\W\d_]+|\d", text.lower()))  # each word or single digit
    return words_and_digits <= {word.lower() for word in words}


# The limits of body temperatures, in °C. A value outside is a difference between temperatures, or
# the temperature of something else.
MIN_CELSIUS = 30
MAX_CELSIUS = 45
_MAX_DIGITS = 11  # significant digits of a number before and after the conversion


def _in_other_unit(analyte: Analyte, value: re.Match[str], after: str) -> str | None:
    """Return the value or range in the analyte's other unit.

    None is returned in each of these cases:

    - The unit is not a unit of the analyte.
    - A number is a threshold, or has too many digits.
    - A temperature cannot be that of a body.
    - Brackets with a number without a unit follow, such as a reference range.

    Args:
        analyte: the analyte of the value.
        value: a match of `_VALUE`.
        after: the text after the value.
    """
    unit = _unit_of(value)
    numbers = [Decimal(value["low"])]
    if value["high"]:
        numbers.append(Decimal(value["high"]))
    if unit not in analyte.units or any(number in analyte.thresholds for number in numbers):
        return None
    if any(len(number.as_tuple().digits) > _MAX_DIGITS for number in numbers):
        return None
    brackets = re.match(r"\s*\(([^)]*)\)", after)  # " (normal: 3.5-5.0)"
    if brackets:
        has_number = re.search(r"\d", brackets[1]) is not None
        if has_number and not _VALUE.search(brackets[1]):
            return None
    if _is_temperature(analyte) and not _are_of_body(numbers, analyte, unit):
        return None
    first_unit, second_unit = analyte.units
    other_unit = first_unit
    if unit == first_unit:
        other_unit = second_unit
    converted = _converted(value["low"], analyte, unit, other_unit)
    if value["high"]:
        converted += value["joint"] + _converted(value["high"], analyte, unit, other_unit)
    gap = value["gap"] or " "
    return f"{converted}{gap}{other_unit}"


def _is_temperature(analyte: Analyte) -> bool:
    """Return True if the analyte's units have different zero points."""
    return analyte.offset != 0


def _are_of_body(temperatures: list[Decimal], analyte: Analyte, unit: str) -> bool:
    """Return True if all temperatures can be those of a body.

    `unit`: the unit of the temperatures, one of the analyte's units (°F and °C).
    """
    for temperature in temperatures:
        celsius = temperature
        if unit != "°C":
            # The factor 5/9 is a rounded number: without this rounding, 113 °F is more than 45 °C.
            celsius = round(analyte.unrounded(temperature, unit), 6)
        if not MIN_CELSIUS <= celsius <= MAX_CELSIUS:
            return False
    return True


def _converted(number: str, analyte: Analyte, unit: str, other_unit: str) -> str:
    """Return the number in the other unit, with the smallest sufficient number of digits.

    Digits are sufficient if the result, converted back and rounded, is the original number. The
    result is rounded to at least three significant digits, to at least the original number of
    digits, and to at most `_MAX_DIGITS` digits. A temperature is rounded to at least one decimal:
    fever begins at 38 °C, which is 100.4 °F. Then zeros at the end of the decimals are removed.
    """
    value = Decimal(number)
    exact = analyte.unrounded(value, unit)
    min_digits = 3
    if _is_temperature(analyte):
        digits_before_point = exact.adjusted() + 1
        min_digits = digits_before_point + 1
    original_digits = len(value.as_tuple().digits)
    for digits in range(max(min_digits, original_digits), _MAX_DIGITS + 1):
        # the place value of the last digit, such as 0.01: `quantize` rounds to this place
        last_digit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        rounded = exact.quantize(last_digit, ROUND_HALF_UP)
        converted_back = analyte.unrounded(rounded, other_unit)
        if converted_back.quantize(value, ROUND_HALF_UP) == value:
            break
    text = f"{rounded:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text
