"""Collects notes and sorts them by importance."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from eval_factory.core.foreign_text import one_line

MAX_NOTE = 2_000  # the maximum length of a note, in characters


class Importance(IntEnum):
    """The importance of a note; a smaller number is a greater importance."""

    NO_RESULT = 1  # there is no score, or the score says nothing about the model
    INCOMPLETE = 2  # instances, judgements or records are missing from the score
    DOUBTFUL = 3  # the score may be wrong, or not comparable with another run's
    BACKGROUND = 4  # a fact that does not put the score in doubt


class Note(NamedTuple):
    """A fact that a reader of a score has to know, and its importance."""

    importance: Importance
    text: str


class Notes:
    """A collection of notes; each text is stored once, with its greatest importance."""

    def __init__(self) -> None:
        self._notes: dict[str, Importance] = {}

    def add(self, importance: Importance, *texts: str) -> None:
        """Add a note for each text, as one line of at most `MAX_NOTE` characters."""
        for text in texts:
            line = one_line(text, MAX_NOTE)
            # The minimum is the greater importance, if the same text was added before.
            self._notes[line] = min(importance, self._notes.get(line, importance))

    def extend(self, notes: Iterable[Note]) -> None:
        """Add each of these notes."""
        for note in notes:
            self.add(note.importance, note.text)

    @property
    def urgent(self) -> int:
        """The number of notes that say that a result is missing or incomplete."""
        urgent = [note for note in self._notes.values() if note <= Importance.INCOMPLETE]
        return len(urgent)

    def texts(self) -> tuple[str, ...]:
        """Return the texts, the most important first.

        Texts of equal importance come in the order in which they were first added.
        """
        return tuple(sorted(self._notes, key=self._notes.__getitem__))
