"""Values of a document as somebody reads them: rounded where digits say nothing, short mappings on one line.

Everything that is rounded is rounded here, so that a document that is made again of the same result is the same. Scores
are never rounded: they are HELM's to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DIGITS_OF_SECONDS = 4
DIGITS_OF_STATISTICS = 6
"""Significant digits of what is derived from scores, or measured. A clock is no better; an interval is an estimate."""

LONGEST_ON_A_LINE = 60
"""Characters of a text that stands on a line with others."""


class OneLine(dict[str, Any]):
    """A mapping that is written in as few lines as it takes, not one a value."""


class OneLineList(list[Any]):
    """The same of a list."""


def rounded(number: float, digits: int) -> float:
    """To so many significant digits: 0.001623436000016909 to 4 of them is 0.001623."""
    return float(f"{number:.{digits}g}")


def seconds(number: float | None) -> float | None:
    return None if number is None else rounded(number, DIGITS_OF_SECONDS)


def rounded_fields(fields: Mapping[str, Any], *exact: str) -> dict[str, Any]:
    """Each number with a fraction rounded, seconds (`..._s`) as such; the fields that are named are left alone."""
    return {name: value if name in exact else _rounded_value(name, value) for name, value in fields.items()}


def _rounded_value(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value, DIGITS_OF_SECONDS if name.endswith("_s") else DIGITS_OF_STATISTICS)
    return rounded_fields(value) if isinstance(value, Mapping) else value


def laid_out(value: Any) -> Any:
    """Mappings and lists of short plain values alone on one line; others a value a line."""
    if isinstance(value, Mapping):
        items = {str(name): laid_out(item) for name, item in value.items()}
        return OneLine(items) if all(map(_is_short, items.values())) else items
    if isinstance(value, (list, tuple)):
        listed = [laid_out(item) for item in value]
        return OneLineList(listed) if _is_plain(listed) else listed
    return value


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_ON_A_LINE and "\n" not in value
    return isinstance(value, OneLineList) or not isinstance(value, (dict, list))


def _is_plain(items: Sequence[Any]) -> bool:
    """Of numbers, or of words: a sentence has a line of its own."""
    return all(not isinstance(item, (dict, list)) and not (isinstance(item, str) and " " in item) for item in items)


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An empty list stays: of it is known that there is none."""
    return {name: value for name, value in fields.items() if value is not None}
