"""Finds statements that a clause makes by its words, such as "the answer is B"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eval_factory.reading import cues
from eval_factory.reading.clauses import Clause, Group
from eval_factory.reading.mention import Form
from eval_factory.reading.normalised_words import has_words
from eval_factory.reading.statement import Statement, Strength, statement_of


def said_to_be_the_answer(clause: Clause) -> Iterator[Statement]:
    """Yield the option that follows "the answer is": "The correct answer to this question is B"."""
    yield from _objects(clause, cues.SAID, Strength.STATED)
    yield from _objects(clause, cues.SAID_DIRECTLY, Strength.STATED)


def chosen(clause: Clause) -> Iterator[Statement]:
    """Yield the option that the text chooses: "I would choose B"."""
    yield from _objects(clause, cues.CHOSEN, Strength.STATED)


def called_the_answer(clause: Clause) -> Iterator[Statement]:
    """Yield the option that is called the answer: "Option B, Ulcer, is the correct answer"."""
    yield from _subjects(clause, cues.CALLED_ANSWER, Strength.STATED)


def called_right(clause: Clause) -> Iterator[Statement]:
    """Yield the option that is called right: "Option B is correct"."""
    yield from _subjects(clause, cues.CALLED_RIGHT, Strength.STATED)


def made_right(clause: Clause) -> Iterator[Statement]:
    """Yield the option that a fact makes right: "which makes B the answer", "this leaves B"."""
    for group in clause.groups:
        before = cues.after_last_comma(clause.text_before(group))
        after = clause.text_after(group)
        if not cues.MAKES.search(before) or cues.is_doubted(before) or cues.is_supposed(clause):
            continue
        if cues.AS_ANSWER.match(after):
            yield statement_of(group)
        elif cues.AS_PREFERRED.match(after) or not has_words(after):
            yield statement_of(group, Strength.PREFERRED)


def concluded(clause: Clause) -> Iterator[Statement]:
    """Yield the option of a short conclusion: "Therefore, B.", "not A but B.".

    After an option such as "yes", the conclusion may go on: "therefore, yes, it is safe".
    """
    group = clause.groups[-1]
    after = clause.text_after(group)
    is_yes_or_no = group.first_mention.is_frequent_word and after.startswith(", ")
    if has_words(after) and not is_yes_or_no:
        return
    before = clause.text_before(group)
    if cues.THEREFORE_ALONE.fullmatch(before) or cues.NOT_BUT.fullmatch(before):
        yield statement_of(group)


def said_of_it(clause: Clause) -> Iterator[Statement]:
    """Yield the label that follows "it is": "So it is B.", "it must be B".

    The text of an option does not count here: in "it is duodenal ulcer", the word "it" may refer to
    anything.
    """
    group = clause.groups[-1]
    if group.first_mention.form is Form.TEXT or has_words(clause.text_after(group)):
        return
    if cues.IT_IS.fullmatch(clause.text_before(group)):
        yield statement_of(group)


def preferred(clause: Clause) -> Iterator[Statement]:
    """Yield the option that is preferred: "The most likely diagnosis is B", "this points to B"."""
    yield from _objects(clause, cues.PREFERRED, Strength.PREFERRED)
    yield from _objects(clause, cues.POINTS_TO, Strength.PREFERRED)


def called_preferred(clause: Clause) -> Iterator[Statement]:
    """Yield the option that is called the preferred one: "B is the most likely finding"."""
    yield from _subjects(clause, cues.CALLED_PREFERRED, Strength.PREFERRED)


def concluded_in_a_sentence(clause: Clause) -> Iterator[Statement]:
    """Yield the option of a conclusion that is a complete sentence.

    Examples: "Therefore, the material used most is amalgam"; "Therefore, amalgam is the most used".
    """
    group = clause.groups[-1]
    before = clause.text_before(group)
    if (
        not cues.THEREFORE.match(before)
        or cues.is_supposed(clause)
        or group.first_mention.is_frequent_word
    ):
        return
    after = clause.text_after(group)
    ends_sentence = cues.THEREFORE_IS.fullmatch(before) and not has_words(after)
    is_subject = cues.SUBJECT.fullmatch(before) and cues.IS_UTMOST.match(after)
    if is_subject or (ends_sentence and not cues.is_doubted(before)):
        yield statement_of(group, Strength.PREFERRED)


def _objects(clause: Clause, cue: re.Pattern[str], strength: Strength) -> Iterator[Statement]:
    """Yield statements in which the option follows a cue, such as "the answer is"."""
    for match in cue.finditer(clause.document_text, clause.start, clause.groups[-1].start):
        before_cue = cues.after_last_comma(clause.document_text[clause.start : match.start()])
        after_cue = clause.document_text[match.end("cue") : match.start("fill")]
        if cues.is_doubted(before_cue) or cues.is_doubted(after_cue):
            continue
        if cues.is_step_of_plan(match):
            continue
        group = _object_at(clause, match)
        if group is None:
            continue
        after = clause.text_after(group)
        if cues.is_denied_behind(after) or cues.is_said_of_other_patients(after):
            continue
        if group.first_mention.is_frequent_word and _answers_own_question(clause):
            continue
        if not cues.is_supposed(clause):
            yield statement_of(group, strength)


def _answers_own_question(clause: Clause) -> bool:
    """Return True if a clause answers a question of the text itself, and the text goes on.

    Example: "Third, is there a difference? The answer is yes ...\\nFourth, ...".
    """
    follows_question = clause.document_text[: clause.start].rstrip().endswith("?")
    return follows_question and "\n" in clause.document_text[clause.end :]


def _object_at(clause: Clause, match: re.Match[str]) -> Group | None:
    """Return the option that a cue refers to; None if the clause has no such option.

    The result is the option directly after the cue, with the options that are joined to it.
    Otherwise, the result is the only marked option after a description: "the answer is an effect of
    the drug (option B)".
    """
    groups = [group for group in clause.groups if group.start >= match.start("fill")]
    if not groups:
        return None
    first_group = groups[0]
    # `match` ends behind the filler words after the cue.
    follows_cue = first_group.start <= match.end()
    last_mention = first_group.mentions[-1]
    is_complete = (
        cues.is_complete_name(last_mention, clause.text_after(first_group))
        or last_mention.is_before_capitalised_word
    )
    if follows_cue and is_complete:
        return _with_joined(clause, first_group, groups[1:])
    marked_groups = [group for group in groups if group.first_mention.is_marked]
    if len(marked_groups) != 1:
        return None
    (marked_group,) = marked_groups
    if cues.is_doubted(clause.document_text[match.end() : marked_group.start]):
        return None
    return marked_group


def _with_joined(clause: Clause, first: Group, later: Sequence[Group]) -> Group:
    """Return the option with the later options that "and" or "or" joins to it.

    Example: "C) the first text and D) the second text".
    """
    mentions = first.mentions
    for group in later:
        between = clause.document_text[mentions[-1].end : group.start]
        if group.first_mention.form is not Form.TEXT and cues.joins_options(between):
            mentions += group.mentions
    return Group(mentions)


def _subjects(clause: Clause, cue: re.Pattern[str], strength: Strength) -> Iterator[Statement]:
    """Yield statements in which the option precedes a cue, such as "is the answer"."""
    for group in clause.groups:
        cue_after = cue.match(clause.document_text, group.end, clause.end)
        if group.first_mention.is_frequent_word or cue_after is None:
            continue
        before = clause.text_before(group)
        if not group.first_mention.is_marked and not cues.SUBJECT.fullmatch(before):
            continue
        if not cues.is_doubted(before) and not cues.is_supposed(clause):
            yield statement_of(group, strength)
