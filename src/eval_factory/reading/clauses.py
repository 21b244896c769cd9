"""Splits a text into lines and clauses, with the options that each line or clause mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.normalised_words import in_lower_case
from eval_factory.reading.phrases import any_of, compiled

_BREAK = (
    # the mark; the last three are the Chinese and Japanese full stop, exclamation and question mark
    r"[.!?;,\n\u3002\uff01\uff1f](?:"
    # the end of a sentence: "It is A. The", "Is it A?) b)", "It is A." at the end of the text
    r"(?<=[.!?])[.!?]*['\")\]]*(?=\s+(?:{begin}|[a-z]\))|\s*\Z)"
    r"|(?<=[\n\u3002\uff01\uff1f])"  # the end of a line, or of a sentence in Chinese or Japanese
    r"|(?<=;)(?= )"  # "it is B; A is rare"
    r"|(?<=,)(?= )"  # "it is rare, so B": `_ends_clause` decides
    r"|(?<=\.)\.{{1,4}}(?= (?:no|wait|actually|sorry)\b))"  # "it is B... no"
)
"""A possible end of a clause: a mark, then a branch for each kind of mark, which looks back at it.

`begin` is the first letter of a sentence, which `format` fills in. Other braces are therefore
doubled.
"""
_BREAKS = re.compile(_BREAK.format(begin=r"[^a-z\s]"))
_BREAKS_OF_LOWER_CASE = re.compile(_BREAK.format(begin=r"\S"))
"""The breaks of a text that has no capital letters: any letter may begin a sentence."""
_BEGINS_CLAUSE = compiled(
    r" (?:but|so|therefore|thus|hence|making|whereas"
    r"|(?:or )?rather|(?<!therefore, )(?<!thus, )(?<!hence, )(?<!so, )no,|no wait|wait"
    r"|it's|it is)(?!\w)"
)
"""Words that begin a new clause after a comma.

In "so, no, it is B", no clause begins at "no".
"""
_CONCEDES = compiled(rf"\W*(?:(?:and|but|or) )?{any_of('concession')}(?!\w)")  # "but although"
# an abbreviation before a full stop, which then ends no clause: "vs" in "A vs. B"
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:e\.?g|i\.?e|vs|dr|approx|ans|no|ca|cf|st|etc|al|fig)$", re.IGNORECASE
)
_ABBREVIATION_LENGTH = 8  # more characters than any of these abbreviations has
# the end of a heading: "The answer is:\n", "Final answer:\n"
_ENDS_AS_HEADING = compiled(
    rf"(?:(?<!\w){any_of('is')}|^\W*(?:(?:the|my|so|final|correct|right|best) )*{any_of('answer')})"
    r" ?:\n$"
)
_BEFORE_ITEM = compiled(rf"\W{{0,3}}({any_of('option')} )?\W{{0,3}}$")
"""The text of a line before an option with which the line begins: "- Option "."""
_JOINED = compiled(
    rf"[.)\]'\"]{{0,2}}(?:[,;/&+]|,? \(?{any_of('joiner')}(?!\w)|{any_of('joiner_unspaced')}|(?= ))"
    rf" ?(?:{any_of('joiner')} )?(?:{any_of('option')} )?['\"(\[]{{0,2}}"
)
"""The text between two options that are named together: " or option ", ", ", ") and ("."""
MAX_CLAUSE = 600
"""The greatest length of a clause, in characters.

Longer clauses are cut, so that the time for reading is proportional to the length of the text.
"""


class Group(NamedTuple):
    """Options that are named together: "B", "B or C", "options A, B and D"."""

    mentions: tuple[Mention, ...]

    @property
    def start(self) -> int:
        """The start of the first mention in the text."""
        return self.mentions[0].start

    @property
    def end(self) -> int:
        """The end of the last mention in the text."""
        return self.mentions[-1].end

    @property
    def first_mention(self) -> Mention:
        """The first mention."""
        return self.mentions[0]

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all mentioned options."""
        labels: set[str] = set()
        for mention in self.mentions:
            labels.update(mention.labels)
        return frozenset(labels)


class Clause(NamedTuple):
    """A part of a sentence that makes one statement."""

    document_text: str  # the complete text, of which the clause is a part
    start: int  # the start of the clause in the text
    end: int
    groups: tuple[Group, ...]

    def is_question(self) -> bool:
        """Return True if the clause ends with a question mark."""
        return self.document_text[self.start : self.end].rstrip().endswith("?")

    def without_texts(self, start: int, end: int) -> str:
        """Return `document_text[start:end]` without the texts of options.

        The words in an option's text say nothing about the option, so that they must not be taken
        for cues (words around an option that state or doubt it).
        """
        parts = []
        position = start
        for group in self.groups:
            for mention in group.mentions:
                if mention.form is not Form.LABEL and position <= mention.start < end:
                    parts.append(self.document_text[position : mention.start])
                    position = mention.end
        parts.append(self.document_text[position:end])
        return " ".join(parts)

    def text_before(self, group: Group) -> str:
        """Return the clause's text before a group."""
        return self.document_text[self.start : group.start]

    def text_after(self, group: Group) -> str:
        """Return the clause's text after a group."""
        return self.document_text[group.end : self.end]


class Line(NamedTuple):
    """A line of a text."""

    start: int
    end: int
    item: Mention | None  # the option that the line begins with, as in a list of options
    is_alone: bool  # True if the line has no words apart from the option
    is_named: bool  # True if the word "option" precedes the label: "Option B"


