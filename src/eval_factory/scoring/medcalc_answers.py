"""What an answer to MedCalc-Bench says, read by the kind of the calculator that was asked for.

The value is looked for in the field `answer` of JSON, else in the last box of LaTeX, else behind the last "the answer
is" or "Answer:". There it is what opens the text, a number with its unit ("18 mL/min. Normal is 90 to 120"), else the
last one. What is joined by "or", "to" or a dash is no value: an answer of two values states none.

The kinds and the forms are those of the benchmark's own extraction (github.com/ncbi-nlp/MedCalc-Bench,
evaluation/run.py and evaluation/evaluate.py; N. Khandekar et al., NeurIPS 2024); each difference is named where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from eval_factory.scoring.lenient import SAID, answer_field

Reader = Callable[[str], "float | None"]
"""Text -> the value that it states; None: it states none in a form that is known."""

WHOLE_NUMBER_CATEGORIES = frozenset({"risk", "severity", "diagnosis"})
WELLS_PULMONARY_EMBOLISM = "criteria for pulmonary embolism"
"""In the one question of those categories whose score may be 1.5 or 2.5."""
QUESTION = "Question: "
DATE_FORMATS = ("%m/%d/%Y", "%Y-%m-%d")
DAYS_OF_A_WEEK = 7
THOUSANDS = 3
"""Digits behind a comma that separates thousands."""

_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}")
_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?:\.\d{3})+,\d+|\d+(?:[.,]\d+)?)(?![.,]?\d|[/-]\d+[/-])"
"""With thousands separators, and a decimal comma where it cannot be one of these: 1,234 is 1234, and 12,34 is 12.34."""
_NUMBER = re.compile(rf"(?<![\w^./,-])(?<!\^\{{)[+-]?{_DIGITS}")
"""No number of its own: what stands in a date, a unit or a name (m^2, /1.73, CURB-65)."""
_EITHER = r"(?:or|to|oder|bis|o|u|a|ou|à|versus|vs\.?)"
_UNIT = r"(?: ?[%°a-zµμ][^\s\d,;:()='\"]{0,20}(?:\d[^\s,;:()='\"]{0,8})?){0,2}"
_ALTERNATIVES = re.compile(
    rf"(?<![\w^./,-])[+-]?{_DIGITS}{_UNIT}(?: {_EITHER} |(?<=\d)-(?=\d)| ?[–—~] ?| - )[+-]?{_DIGITS}"  # noqa: RUF001
    rf"|(?<![^\W_])(?:between|zwischen|entre) {_DIGITS}{_UNIT} (?:and|und|y|e|et) {_DIGITS}",
    re.IGNORECASE,
)
_OPENS = re.compile(
    rf"[^\w\n+-]{{0,10}}(?:(?:about|approximately|roughly|ca\.?) )?([+-]?{_DIGITS})(?! ?-?(?:year|yr|y/?o)){_UNIT}\s*"
    r"(?:$|[.,;:(\n]|(?:because|since|as|which|with|for)\b)",
    re.IGNORECASE,
)
_STEP = re.compile(r"^\W{0,10}2[.)]\s", re.MULTILINE)
_MARKS = re.compile(r"[*`$]")
_NEAR_NUMBER = re.compile(r"[^\d\n]{0,30}\d")
_OUT_OF = re.compile(r"(?<!\d)(\d+) out of")
_LISTED = re.compile(r"(?<!\d)-?\d+(?: ?, ?-?\d+)+")
_DATE = re.compile(r"(?<!\d)(?:\d{1,2}/\d{1,2}/\d{4}|\d{4}-\d{2}-\d{2})(?!\d)")
_OPENING_DATE = re.compile(rf"\W{{0,10}}({_DATE.pattern})\s*(?:$|[.,;:(\n])")
_EITHER_OF_DATES = re.compile(rf"{_DATE.pattern} (?:or|oder|o|ou) {_DATE.pattern}", re.IGNORECASE)
_NEXT_DURATION = re.compile(rf"[\W_]{{0,3}}{_EITHER} \W?\d", re.IGNORECASE)
_DECIMAL_ZERO = re.compile(r"(?<![\d,])(\d{1,3}),0(?![\d,])")
_IS_WEEKS = re.compile(r"\('\d+ weeks', '\d+ days'\)")
_WEEKS_AND_DAYS = re.compile(
    r"(?<![\d.])(\d{1,3})(?:\s*(?:weeks?|w)\b['\"]?,?(?:\s+and)?|['\"]?,)\s*['\"]?(\d{1,3})(?:\s*(?:days?|d)\b|\s*['\"]?[)\]]|\s*$)",
    re.IGNORECASE,
)
_RUN_TOGETHER = re.compile(r"(?<=\d)w(?=\d)", re.IGNORECASE)


def reader_of(prompt: str, category: object, gold: str) -> Reader:
    """By the calculator, as far as an instance of HELM tells: its category, its gold answer's form, its question."""
    if _IS_WEEKS.match(gold):
        return days_in
    if category == "date":
        return date_in
    question = prompt.rpartition(QUESTION)[2].lower()
    if category in WHOLE_NUMBER_CATEGORIES and WELLS_PULMONARY_EMBOLISM not in question:
        return whole_number_in
    return number_in


