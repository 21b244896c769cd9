"""A multiple-choice question, whatever file it was published in, and how the cells of such a file are read.

Messages name the column and never quote what it holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""Column -> what stands there: text, number, mapping, or None for nothing."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FEWEST_CHOICES = 2
_OPTION_MARK = re.compile(r"(?:^[ \t]*[(\[]?([A-Z])[.:)\]]|(?<=[ \t])\(?([A-Z])\))[ \t]+(?=\S)", re.MULTILINE)


class RowFaultError(ValueError):
    """What is wrong with one column of one row."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")


@dataclass(frozen=True)
class ChoiceQuestion:
    id: str
    """Empty where the published form has none: its place in the file then names it."""
    question: str
    choices: tuple[str, ...]
    right: int
    """Which of the choices, from 0."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Column -> what scores are shown apart by: specialty, country."""
    cluster: tuple[str, str] | None = None
    """What questions share, and its name: `("patient", "patient_01")`."""

    @property
    def letter(self) -> str:
        return LETTERS[self.right]

    def extra_data(self) -> dict[str, str]:
        """What is kept beside the instance."""
        return {**self.groups, **dict([self.cluster] if self.cluster else [])}

    def table_row(self) -> dict[str, str]:
        """As a row of a table: question, choices A to the last, the right letter, groups and what is shared."""
        choices = dict(zip(LETTERS, self.choices, strict=False))
        return {"id": self.id, "question": self.question, **choices, "correct": self.letter, **self.extra_data()}


def options_shown(prompt: str) -> dict[str, str]:
    """Letter -> text of the options that a text lists, at the start of lines (`A. fever`) or as `A) fever B) cough`.

    Of several lists the longest, of equals the last one; empty where none goes from A to B at least.
    """
    parts = _OPTION_MARK.split(prompt)
    listed: list[dict[str, str]] = []
    for at_line, within, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        letter = at_line or within
        if letter == LETTERS[0]:
            listed.append({})
        if listed and letter == LETTERS[len(listed[-1]) % len(LETTERS)]:
            listed[-1][letter] = text.partition("\n")[0].strip()
    longest = max(reversed(listed), key=len, default={})
    return longest if len(longest) >= FEWEST_CHOICES else {}


def is_blank(value: Any) -> bool:
    """Nothing: no cell, NaN (what a table reader makes of an empty cell), or text of spaces."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()


def text_of(row: Row, column: str) -> str:
    """The text of a cell that has to be filled.

    Raises:
        RowFaultError: it is not.
    """
    if column not in row:
        raise RowFaultError(column, "is missing")
    value = row[column]
    if is_blank(value):
        raise RowFaultError(column, "is empty")
    if not isinstance(value, str):
        raise RowFaultError(column, "must be text")
    return value.strip()


def groups_of(row: Row, columns: Iterable[str]) -> dict[str, str]:
    """Of those columns that are filled."""
    return {name: str(row[name]).strip() for name in columns if not is_blank(row.get(name))}


def chosen(choices: Mapping[str, Any], right: str, answer_column: str, choices_column: str) -> tuple[list[str], int]:
    """The choices that are there, in order, and which of them is right.

    Args:
        choices: its name in the published form -> its text; one without text is none.
        right: the name of the right one.
        answer_column: the column that says which is right.
        choices_column: the column that holds the choices.

    Raises:
        RowFaultError: there are too few or too many, one is no text, or none of them is the right one.
    """
    kept = {name: text for name, text in choices.items() if not is_blank(text)}
    if any(not isinstance(text, str) for text in kept.values()):
        raise RowFaultError(choices_column, "each choice must be text")
    if not FEWEST_CHOICES <= len(kept) <= len(LETTERS):
        raise RowFaultError(choices_column, f"must hold {FEWEST_CHOICES} to {len(LETTERS)} choices, holds {len(kept)}")
    if right not in kept:
        raise RowFaultError(answer_column, f"must be one of {', '.join(kept)}")
    return [text.strip() for text in kept.values()], list(kept).index(right)


def lettered(row: Row, column: str) -> dict[str, Any]:
    """A mapping from letters, in their order.

    Raises:
        RowFaultError: the cell holds none.
    """
    value = row.get(column)
    if value is None:
        raise RowFaultError(column, "is missing")
    if not isinstance(value, Mapping) or any(name not in LETTERS or len(name) != 1 for name in value):
        raise RowFaultError(column, 'must be an object such as {"A": "...", "B": "..."}')
    return {name: value[name] for name in sorted(value)}
