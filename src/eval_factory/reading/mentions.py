"""The places of a text that name an option: by its label, by its text, or by both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache

from eval_factory.reading.cleaning import plain_text
from eval_factory.reading.phrases import UNSPACED, any_of, compiled, words
from eval_factory.reading.spelling import american, is_misspelt

_WORD = re.compile(
    rf"\d+(?:[.,]\d+)*|[{UNSPACED}]|[^\W\d_{UNSPACED}]+(?:'[^\W\d_{UNSPACED}]+)*|[<>=≤≥±+%°]|(?<!\w)-(?=\d)"
)
_IN_WORD = re.compile(rf"[^\W_{UNSPACED}]")
_LIST_MARK = re.compile(r"\(?(\w)[).]\s+")
_OPTION_BEFORE = compiled(rf"(?<!\w){any_of('option')}(?: is)?[ :]{{1,2}}['\"(\[]{{0,2}}$")
_SUFFIX = compiled(rf"{any_of('suffix')}(?!\w)")
_BETWEEN = re.compile(r"[\s.,:;)\]'\"(\u2013\u2014-]{1,5}(?:ie +)?")
_OR = r"(?:,? ?(?:or|which is|that is|ie,?) )?"
_TO_LABEL = compiled(rf"['\",.]{{0,3}}\s?{_OR}[(\[]?(?:{any_of('option')}[ :]{{1,2}})?['\"(]?")


class Form(Enum):
    LABEL = auto()
    TEXT = auto()
    BOTH = auto()
    CONFLICT = auto()  # a label, and directly behind it another option's text


@dataclass(frozen=True)
class Mention:
    """An option named in `text[start:end]`."""

    label: str
    start: int
    end: int
    form: Form
    is_marked: bool = False  # "option B", "(B)", "'B'": no other word can be meant
    is_common: bool = False  # the option's text is a word of any sentence: "no", "maybe"
    is_word: bool = False  # a label that may be a word: "A patient", "B cells"
    text_label: str | None = None  # of a conflict: the option whose text it is

    @property
    def labels(self) -> tuple[str, ...]:
        if self.text_label is None:
            return (self.label,)
        return (self.label, self.text_label)


@dataclass(frozen=True)
class Word:
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class OptionText:
    label: str
    words: tuple[str, ...]
    is_common: bool


def find_mentions(text: str, options: Mapping[str, str]) -> list[Mention]:
    """All mentions in order of their places."""
    text_words = words_of(text)
    texts = _texts(tuple(options.items()))
    by_text, taken = _texts_in(text_words, texts)
    named = {mention.label for mention in by_text}
    for option in texts:
        if option.label not in named:
            by_text.extend(_misspelt(text_words, option, taken))
    labels = list(_labels_in(text, text_words, taken, options))
    return _joined(text, labels, by_text)


def words_of(text: str) -> list[Word]:
    """The words, each in its American spelling."""
    found = []
    for match in _WORD.finditer(text):
        found.append(Word(american(match[0].casefold().replace("'", "")), *match.span()))
    return found


@lru_cache(maxsize=256)
def _texts(options: tuple[tuple[str, str], ...]) -> tuple[OptionText, ...]:
    """The texts that tell options apart, longest first."""
    common = words("common_texts")
    labels = {label.casefold() for label, _ in options if len(label) == 1}
    texts = []
    for label, text in options:
        of_text = tuple(word.text for word in words_of(option_text(label, text)))
        if of_text and not (len(of_text) == 1 and of_text[0] in labels):
            texts.append(OptionText(label, of_text, len(of_text) == 1 and of_text[0] in common))
    counts = [option.words for option in texts]
    known = [option for option in texts if counts.count(option.words) == 1]
    return tuple(sorted(known, key=lambda option: len(option.words), reverse=True))


def option_text(label: str, text: str) -> str:
    """An option's text without quotes, and without its own label before it ("a) Tetanus")."""
    plain = plain_text(text).strip("\"' ")
    mark = _LIST_MARK.match(plain)
    if mark is not None and mark[1].casefold() == label.casefold():
        return plain[mark.end() :]
    return plain


def _texts_in(
    text_words: Sequence[Word], texts: Sequence[OptionText]
) -> tuple[list[Mention], set[int]]:
    """Mentions by text, and the numbers of the words that they hold."""
    places: dict[str, list[int]] = {}
    for number, word in enumerate(text_words):
        places.setdefault(word.text, []).append(number)
    taken: set[int] = set()
    found = []
    for option in texts:
        length = len(option.words)
        for first in places.get(option.words[0], ()):
            numbers = range(first, first + length)
            here = tuple(word.text for word in text_words[first : first + length])
            if here != option.words or not taken.isdisjoint(numbers):
                continue
            taken.update(numbers)
            start = text_words[first].start
            end = text_words[first + length - 1].end
            found.append(Mention(option.label, start, end, Form.TEXT, is_common=option.is_common))
    return found, taken


def _misspelt(text_words: Sequence[Word], option: OptionText, taken: set[int]) -> Iterator[Mention]:
    """Mentions by a text of which one word is spelt in another way."""
    length = len(option.words)
    for first, word in enumerate(text_words[: max(0, len(text_words) - length + 1)]):
        if word.text[0] != option.words[0][0]:
            continue
        numbers = range(first, first + length)
        here = [text_words[number].text for number in numbers]
        if is_misspelt(here, option.words) and taken.isdisjoint(numbers):
            taken.update(numbers)
            yield Mention(option.label, word.start, text_words[numbers[-1]].end, Form.TEXT)


