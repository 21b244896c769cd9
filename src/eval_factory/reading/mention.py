"""Defines a mention: a passage of a text that names an option."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Form(Enum):
    """The way in which a mention names an option."""

    LABEL = auto()
    TEXT = auto()
    BOTH = auto()  # the label and the text of the option
    CONFLICT = auto()  # a label, followed directly by the text of another option


class Mention(NamedTuple):
    """The passage `text[start:end]` of a text, which names an option."""

    label: str
    start: int
    end: int
    form: Form
    is_marked: bool = False  # True for "option B", "(B)", "'B'": certainly a label, not a word
    is_frequent_word: bool = False  # True if the option's text is a frequent word: "no", "maybe"
    may_be_word: bool = False  # True if the label may be a word: "A patient", "B cells"
    # True if a capitalised word follows the label: "B Coxiella". The word may be a misspelt text of
    # the option.
    is_before_capitalised_word: bool = False
    text_label: str | None = None  # for a conflict: the label of the option that the text names

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the named options: two for a conflict, else one."""
        if self.text_label is None:
            return (self.label,)
        return (self.label, self.text_label)