@dataclass(frozen=True)
class Document:
    """The text of an answer, split into lines and clauses."""

    text: str  # in lower case
    lines: tuple[Line, ...]  # all lines
    clauses: tuple[Clause, ...]  # the clauses that mention an option
    mentions: tuple[Mention, ...]
    bounds: tuple[int, ...]  # the starts of all clauses, and the end of the text
    # the starts of lines with an option, directly below a heading such as "The answer is:"
    headed: frozenset[int]

    def is_headed(self, line: Line) -> bool:
        """Return True if a heading above the line says that the line is the answer."""
        return line.start in self.headed


def read_document(original: str, mentions: Sequence[Mention]) -> Document:
    """Split a text into lines and clauses; `mentions` are all mentions in the text."""
    text = in_lower_case(original)
    lines = tuple(_lines(text, mentions))
    headed = frozenset(_headed_items(text, lines))
    bounds = tuple(_bounds(original, text, mentions, headed))
    clauses = tuple(_clauses(text, mentions, bounds))
    return Document(text, lines, clauses, tuple(mentions), bounds, headed)


def _lines(text: str, mentions: Sequence[Mention]) -> Iterator[Line]:
    """Yield the lines of a text."""
    start = 0
    number = 0  # the number of the first mention that starts in the line, or after it
    for line in text.split("\n"):
        end = start + len(line)
        while number < len(mentions) and mentions[number].start < start:
            number += 1
        item = None
        is_alone = False
        is_named = False
        if number < len(mentions) and mentions[number].start < end:
            mention = mentions[number]
            begin = _BEFORE_ITEM.match(text, start, mention.start)
            if begin is not None:
                item = mention
                is_named = begin[1] is not None
                # A line with a question mark asks about the option, and is not an answer alone.
                is_alone = not any(
                    sign.isalnum() or sign == "?" for sign in text[mention.end : end]
                )
        yield Line(start, end, item, is_alone, is_named)
        start = end + 1


def _clauses(text: str, mentions: Sequence[Mention], bounds: Sequence[int]) -> Iterator[Clause]:
    """Yield the clauses that mention an option."""
    number = 0  # the number of the first mention that starts in the clause, or after it
    for start, end in pairwise(bounds):
        mentions_of_clause = []
        while number < len(mentions) and mentions[number].start < end:
            mentions_of_clause.append(mentions[number])
            number += 1
        if mentions_of_clause:
            yield Clause(text, start, end, tuple(_groups(text, mentions_of_clause)))


def _ends_clause(text: str, end: int, start: int, *, is_in_list: bool) -> bool:
    """Return True if a comma ends a clause: "it is rare, so B", "While A is rare, B is not".

    Args:
        text: the complete text, in lower case.
        end: the position after the comma.
        start: the start of the clause.
        is_in_list: True if the comma directly follows an option, as in "while A, B and C".
    """
    if _BEGINS_CLAUSE.match(text, end):
        return True
    return not is_in_list and _CONCEDES.match(text, start) is not None


def _headed_items(text: str, lines: Sequence[Line]) -> set[int]:
    """Return the starts of lines with an option directly below a heading.

    Example: "The answer is:\\nB. Ulcer". A heading above a list of several options does not count.
    """
    headed = set()
    for number in range(1, len(lines)):
        line = lines[number]
        if line.item is None or text[line.start - 2 : line.start] != ":\n":
            continue
        if not _ENDS_AS_HEADING.search(text, lines[number - 1].start, line.start):
            continue
        following = None
        if number + 1 < len(lines):
            following = lines[number + 1].item
        if following is None or following.label == line.item.label:
            headed.add(line.start)
    return headed


def _bounds(
    original: str, text: str, mentions: Sequence[Mention], headed: frozenset[int]
) -> list[int]:
    """Return the starts of the clauses, and the end of the text.

    No clause ends inside a mention, such as "B. Duodenal ulcer", or between a heading and its line.

    Args:
        original: the text.
        text: the text in lower case.
        mentions: all mentions in the text.
        headed: the starts of the lines below a heading.
    """
    bounds = [0]
    number = 0  # the number of the first mention that ends after the start of the break
    breaks = _BREAKS_OF_LOWER_CASE if original == text else _BREAKS
    for break_ in breaks.finditer(original):
        start = break_.start()
        while number < len(mentions) and mentions[number].end <= start:
            number += 1
        is_in_mention = number < len(mentions) and mentions[number].start <= start
        if is_in_mention or break_.end() in headed:
            continue
        if break_[0] == ",":
            is_in_list = number > 0 and mentions[number - 1].end == start
            if not _ends_clause(text, break_.end(), bounds[-1], is_in_list=is_in_list):
                continue
        if break_[0].startswith("."):  # the full stop of an abbreviation ends no clause
            word_start = max(bounds[-1], start - _ABBREVIATION_LENGTH)
            if _ABBREVIATION.search(text, word_start, start):
                continue
        bounds.append(break_.end())
    bounds.append(len(text))
    return list(_with_long_clauses_cut(bounds, mentions))


def _with_long_clauses_cut(bounds: Sequence[int], mentions: Sequence[Mention]) -> Iterator[int]:
    """Yield the bounds, with further bounds inside clauses that are longer than `MAX_CLAUSE`.

    No bound lies inside a mention.
    """
    yield bounds[0]
    number = 0  # the number of the first mention that ends after the position
    for start, end in pairwise(bounds):
        for position in range(start + MAX_CLAUSE, end, MAX_CLAUSE):
            while number < len(mentions) and mentions[number].end <= position:
                number += 1
            if number == len(mentions) or mentions[number].start >= position:
                yield position
        yield end


def _groups(text: str, mentions: Sequence[Mention]) -> Iterator[Group]:
    """Yield the groups of options that are named together."""
    group = [mentions[0]]
    for mention in mentions[1:]:
        if _JOINED.fullmatch(text, group[-1].end, mention.start):
            group.append(mention)
        else:
            yield Group(tuple(group))
            group = [mention]
    yield Group(tuple(group))
