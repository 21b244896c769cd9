"""Defines a statement: the options that one passage of an answer states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from eval_factory.reading.clauses import Group
from eval_factory.reading.mention import Form


class Strength(IntEnum):
    """The strength of a statement; only the strongest statements of an answer count."""

    PREFERRED = 1  # "the most likely diagnosis is B"
    STATED = 2  # "the answer is B"


@dataclass(frozen=True)
class Statement:
    """The options that one passage of an answer states: usually one option."""

    labels: frozenset[str]
    start: int  # the position of the first option in the text
    strength: Strength = Strength.STATED
    is_conflict: bool = False  # True if a label is followed by the text of another option


def statement_of(group: Group, strength: Strength = Strength.STATED) -> Statement:
    """Return the statement that the options of a group are the answer."""
    is_conflict = any(mention.form is Form.CONFLICT for mention in group.mentions)
    return Statement(group.labels, group.start, strength, is_conflict)
