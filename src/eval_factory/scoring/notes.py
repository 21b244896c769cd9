"""What a reader of a score has to know, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from eval_factory.core.foreign_text import one_line

LONGEST_NOTE = 2_000


class Importance(IntEnum):
    """How much a note changes what a score means."""

    NO_RESULT = 1
    """There is no score, or it says nothing about the model."""
    INCOMPLETE = 2
    """Instances, judgements or records are missing from the score."""
    DOUBTFUL = 3
    """The score may be wrong, or not comparable with another run's."""
    BACKGROUND = 4
    """True of the benchmark, whoever is evaluated."""


class Note(NamedTuple):
    importance: Importance
    text: str


class Notes:
    """Collects notes; each is said once."""

    def __init__(self) -> None:
        self._notes: dict[str, Importance] = {}

    def add(self, importance: Importance, *texts: str) -> None:
        for text in texts:
            line = one_line(text, LONGEST_NOTE)
            self._notes[line] = min(importance, self._notes.get(line, importance))

    def extend(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self.add(note.importance, note.text)

    def texts(self) -> tuple[str, ...]:
        """By importance; among equals in the order in which they were added."""
        return tuple(sorted(self._notes, key=self._notes.__getitem__))
