"""Mentions of an option by its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eval_factory.reading import phrases
from eval_factory.reading.cleaning import plain_text
from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.spelling import is_same_word
from eval_factory.reading.words import Word, words_of

_LIST_MARK = re.compile(r"\(?(\w)[).]\s+")
_COMMON = frozenset(phrases.words("common_texts"))


@dataclass(frozen=True)
class OptionText:
    label: str
    words: tuple[str, ...]
    is_common: bool  # a word of any sentence: "no", "maybe"


@lru_cache(maxsize=256)
def option_texts(options: tuple[tuple[str, str], ...]) -> tuple[OptionText, ...]:
    """The texts that tell options apart, longest first; neither equal ones nor those that are
    labels.
    """
    labels = {label.casefold() for label, _ in options if len(label) == 1}
    texts = []
    for label, text in options:
        words = tuple(word.text for word in words_of(_without_mark(label, text)))
        is_short = len(words) == 1
        if words and not (is_short and words[0] in labels):
            texts.append(OptionText(label, words, is_short and words[0] in _COMMON))
    known = [option.words for option in texts]
    unique = [option for option in texts if known.count(option.words) == 1]
    return tuple(sorted(unique, key=lambda option: len(option.words), reverse=True))


def _without_mark(label: str, text: str) -> str:
    """An option's text without quotes, and without its own label before it ("a) Tetanus")."""
    plain = plain_text(text).strip("\"' ")
    mark = _LIST_MARK.match(plain)
    if mark is not None and mark[1].casefold() == label.casefold():
        return plain[mark.end() :]
    return plain


def mentions_by_text(
    words: Sequence[Word], texts: Sequence[OptionText]
) -> tuple[list[Mention], set[int]]:
    """Mentions by text, and the numbers of the words that they hold."""
    places: dict[str, list[int]] = {option.words[0]: [] for option in texts}
    for number, word in enumerate(words):
        if word.text in places:
            places[word.text].append(number)
    taken: set[int] = set()
    found = []
    for option in texts:
        starts = [place for place in places[option.words[0]] if _is_at(words, place, option)]
        if not starts:
            starts = list(_misspelt_at(words, option))
        for first in starts:
            numbers = range(first, first + len(option.words))
            if taken.isdisjoint(numbers):
                taken.update(numbers)
                found.append(_mention(words, numbers, option))
    return found, taken


MIN_CUT_WORDS = 2
MIN_CUT_LETTERS = 8
"""So many words of an option's text have to be there, or one so long, where a limit of tokens cut
the rest off.
"""


def cut_text(words: Sequence[Word], texts: Sequence[OptionText]) -> Mention | None:
    """ "C. Calcium channel": one word, then the beginning of one option's text and no more."""
    spoken: list[str] = []
    for word in words[1:]:
        spoken.append(word.text)
    rest = tuple(spoken)
    if not rest or (len(rest) < MIN_CUT_WORDS and len(rest[0]) < MIN_CUT_LETTERS):
        return None
    begun = []
    for option in texts:
        if len(option.words) > len(rest) and option.words[: len(rest)] == rest:
            begun.append(option)
    if len(begun) != 1:
        return None
    return _mention(words, range(1, len(words)), begun[0])


def _mention(words: Sequence[Word], numbers: range, option: OptionText) -> Mention:
    start = words[numbers[0]].start
    end = words[numbers[-1]].end
    return Mention(option.label, start, end, Form.TEXT, is_common=option.is_common)


def _is_at(words: Sequence[Word], first: int, option: OptionText) -> bool:
    if first + len(option.words) > len(words):
        return False
    for number, expected in enumerate(option.words, first):
        if words[number].text != expected:
            return False
    return True


def _misspelt_at(words: Sequence[Word], option: OptionText) -> Iterator[int]:
    """Numbers of the first words where the text stands with a word spelt in another way."""
    initial = option.words[0][0]
    for first in range(len(words) - len(option.words) + 1):
        if words[first].text[0] != initial:
            continue
        for number, expected in enumerate(option.words, first):
            word = words[number].text
            if word != expected and not is_same_word(word, expected):
                break
        else:
            yield first
