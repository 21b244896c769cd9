"""Finds all statements of a text, by all kinds of statements."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.reading import by_place, by_words, cues
from eval_factory.reading.clauses import Document
from eval_factory.reading.statement import Statement

BY_PLACE = (
    by_place.opening,
    by_place.label_alone,
    by_place.last_line,
    by_place.last_sentence,
    by_place.named_before_the_others,
)
BY_OBJECT = (
    by_words.said_to_be_the_answer,
    by_words.chosen,
    by_words.preferred,
)
"""Kinds of statements in which the option follows a cue."""
BY_WORDS = (
    by_words.called_the_answer,
    by_words.called_preferred,
    by_words.made_right,
    by_words.concluded,
    by_words.said_of_it,
    by_words.concluded_in_a_sentence,
)
MAX_ITEMS = 2
"""The number of options in a list up to which "B is correct" states the answer.

In a longer list, "B is correct" may be one of several statements that are true.
"""


def statements_in(document: Document) -> Iterator[Statement]:
    """Yield all statements of a text.

    If the text is a single line that has only options, yield only this statement.
    """
    whole = list(by_place.whole_text(document))
    yield from whole
    if whole and len(document.lines) == 1:
        return
    for place_kind in BY_PLACE:
        yield from place_kind(document)
    # the labels of the options that begin lines, as in a list of options
    items = {line.item.label for line in document.lines if line.item is not None}
    for clause in document.clauses:
        if clause.is_question():
            continue
        if cues.ANY.search(clause.text, clause.start, clause.groups[-1].start):
            for object_kind in BY_OBJECT:
                yield from object_kind(clause)
        for word_kind in BY_WORDS:
            yield from word_kind(clause)
        for statement in by_words.called_right(clause):
            is_one_of_many = len(items) > MAX_ITEMS and statement.labels <= items
            if len(statement.labels) == 1 and not is_one_of_many:
                yield statement
