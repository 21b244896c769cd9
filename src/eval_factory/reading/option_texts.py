"""Finds mentions of an option by its text, such as "duodenal ulcer"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eval_factory.reading import phrases
from eval_factory.reading.cleaning import plain_text
from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.normalised_words import Words, in_lower_case, words_of
from eval_factory.reading.spelling import MIN_LENGTH, is_same_word

_LIST_MARK = re.compile(r"\(?(\w)[).]\s+")  # "(a) ", "A. "
_FREQUENT_WORDS = frozenset(phrases.phrases_of_topic("common_texts"))


@dataclass(frozen=True)
class OptionText:
    """The text of an option, as normalised words."""

    label: str
    words: tuple[str, ...]
    is_frequent_word: bool  # True if the text is a frequent word: "no", "maybe"


@lru_cache(maxsize=256)
def option_texts(options: tuple[tuple[str, str], ...]) -> tuple[OptionText, ...]:
    """Return the texts that identify an option, the longest first.

    A text that several options have, and a text that is itself a label, are left out.

    Args:
        options: label and text of each option.
    """
    labels = {label.casefold() for label, _ in options if len(label) == 1}
    texts = []
    for label, text in options:
        words = words_of(in_lower_case(_without_mark(label, text))).texts
        if not words:
            continue
        is_one_word = len(words) == 1
        if is_one_word and words[0] in labels:
            continue
        is_frequent_word = is_one_word and words[0] in _FREQUENT_WORDS
        texts.append(OptionText(label, words, is_frequent_word))
    counts = Counter(option.words for option in texts)
    unique = [option for option in texts if counts[option.words] == 1]
    return tuple(sorted(unique, key=lambda option: len(option.words), reverse=True))


def _without_mark(label: str, text: str) -> str:
    """Return an option's text without quotes and without its label in front ("a) Tetanus")."""
    plain = plain_text(text).strip("\"' ")
    mark = _LIST_MARK.match(plain)
    if mark is not None and mark[1].casefold() == label.casefold():
        return plain[mark.end() :]
    return plain


def mentions_by_text(words: Words, texts: Sequence[OptionText]) -> tuple[list[Mention], set[int]]:
    """Return the mentions by text, and the numbers of all words in these mentions.

    A text that occurs nowhere is searched again with tolerance for misspellings.
    """
    numbers_by_word: dict[str, list[int]] = {option.words[0]: [] for option in texts}
    for number, word in enumerate(words.texts):
        if word in numbers_by_word:
            numbers_by_word[word].append(number)
    taken: set[int] = set()
    mentions = []
    by_initial = _by_initial(words)
    for option in texts:  # the longest first: "ulcer" is not found again in "duodenal ulcer"
        starts = _starts_of(words, numbers_by_word[option.words[0]], option)
        if not starts:
            starts = _starts_of_misspelt(words, by_initial, option)
        for first in starts:
            numbers = range(first, first + len(option.words))
            if taken.isdisjoint(numbers):
                taken.update(numbers)
                mentions.append(_mention(words, numbers, option))
    return mentions, taken


# A token limit may cut off an option's text. These numbers of letters are enough to identify a
# text that was cut off:
MIN_LETTERS_OF_WORD = 8  # of the first word, if the text is cut after this word
MIN_LETTERS_OF_CUT_WORD = 5  # of the first word, if the text is cut inside this word
MIN_LETTERS_OF_LATER_WORD = 2  # of a later word, if the text is cut inside that word


def find_cut_text(words: Words, texts: Sequence[OptionText]) -> Mention | None:
    """Return the mention of an option whose text is cut off at the end of the answer.

    Only the first word of the answer, such as a label, may precede the text: "C. Calcium channel",
    "C. Serum bil". Return None if the further words do not begin the text of exactly one option.
    """
    beginning = words.texts[1:]
    if not beginning:
        return None
    candidates = [option for option in texts if _begins_with(option, beginning)]
    if len(candidates) != 1:
        return None
    return _mention(words, range(1, len(words.texts)), candidates[0])


def _begins_with(option: OptionText, beginning: tuple[str, ...]) -> bool:
    """Return True if the option's text begins with these words, and has further letters."""
    index = len(beginning) - 1
    last = beginning[index]
    if len(option.words) <= index:  # the option has fewer words
        return False
    if option.words[:index] != beginning[:index]:  # a word before the last differs
        return False
    if option.words[index] == last:  # the text is cut after a word
        has_more_words = len(option.words) > len(beginning)
        return has_more_words and (index > 0 or len(last) >= MIN_LETTERS_OF_WORD)
    min_letters = MIN_LETTERS_OF_LATER_WORD if index > 0 else MIN_LETTERS_OF_CUT_WORD
    return len(last) >= min_letters and option.words[index].startswith(last)


def _mention(words: Words, numbers: range, option: OptionText) -> Mention:
    """Return the mention of an option by the words with these numbers."""
    start = words.start(numbers[0])
    end = words.end(numbers[-1])
    return Mention(option.label, start, end, Form.TEXT, is_frequent_word=option.is_frequent_word)


def _starts_of(words: Words, candidates: Sequence[int], option: OptionText) -> list[int]:
    """Return the number of the first word of each occurrence of an option's text.

    Args:
        words: the words of the answer.
        candidates: the numbers of the words that equal the first word of the option's text.
        option: the option's text.
    """
    length = len(option.words)
    return [first for first in candidates if words.texts[first : first + length] == option.words]


def _by_initial(words: Words) -> dict[str, set[str]]:
    """Return a dict from letter to the words with this initial that may be misspelt.

    Shorter words than `MIN_LENGTH` must be spelt exactly.
    """
    by_initial: dict[str, set[str]] = {}
    for word in words.distinct:
        if len(word) >= MIN_LENGTH:
            by_initial.setdefault(word[0], set()).add(word)
    return by_initial


def _starts_of_misspelt(
    words: Words, by_initial: Mapping[str, set[str]], option: OptionText
) -> list[int]:
    """Return the number of the first word of each occurrence of an option's text.

    Misspelt words of the text are accepted.
    """
    spellings = _spellings(words, by_initial, option)
    if spellings is None:
        return []
    starts = []
    for first in range(len(words.texts) - len(option.words) + 1):
        if words.texts[first] not in spellings[0]:
            continue
        candidate = words.texts[first : first + len(spellings)]
        if all(word in accepted for word, accepted in zip(candidate, spellings, strict=True)):
            starts.append(first)
    return starts


def _spellings(
    words: Words, by_initial: Mapping[str, set[str]], option: OptionText
) -> list[set[str]] | None:
    """Return the accepted spellings of each word of an option.

    Return None if a word of the option does not occur in the answer in any spelling.
    """
    spellings = []
    for expected in option.words:
        accepted = {expected}
        if len(expected) >= MIN_LENGTH:
            candidates = by_initial.get(expected[0], set())
            accepted.update(word for word in candidates if is_same_word(word, expected))
        if words.distinct.isdisjoint(accepted):
            return None
        spellings.append(accepted)
    return spellings