def number_in(text: str) -> float | None:
    """The number that opens the text, or the last one, without its unit.

    The authors take the last one, and divide what stands before a `%` by 100; here the sign is a unit as any other,
    because the one calculator of a share (fractional excretion of sodium) asks for a percentage. They compute
    expressions; here none is.
    """
    text = _said(text)
    try:
        return float(text)
    except ValueError:
        single = _ALTERNATIVES.sub(" ", text)
    opening = None if _STEP.search(single) else _OPENS.match(single)
    if opening is not None:
        return _float(opening[1])
    numbers = _NUMBER.findall(single)
    return _float(numbers[-1]) if numbers else None


def _float(digits: str) -> float:
    """Of digits as `_DIGITS` has them."""
    whole, comma, rest = digits.rpartition(",")
    is_decimal = comma and "." not in rest and ("." in whole or len(rest) != THOUSANDS or whole.lstrip("+-") == "0")
    return float(f"{whole.replace('.', '')}.{rest}" if is_decimal else digits.replace(",", ""))


def whole_number_in(text: str) -> float | None:
    """The score: `3` of `3 out of 5`, how many are listed (`2, 4, 5`), or the number, rounded."""
    text = _DECIMAL_ZERO.sub(r"\1", _said(text))
    out_of, listed = _OUT_OF.search(text), _LISTED.search(text)
    opens = _OPENS.match(text) is not None and not (listed and _LISTED.match(text.lstrip("([")))
    if out_of is not None and not opens:
        return float(out_of[1])
    if listed is not None and not opens:
        return float(listed[0].count(",") + 1)
    number = number_in(text)
    try:
        return None if number is None else float(round(number))
    except (ValueError, OverflowError):  # nan, infinity
        return None


def date_in(text: str) -> float | None:
    """The date that opens the text, or the last one, as an ordinal number: month/day/year, or as ISO 8601 has it (which
    the authors do not read)."""
    text = _EITHER_OF_DATES.sub(" ", _said(text))
    opening = _OPENING_DATE.match(text)
    dates = [opening[1]] if opening else _DATE.findall(text)
    for form in DATE_FORMATS if dates else ():
        try:
            return float(datetime.strptime(dates[-1], form).toordinal())
        except ValueError:
            continue
    return None


def days_in(text: str) -> float | None:
    """Weeks and days, as the prompt writes them, (4 weeks, 3 days), or as the data do, ('4 weeks', '3 days').

    Two numbers need something between them: the authors' pattern reads 14 as 1 week and 4 days.
    """
    text = _RUN_TOGETHER.sub("w ", _said(text))
    found = _WEEKS_AND_DAYS.search(text)
    if found is None or _NEXT_DURATION.match(text, found.end()):
        return None
    return float(DAYS_OF_A_WEEK * int(found[1]) + int(found[2]))


def _said(text: str) -> str:
    """What is said to be the answer, without markup: see the module."""
    text = answer_field(text)
    boxed = _BOXED.findall(text)
    text = _LATEX_TEXT.sub(r"\1", boxed[-1] if boxed else text)
    text = _MARKS.sub(" ", text).replace("\N{MINUS SIGN}", "-").strip()
    said = [match.end() for match in SAID.finditer(text) if _NEAR_NUMBER.match(text, match.end())]
    return text[said[-1] :].strip() if said else text
