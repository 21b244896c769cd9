"""Reads the value in an answer to MedCalc-Bench: a number, a whole number, a date or a duration.

The functions follow the benchmark's own code (N. Khandekar et al., NeurIPS 2024;
github.com/ncbi-nlp/MedCalc-Bench, evaluation/run.py and evaluate.py). The docstring of each
function names its differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from eval_factory.reading import stated_value

DATE_FORMATS = ("%m/%d/%Y", "%Y-%m-%d")  # the formats of dates that are read: US dates, ISO 8601

_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"  # "3,000", "3,000.5"
    r"|[1-9]\d{0,2}(?:\.\d{3})+,\d+"  # "3.000,5"
    r"|\d+(?:[.,]\d+)?)"  # "12", "1.5", "12,34"
    r"(?![.,]?\d|[/-]\d+[/-])"  # neither "1.2" in "1.2.3", nor "12" in "12/03/2024"
)
"""The digits of a number, with or without thousands separators. A comma is a decimal comma only if
it cannot be a thousands separator: 1,234 is 1234, and 12,34 is 12.34.
"""
# a number such as "-1.5", which is not part of a date, a unit or a name (m^2, m^{2}, CURB-65)
_NUMBER = re.compile(rf"(?<![\w^./,-])(?<!\^\{{)[+-]?{_DIGITS}")
# words and signs between two alternatives or the ends of a range
_OR = r"(?:or|to|oder|bis|o|u|a|ou|à|versus|vs\.?)"
# up to two words that may be units: " mg/dL", "%", " mL/min/1.73 m2"
_UNIT = r"(?: ?[%°a-zµμ][^\s\d,;:()='\"]{0,20}(?:\d[^\s,;:()='\"]{0,8})?){0,2}"
# two numbers that are alternatives or a range
_ALTERNATIVES = re.compile(
    rf"(?<![\w^./,-])[+-]?{_DIGITS}{_UNIT}"  # "3" or "3 mg" of the next examples
    rf"(?: {_OR} "  # "3 mg or 4"
    rf"|(?<=\d)-(?=\d)| ?[–—~] ?| - )[+-]?{_DIGITS}"  # noqa: RUF001 - "3-4", "3 mg ~ 4", "3 - 4"
    # "between 3 mg and 4"
    rf"|(?<![^\W_])(?:between|zwischen|entre) {_DIGITS}{_UNIT} (?:and|und|y|e|et) {_DIGITS}",
    re.IGNORECASE,
)
# a number at the start of a text, such as "about 12.5 mg, because"; an age ("65 year") is no value
_OPENING_NUMBER = re.compile(
    rf"[^\w\n+-]{{0,10}}(?:(?:about|approximately|roughly|ca\.?) )?([+-]?{_DIGITS})"
    rf"(?! ?-?(?:year|yr|y/?o)){_UNIT}\s*"
    r"(?:$|[.,;:(\n]|(?:because|since|as|which|with|for)\b)",
    re.IGNORECASE,
)
# the second step of a numbered list, such as "2. The albumin is 3"; the number at the start of the
# text is then the number of the first step, and not a value
_SECOND_STEP = re.compile(r"^\W{0,10}2[.)]\s", re.MULTILINE)
_OUT_OF = re.compile(r"(?<!\d)(\d+) out of")  # "3 out of 5"
# a list of whole numbers, such as "2, 4, 5"
_NUMBER_LIST = re.compile(r"(?<!\d)-?\d+(?: ?, ?-?\d+)+")
# "12/31/2024", "2024-12-31"
_DATE = re.compile(r"(?<!\d)(?:\d{1,2}/\d{1,2}/\d{4}|\d{4}-\d{2}-\d{2})(?!\d)")
# a date at the start of a text, such as "12/31/2024, because"
_OPENING_DATE = re.compile(rf"\W{{0,10}}({_DATE.pattern})\s*(?:$|[.,;:(\n])")
# "12/31/2024 or 01/01/2025"
_ALTERNATIVE_DATES = re.compile(rf"{_DATE.pattern} (?:or|oder|o|ou) {_DATE.pattern}", re.IGNORECASE)
# the start of an alternative after a duration, such as "or 5"
_NEXT_DURATION = re.compile(rf"[\W_]{{0,3}}{_OR} \W?\d", re.IGNORECASE)
# a whole number with a decimal comma and a zero, such as "3,0"
_DECIMAL_ZERO = re.compile(r"(?<![\d,])(\d{1,3}),0(?![\d,])")
# a duration, such as "4 weeks and 3 days", "4w 3d", "('4 weeks', '3 days')" or "(4, 3)"
_WEEKS_AND_DAYS = re.compile(
    r"(?<![\d.])(\d{1,3})"  # the number of weeks
    r"(?:\s*(?:weeks?|w)\b['\"]?,?(?:\s+and)?|['\"]?,)"  # " weeks and", "w", " weeks',", ","
    r"\s*['\"]?(\d{1,3})"  # the number of days
    r"(?:\s*(?:days?|d)\b|\s*['\"]?[)\]]|\s*$)",  # " days", "d", ")", the end of the text
    re.IGNORECASE,
)
# a "w" between digits, as in "4w3d"
_RUN_TOGETHER = re.compile(r"(?<=\d)w(?=\d)", re.IGNORECASE)


def value_reader_of(prompt: str, category: object, gold: str) -> Callable[[str], float | None]:
    """Return the function that reads the value in an answer to a MedCalc-Bench question.

    Each calculator has its kind of value: a number, a whole number, a date or a duration. HELM's
    instances do not name the calculator, so the kind is inferred from the category, from the form
    of the right answer and from the question. The returned function returns None if the answer has
    no value in a known form.

    Args:
        prompt: the prompt of the instance.
        category: the category of the instance in HELM's extra data.
        gold: the text of the right answer.
    """
    if re.match(r"\('\d+ weeks', '\d+ days'\)", gold):  # the form of a right duration
        return days_in
    if category == "date":
        return date_in
    if category not in ("risk", "severity", "diagnosis"):
        return number_in
    # The calculators of these categories add up points. Only Wells' criteria have half points.
    _, _, question = prompt.rpartition("Question: ")
    if "criteria for pulmonary embolism" in question.lower():
        return number_in
    return whole_number_in


def number_in(text: str) -> float | None:
    """Return the number at the start of the text, or else the last number, without its unit.

    Two numbers that are alternatives, such as "3 or 4", are ignored. The result is None if no
    number is left.

    There are three differences from the authors' code. The authors always take the last number.
    They divide a number before `%` by 100; here `%` is a unit like any other, because the only
    calculator of a share (fractional excretion of sodium) asks for a percentage. The authors also
    evaluate arithmetic expressions; this function does not.
    """
    text = stated_value(text)
    try:
        return float(text)
    except ValueError:
        pass  # The text has more than a number.
    without_alternatives = _ALTERNATIVES.sub(" ", text)
    if not _SECOND_STEP.search(without_alternatives):
        opening = _OPENING_NUMBER.match(without_alternatives)
        if opening is not None:
            return _float(opening[1])
    numbers = _NUMBER.findall(without_alternatives)
    if not numbers:
        return None
    return _float(numbers[-1])


def _float(digits: str) -> float:
    """Convert the digits that `_DIGITS` matches to a float."""
    before, comma, after = digits.rpartition(",")
    if comma and _is_decimal_comma(before, after):
        return float(f"{before.replace('.', '')}.{after}")
    return float(digits.replace(",", ""))


def _is_decimal_comma(before: str, after: str) -> bool:
    """Return True if the last comma of a number, between these two parts, is a decimal comma."""
    if "." in after:  # 1,234.5: the point is the decimal sign
        return False
    if "." in before:  # 1.234,567: the points separate thousands
        return True
    if len(after) != 3:  # 12,34: a thousands separator has three digits after it
        return True
    return before.lstrip("+-") == "0"  # 0,123: a number with thousands does not begin with 0


def whole_number_in(text: str) -> float | None:
    """Return the score that a text states, as a whole number.

    If the text begins with a number, this number is rounded. Otherwise `3 out of 5` is 3, the list
    of criteria `2, 4, 5` is 3 (the number of criteria), and any other number is rounded. The result
    is None if the text has no number, or no finite number.
    """
    text = _DECIMAL_ZERO.sub(r"\1", stated_value(text))
    out_of = _OUT_OF.search(text)
    listed = _NUMBER_LIST.search(text)
    begins_with_list = _NUMBER_LIST.match(text.lstrip("([")) is not None  # "(2, 4, 5)"
    begins_with_number = _OPENING_NUMBER.match(text) is not None and not begins_with_list
    if not begins_with_number:
        if out_of is not None:
            return float(out_of[1])
        if listed is not None:
            return float(listed[0].count(",") + 1)  # the number of criteria
    number = number_in(text)
    if number is None:
        return None
    try:
        return float(round(number))
    except (ValueError, OverflowError):  # the number is nan or infinite
        return None


def date_in(text: str) -> float | None:
    """Return the date at the start of the text, or else the last date, as an ordinal number of
    days.

    The function reads month/day/year and ISO 8601. The authors' code does not read ISO 8601. Two
    dates that are alternatives are ignored. The result is None if no valid date is left.
    """
    text = _ALTERNATIVE_DATES.sub(" ", stated_value(text))
    opening = _OPENING_DATE.match(text)
    dates = _DATE.findall(text)
    if opening is not None:
        dates = [opening[1]]
    if not dates:
        return None
    for form in DATE_FORMATS:
        try:
            return float(datetime.strptime(dates[-1], form).toordinal())
        except ValueError:
            continue
    return None


def days_in(text: str) -> float | None:
    """Return the number of days in a duration of weeks and days.

    The duration is written as in the prompt, (4 weeks, 3 days), or as in the data, ('4 weeks', '3
    days'). The two numbers must be separated; the authors' pattern reads 14 as 1 week and 4 days.
    The result is None if the text has no such duration, or an alternative after the duration.
    """
    text = _RUN_TOGETHER.sub("w ", stated_value(text))
    match = _WEEKS_AND_DAYS.search(text)
    if match is None:
        return None
    if _NEXT_DURATION.match(text, match.end()):  # "4 weeks, 3 days or 5 weeks"
        return None
    return float(7 * int(match[1]) + int(match[2]))
