"""Reads an answer, and decides which option it states if it contains several statements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from eval_factory.reading.clauses import Document, read_document
from eval_factory.reading.cleaning import answering_part, before_next_question, plain_text
from eval_factory.reading.json_fields import answer_fields
from eval_factory.reading.mentions import find_mentions
from eval_factory.reading.phrases import any_of, compiled, compiled_for_any_case
from eval_factory.reading.statement import Statement
from eval_factory.reading.statements import statements_in
from eval_factory.reading.yes_or_no import affirmed_option

READER_VERSION = 3
"""The version of the reader. Raise this number with every change that changes a reading.

If the answers of two results were read by different versions, `compare` and `gate` read the
answers again by this version.
"""

_HEADING = compiled_for_any_case(rf"^((?:\w+ ){{0,2}}{any_of('answer')}) ?:?\n(?=.)")
"""A line such as "Final answer" above another line."""
# the beginnings of clauses after which earlier statements may not count: "Wait, that is wrong",
# "This option is incorrect", "Or rather"
_RETRACTION = compiled(rf"\W{{0,5}}(?:explanation: )?{any_of('retraction')}(?!\w)")
_DENIAL = compiled(rf"\W{{0,5}}{any_of('denial')}(?!\w)")
_CORRECTION = compiled(rf"\W{{0,5}}{any_of('correction')}(?!\w)")


class Kind(Enum):
    """The kind of a reading."""

    STATED = "stated"  # the answer states one option, by statements of any `Strength`
    SEVERAL = "several"  # the answer states two or more options together
    CONFLICT = "conflict"  # the answer has statements that disagree, without a correction
    NOTHING = "nothing"  # the answer has no statement of a known kind


@dataclass(frozen=True)
class Reading:
    """The result of reading an answer."""

    kind: Kind
    label: str | None = None  # the label of the stated option; None unless the kind is STATED


_NOTHING_STATED = Reading(Kind.NOTHING)


def stated_option(answer: str, options: Mapping[str, str]) -> str | None:
    """Return the label of the option that an answer states.

    Return None if the answer states no option, several options, or options that disagree.

    Args:
        answer: the answer, with any thinking and markup.
        options: dict from label to the option's text. An unknown text is empty, or the label.
    """
    return read_answer(answer, options).label


def read_answer(answer: str, options: Mapping[str, str]) -> Reading:
    """Return the reading of an answer; the arguments are those of `stated_option`.

    If the answer is JSON with several fields for an answer, the fields must have the same reading:
    otherwise the result is a conflict.
    """
    text = answering_part(answer)
    if not options or not text.strip():
        return _NOTHING_STATED
    fields = answer_fields(text)
    if fields is None:
        return _read(text, options)
    readings = {_read(value, options) for value in fields}
    if len(readings) == 1:
        return readings.pop()
    if not readings:
        return _NOTHING_STATED
    return Reading(Kind.CONFLICT)


def _read(text: str, options: Mapping[str, str]) -> Reading:
    """Return the reading of a text: an answer that is not JSON, or the value of a JSON field."""
    plain = _HEADING.sub(r"\1:\n", before_next_question(plain_text(text)))
    mentions = find_mentions(plain, options)
    reading = _NOTHING_STATED
    if mentions:
        document = read_document(plain, mentions)
        statements = without_denied(list(statements_in(document)), document)
        reading = weigh(without_corrected(statements, document))
    if reading == _NOTHING_STATED:
        label = affirmed_option(plain, options)
        if label is not None:
            return Reading(Kind.STATED, label)
    return reading


def weigh(statements: Sequence[Statement]) -> Reading:
    """Return the reading that follows from all statements of an answer.

    Only the statements of the greatest strength count. The reading is a conflict if these
    statements disagree.
    """
    if not statements:
        return _NOTHING_STATED
    strongest = max(statement.strength for statement in statements)
    decisive = [statement for statement in statements if statement.strength == strongest]
    stated = {statement.labels for statement in without_narrowed(decisive)}
    if len(stated) > 1 or any(statement.is_conflict for statement in decisive):
        return Reading(Kind.CONFLICT)
    labels = stated.pop()
    if len(labels) > 1:
        return Reading(Kind.SEVERAL)
    (label,) = labels  # the only label
    return Reading(Kind.STATED, label)


def without_narrowed(statements: Sequence[Statement]) -> list[Statement]:
    """Return the statements without those that a later statement narrows.

    Example: "This leaves B and C. ... So it is C".
    """
    remaining = []
    for statement in statements:
        is_narrowed = any(
            later.start > statement.start and later.labels < statement.labels
            for later in statements
        )
        if not is_narrowed:
            remaining.append(statement)
    return remaining


def without_denied(statements: list[Statement], document: Document) -> list[Statement]:
    """Return the statements without those that the text denies afterwards.

    A denial, such as "This option is incorrect", counts if it comes before the next mention of
    another option.
    """
    denials = [bound for bound in document.bounds if _DENIAL.match(document.text, bound)]
    if not denials:
        return statements
    other_options = _starts_of_other_options(document)
    remaining = []
    for statement in statements:
        number = bisect_right(denials, statement.start)
        next_denial = denials[number] if number < len(denials) else None
        if next_denial is None or next_denial > other_options[statement.start]:
            remaining.append(statement)
    return remaining


def _starts_of_other_options(document: Document) -> dict[int, int]:
    """Return a dict from the start of a mention to the start of the next mention of another option.

    If no mention of another option follows, the value is the length of the text.
    """
    starts = {}
    start_of_other = len(document.text)
    following = None
    for mention in reversed(document.mentions):
        if following is not None and following.label != mention.label:
            start_of_other = following.start
        starts[mention.start] = start_of_other
        following = mention
    return starts


def without_corrected(statements: list[Statement], document: Document) -> list[Statement]:
    """Return the statements without those that the text retracts or corrects.

    Examples: "... is A. Wait, that is wrong. ..."; "B, or rather A".
    """
    if not statements:
        return statements
    start_of_last_statement = max(statement.start for statement in statements)
    starts_of_clauses_with_option = {clause.start for clause in document.clauses}
    start_of_last_retraction = 0
    for bound in document.bounds:
        if _RETRACTION.match(document.text, bound):
            start_of_last_retraction = bound
        # "The answer is B. Actually, it is rare" corrects nothing: a correction needs an option in
        # its clause, or a later statement.
        has_option = bound in starts_of_clauses_with_option
        has_later_statement = bound <= start_of_last_statement
        if (has_option or has_later_statement) and _CORRECTION.match(document.text, bound):
            start_of_last_retraction = bound
    return [statement for statement in statements if statement.start >= start_of_last_retraction]
