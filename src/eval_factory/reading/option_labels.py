"""Finds mentions of an option by its label, such as "B" or "option b".

Letters that are words or abbreviations, such as the article "a", are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from eval_factory.reading import phrases
from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.normalised_words import Words
from eval_factory.reading.phrases import any_of, compiled_for_any_case

MAX_LABEL = 2
"""The greatest length of a label in characters; a longer label ("yes") is read as a text."""
MAX_SUFFIXED = MAX_LABEL + 3
"""The greatest length of a label with a suffix, as in Turkish "B'dir", without the apostrophe."""

# "option " or "option (" directly before a label
_OPTION_BEFORE = compiled_for_any_case(rf"(?<!\w){any_of('option')} ['\"(\[]{{0,2}}\Z")
_BEFORE = 24  # the number of characters before a label in which "option" or an article is searched
_SUFFIX = compiled_for_any_case(rf"{any_of('suffix')}(?!\w)")  # "'dir" in "B'dir"
_CLOSES = re.compile(r"[).:'](?!\w)")  # the sign after the label in "b)"
# the text after a label that begins a line: "b because"
_AFTER_LABEL_IN_LINE = re.compile(r"\s*(?:\n|-\s)| (?:because|since|is (?:correct|right|the))\b")
_ARTICLE = re.compile(r"(?<!\w)(?:the|an?) \Z")  # "the " directly before a label
_ENDS_TEXT = re.compile(r"[.)\]'\"\s]{0,5}\Z")  # at most a few signs: ".", ") "
_IN_A_WORD = re.compile(r"-\S|[/.](?![A-Z])\w|'\w")
"""Signs after a letter that show that the letter is part of a word: "D-dimer", "e.g", "I'm"."""
_NEXT_WORD = re.compile(r" ([^\W\d_]+)")  # " patient"
_AFTER_STEP = re.compile(r"[.)]? [^\W\d_]")  # the text after the number in "1. First"
# words that are no noun: in "B is", the letter is a label, but not in "B cells"
_NO_NOUN = compiled_for_any_case(rf",? {any_of('reason', 'after_label', 'joiner', 'verb')}(?!\w)")
_SPECIES = frozenset(phrases.phrases_of_topic("species"))
_LATIN_WORD = re.compile(r"\. ([a-z]+)")  # the name of a species after the letter of its genus
_OPENING_SIGNS = {"(", "[", "'", '"'}
_CLOSING_SIGNS = {")", "]", "'", '"', ":"}


def mentions_by_label(
    text: str, words: Words, taken: set[int], options: Mapping[str, str]
) -> Iterator[Mention]:
    """Yield the mentions of options by their labels.

    Args:
        text: the text.
        words: the words of the text.
        taken: the numbers of the words that belong to mentions by an option's text.
        options: dict from label to the option's text.
    """
    labels = {label.lower(): label for label in options if len(label) <= MAX_LABEL}
    has_suffixes = _SUFFIX.search(text) is not None
    for number, word in enumerate(words.texts):
        # `words.texts` has no apostrophes: the word of "B'dir" is "bdir".
        may_be_label = word in labels or (has_suffixes and len(word) <= MAX_SUFFIXED)
        if not may_be_label or number in taken:
            continue
        # In "B'dir", the label ends at `end`, and the word ends at `word_end`.
        start = words.start(number)
        word_end = words.end(number)
        if word in labels:
            end = word_end
        elif "'" in text[start:word_end]:
            end = text.index("'", start)  # a suffix follows
        else:
            continue
        label = labels.get(text[start:end].lower())
        if label is None or not _is_complete_word(text, end, word_end):
            continue
        if _is_label(text, start, end, label, options[label]):
            yield _mention(text, start, end, word_end, label)


def _is_complete_word(text: str, end: int, word_end: int) -> bool:
    """Return True if a label is a complete word, apart from a suffix.

    Turkish, for example, adds a suffix with an apostrophe: "B'dir" means "is B".
    """
    return end == word_end or _SUFFIX.fullmatch(text, end, word_end) is not None


def _is_label(text: str, start: int, end: int, label: str, option_text: str) -> bool:
    """Return True if `text[start:end]` is a label, not part of a word or of a species' name."""
    is_suffixed = text[end : end + 1] == "'" and _SUFFIX.match(text, end) is not None
    if _IN_A_WORD.match(text, end) and not is_suffixed:
        return False
    if text[start - 1 : start] == "'" and text[start - 2 : start - 1].isalpha():
        return False  # the end of a word: "I'd"
    # A label in lower case, "b" instead of "B", needs further signs of a label.
    if text[start:end] != label and not _is_lower_case_label(text, start, end):
        return False
    return not _is_species(text, end, option_text)


def _is_lower_case_label(text: str, start: int, end: int) -> bool:
    """Return True if a letter in lower case is used as a label.

    Examples are "b)", "option b is", "it is b", and a letter at the beginning of a line. Not a
    label are the "a" of "a patient", and the "c" of a text that was cut off: "so the c".
    """
    if _CLOSES.match(text, end):
        return True
    if _NEXT_WORD.match(text, end) and not _NO_NOUN.match(text, end):
        return False
    if _OPTION_BEFORE.search(text, max(0, start - _BEFORE), start):
        return True
    # The letter before the label is "" at the start of the text.
    if text[start - 1 : start] in ("", "\n") and _AFTER_LABEL_IN_LINE.match(text, end):
        return True
    if _ARTICLE.search(text, max(0, start - _BEFORE), start):
        return False
    # An "a" after a blank is an article, but not in "answer: a" and "answer - a".
    is_article = start > 0 and text[start - 1 : end] == " a" and text[start - 2] not in ":-"
    return not is_article and _ENDS_TEXT.match(text, end) is not None


def _mention(text: str, start: int, end: int, word_end: int, label: str) -> Mention:
    """Return the mention of a label, from the label's start to the end of its suffix."""
    is_enclosed = (
        text[start - 1 : start] in _OPENING_SIGNS and text[end : end + 1] in _CLOSING_SIGNS
    )
    is_named = _OPTION_BEFORE.search(text, max(0, start - _BEFORE), start) is not None
    is_marked = is_enclosed or is_named
    may_be_word = not is_marked and _may_be_word(text, end, label)
    is_before_capitalised_word = text[end : end + 1] == " " and text[end + 1 : end + 2].isupper()
    return Mention(
        label,
        start,
        word_end,
        Form.LABEL,
        is_marked=is_marked,
        may_be_word=may_be_word,
        is_before_capitalised_word=is_before_capitalised_word,
    )


def _may_be_word(text: str, end: int, label: str) -> bool:
    """Return True if a label may be a word, or the number of a step.

    Examples: "A patient", "B cells", "1. First".
    """
    if label.isdigit():
        return _AFTER_STEP.match(text, end) is not None
    match = _NEXT_WORD.match(text, end)
    if match is None or _NO_NOUN.match(text, end):
        return False
    next_word = match.group(1)
    return label in {"A", "I"} or next_word.islower()


def _is_species(text: str, end: int, option_text: str) -> bool:
    """Return True if a letter abbreviates a genus: "E. coli".

    Return False if the name of the species is in the text of the option itself.
    """
    match = _LATIN_WORD.match(text, end)
    if match is None:
        return False
    species = match.group(1)
    return species in _SPECIES and species not in option_text.lower()
