"""What an answer to MedCalc-Bench says, read by the kind of the calculator that was asked for.

The kinds and the forms are those of the benchmark's own extraction (github.com/ncbi-nlp/MedCalc-Bench,
evaluation/run.py and evaluation/evaluate.py; N. Khandekar et al., NeurIPS 2024); each difference is named where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

Reader = Callable[[str], "float | None"]
"""Text -> the value that it states; None: it states none in a form that is known."""

WHOLE_NUMBER_CATEGORIES = frozenset({"risk", "severity", "diagnosis"})
WELLS_PULMONARY_EMBOLISM = "criteria for pulmonary embolism"
"""In the one question of those categories whose score may be 1.5 or 2.5."""
QUESTION = "Question: "
DATE_FORMATS = ("%m/%d/%Y", "%Y-%m-%d")
DAYS_OF_A_WEEK = 7

_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}")
_NUMBER = re.compile(r"(?<![\w^./-])(?<!\^\{)[+-]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?!\d|[/-]\d+[/-])")
"""With thousands separators. No number of its own: what stands in a date, a unit or a name (m^2, /1.73, CURB-65)."""
_OUT_OF = re.compile(r"(?<!\d)(\d+) out of")
_LISTED = re.compile(r"(?<!\d)-?\d+(?:, ?-?\d+)+")
_DATE = re.compile(r"(?<!\d)(?:\d{1,2}/\d{1,2}/\d{4}|\d{4}-\d{2}-\d{2})(?!\d)")
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
    """The last number, without its unit.

    The authors divide what stands before a `%` by 100; here the sign is a unit as any other, because the one calculator
    of a share (fractional excretion of sodium) asks for a percentage. They compute expressions; here none is.
    """
    text = _said(text)
    try:
        return float(text)
    except ValueError:
        numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def whole_number_in(text: str) -> float | None:
    """The score: `3` of `3 out of 5`, how many are listed (`2, 4, 5`), or the last number, rounded."""
    text = _said(text)
    out_of, listed = _OUT_OF.search(text), _LISTED.search(text)
    if out_of is not None:
        return float(out_of[1])
    if listed is not None:
        return float(listed[0].count(",") + 1)
    number = number_in(text)
    try:
        return None if number is None else float(round(number))
    except (ValueError, OverflowError):  # nan, infinity
        return None


def date_in(text: str) -> float | None:
    """The last date, as month/day/year or as ISO 8601 has it (which the authors do not read), as an ordinal number."""
    dates = _DATE.findall(_said(text))
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
    found = _WEEKS_AND_DAYS.search(_RUN_TOGETHER.sub("w ", _said(text)))
    return None if found is None else float(DAYS_OF_A_WEEK * int(found[1]) + int(found[2]))


def _said(text: str) -> str:
    """What stands in the last box of LaTeX, if there is one, without its markup."""
    boxed = _BOXED.findall(text)
    return _LATEX_TEXT.sub(r"\1", boxed[-1] if boxed else text).replace("\N{MINUS SIGN}", "-").strip()