def _labels_in(
    text: str, text_words: Sequence[Word], taken: set[int], options: Mapping[str, str]
) -> Iterator[Mention]:
    labels = {label.casefold(): label for label in options}
    for number, word in enumerate(text_words):
        short = word.text
        if short not in labels:
            # "B'dir" is Turkish for "is B"; the apostrophe joins it to one word
            if "'" not in text[word.start : word.end]:
                continue
            short = text[word.start : word.end].casefold().partition("'")[0]
            if short not in labels or not _SUFFIX.fullmatch(
                text, word.start + len(short), word.end
            ):
                continue
        if number in taken:
            continue
        label = labels[short]
        end = word.start + len(short)
        mention = _label_at(text, word.start, end, label, options[label])
        if mention is not None:
            yield mention


def _label_at(text: str, start: int, end: int, label: str, option_text: str) -> Mention | None:
    """The label here, if no word or abbreviation can be meant."""
    before = text[start - 1 : start]
    after = text[end : end + 2]
    if before in {"'"} and text[start - 2 : start - 1].isalpha():
        return None
    if after[:1] in {"-", "/", "."} and after[1:].isalnum() and not after[1:].isupper():
        return None
    if after[:1] == "-" and len(after) == 2 and not after[1:].isspace():
        return None
    if after[:1] == "'" and after[1:].isalpha() and text[start:end] == label == "I":
        return None
    is_bracketed = before in {"(", "[", "'", '"'} and after[:1] in {")", "]", "'", '"', ":"}
    is_named = _OPTION_BEFORE.search(text, max(0, start - 24), start) is not None
    is_exact = text[start:end] == label
    if not is_exact and len(label) == 1:
        closes = after[:1] in {")", "."} and not after[1:].isalnum()
        ends = text[end:].strip(".)]'\" \n") == ""
        if not (closes or ends):
            return None
    if len(label) == 1 and _is_species(text, end, option_text):
        return None
    is_marked = is_bracketed or is_named
    is_word = len(label) <= 2 and not is_marked and _goes_on(text, end, label)
    return Mention(label, start, end, Form.LABEL, is_marked=is_marked, is_word=is_word)


def _goes_on(text: str, end: int, label: str) -> bool:
    """Whether the label is a word, or a step's number: "A patient", "B cells", "1. First"."""
    if label.isdigit():
        return _STEP.match(text, end) is not None
    if _NO_NOUN.match(text, end) is not None:
        return False
    word = _NEXT_WORD.match(text, end)
    if word is None:
        return False
    return label in {"A", "I"} or word[1].islower()


_NEXT_WORD = re.compile(r" ([^\W\d_]+)")
_STEP = re.compile(r"[.)] [^\W\d_]| [^\W\d_]")
_NO_NOUN = compiled(rf",? {any_of('reason', 'after_label', 'joiner', 'verb')}(?!\w)")
_SPECIES = frozenset(words("species"))
_LATIN_WORD = re.compile(r"\. ([a-z]+)")


def _is_species(text: str, end: int, option_text: str) -> bool:
    """E. coli: a genus cut to its letter, unless the option's own text goes on so."""
    word = _LATIN_WORD.match(text, end)
    if word is None:
        return False
    return word[1] in _SPECIES and word[1] not in option_text.casefold()


def _joined(text: str, labels: list[Mention], by_text: list[Mention]) -> list[Mention]:
    """Mentions where a label and a text that belong together are one."""
    mentions = sorted([*labels, *by_text], key=lambda mention: mention.start)
    joined: list[Mention] = []
    number = 0
    while number < len(mentions):
        mention = mentions[number]
        later = mentions[number + 1 : number + 3]
        number += 1
        if later and mention.form is Form.TEXT and _names(text, mention, later[0]):
            mention = _both(mention, later[0])
            number += 1
        elif later and mention.form is Form.LABEL and later[0].form is Form.TEXT:
            between = text[mention.end : later[0].start]
            if _BETWEEN.fullmatch(between):
                text_has_label = len(later) == 2 and _names(text, later[0], later[1])
                if mention.label == later[0].label:
                    mention = _both(mention, later[0])
                    number += 1
                elif _is_heading(between) and not text_has_label and not later[0].is_common:
                    mention = replace(
                        mention, end=later[0].end, form=Form.CONFLICT, text_label=later[0].label
                    )
                    number += 1
        if not mention.is_word:
            joined.append(mention)
    return joined


def _names(text: str, option_text: Mention, label: Mention) -> bool:
    """Whether a text's own label follows it: "colonoscopy (option B)"."""
    if label.form is not Form.LABEL or option_text.label != label.label:
        return False
    return _TO_LABEL.fullmatch(text, option_text.end, label.start) is not None


def _is_heading(between: str) -> bool:
    return between.strip()[:1] in {".", ")", ":", "]"} or between == ", "


def _both(first: Mention, last: Mention) -> Mention:
    return Mention(first.label, first.start, last.end, Form.BOTH, is_marked=True)
