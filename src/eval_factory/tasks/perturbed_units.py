"""Values of laboratory tests in the other system of units."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Literal

from eval_factory.tasks.perturbation_words import Analyte, Asked, any_of, data, guarded, put

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
    rf"(?<![\w.,/^±-])(?<!± )(?P<low>{_NUMBER})(?:{_JOINT}(?P<high>{_NUMBER}))?(?P<gap>\s?){_UNIT}", re.IGNORECASE
)
_OTHERWISE = re.compile(r"\d\s?(?:m?g ?%|m?g ?/ ?100|(?:m|\u00b5|\u03bc|u)?(?:g|mol) per (?:d?l|100)\b)", re.IGNORECASE)
_LEAST, _MOST = 30, 45  # a body's temperature in °C; what is less is a difference, or no body's
_Whose = Analyte | Literal["other"] | None


def in_other_units(asked: Asked) -> str | None:
    """The text with all values of analytes of perturbations.yml converted; None where one of them is not sure.

    A unit that stands without a value, or in what is asked with the text, may be what is asked for.
    """
    values = list(_VALUE.finditer(asked.head))
    units = len(list(_ANY_UNIT.finditer(asked.head)))
    is_elsewhere = _ANY_UNIT.search(f"{asked.tail}\n{asked.beside}")
    unsure = units != len(values) or is_elsewhere or _OTHERWISE.search(asked.head)
    if unsure or guarded(asked, data().unit_question):
        return None
    changes: list[tuple[int, int, str]] = []
    whose: _Whose = None
    end = 0
    both = _stated_twice(asked.head, values)
    for found in values:
        whose = _analyte_of(asked.head[end : found.start()], whose)
        end = found.end()
        new = "" if whose == "other" or found in both else whose and _in_other_unit(whose, found, asked.head[end:])
        if new is None:
            return None
        changes += [(*found.span(), new)] if new else []
    return put(asked.head, changes)


def _stated_twice(text: str, values: list[re.Match[str]]) -> list[re.Match[str]]:
    """The values that stand in both units: 38.3 C (100.9 F)."""
    pairs = [
        pair
        for pair in pairwise(values)
        if re.fullmatch(r"\s*[(/\[]\s*", text[pair[0].end() : pair[1].start()])
        and _unit_of(pair[0]) != _unit_of(pair[1])
    ]
    return [one for pair in pairs for one in pair]


def _unit_of(found: re.Match[str]) -> str:
    names = (name for name, form in _UNITS.items() if re.fullmatch(form, found["unit"], re.IGNORECASE))
    return next(names, f"°{found['unit'].upper()}")


def _analyte_of(before: str, last: _Whose) -> _Whose:
    """Whose value follows these words; None where that is not certain."""
    clause = re.split(r"[;\n]|[.?!] ", before)[-1]
    table: dict[str, _Whose] = {name.lower(): one for one in data().analytes for name in one.names}
    table |= dict.fromkeys(map(str.lower, data().other_analytes), "other")
    names = list(any_of(tuple(table)).finditer(clause))
    if not names:
        return last if _links(before, data().range_words) else None
    # of a list it is the one behind the last comma before the value
    names = [one for one in names if "," not in clause[one.end() :].lstrip()[1:]]
    whose = [table[one.group().lower()] for one in names]
    if not whose or any(one != whose[0] for one in whose):
        return None
    return whose[0] if _links(clause[names[-1].end() :], data().range_words + data().value_words) else None


def _links(between: str, words: tuple[str, ...]) -> bool:
    return set(re.findall(r"[^\W\d_]+|\d", between.lower())) <= set(map(str.lower, words))


def _in_other_unit(analyte: Analyte, found: re.Match[str], after: str) -> str | None:
    unit = _unit_of(found)
    decides = any(Decimal(found[one]) in analyte.thresholds for one in ("low", "high") if found[one])
    bare = re.match(r"\s*\(([^)]*)\)", after)
    if decides or unit not in analyte.units or (bare and re.search(r"\d", bare[1]) and not _VALUE.search(bare[1])):
        return None
    other = analyte.units[unit == analyte.units[0]]
    if analyte.offset:
        both = [Decimal(one) for one in (found["low"], found["high"]) if one]
        celsius = both if unit == analyte.units[1] else [analyte.exact(one, unit) for one in both]
        if not all(_LEAST <= one <= _MOST for one in celsius):
            return None
    high = f"{found['joint']}{_converted(found['high'], analyte, unit, other)}" if found["high"] else ""
    return f"{_converted(found['low'], analyte, unit, other)}{high}{found['gap'] or ' '}{other}"


def _converted(number: str, analyte: Analyte, unit: str, other: str) -> str:
    """In three digits or more: as many as give the number again when they are converted back and rounded as it was.

    A temperature has a decimal at least: at 38 °C, 100.4 °F, fever begins.
    """
    value = Decimal(number)
    exact = analyte.exact(value, unit)
    fewest = exact.adjusted() + 2 if analyte.offset else 3
    for digits in range(max(fewest, len(value.as_tuple().digits)), 12):
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_HALF_UP)
        if analyte.exact(rounded, other).quantize(Decimal(number), ROUND_HALF_UP) == value:
            break
    return f"{rounded:f}".rstrip("0").rstrip(".") if "." in f"{rounded:f}" else f"{rounded:f}"
