"""Finds all statements of a text, by all kinds of statements."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.reading import by_position, by_words, cues
from eval_factory.reading.clauses import Document
from eval_factory.reading.statement import Statement

BY_POSITION = (
    by_position.opening,
    by_position.label_alone,
    by_position.last_line,
    by_position.last_sentence,
    by_position.named_before_the_others,
)
BY_OBJECT = (
    by_words.said_to_be_the_answer,
    by_words.chosen,
    by_words.preferred,
)
"""Kinds of statements in which the option follows a cue, such as "the answer is"."""
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

    If the text is a single line that has only options, yield only the statement of these options.
    """
    statement_of_options = by_position.only_options(document)
    if statement_of_options is not None:
        yield statement_of_options
        if len(document.lines) == 1:
            return
    for find_by_position in BY_POSITION:
        yield from find_by_position(document)
    # the labels of the options that begin lines, as in a list of options
    item_labels = {line.item.label for line in document.lines if line.item is not None}
    for clause in document.clauses:
        if clause.is_question():
            continue
        # Only a clause with a cue before its last option is searched: this saves time.
        if cues.ANY_CUE.search(clause.document_text, clause.start, clause.groups[-1].start):
            for find_object in BY_OBJECT:
                yield from find_object(clause)
        for find_by_words in BY_WORDS:
            yield from find_by_words(clause)
        for statement in by_words.called_right(clause):
            is_one_of_many = len(item_labels) > MAX_ITEMS and statement.labels <= item_labels
            if len(statement.labels) == 1 and not is_one_of_many:
                yield statement
