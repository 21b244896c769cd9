"""Perturbs questions word by word: typing errors, case, blanks, synonyms, spelling, drug names.

Each function of a family takes the parts of a question, and returns the changed `parts.text`. If
the family does not apply, the function returns None or the unchanged `parts.text`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from eval_factory.tasks.perturbation_words import (
    PromptParts,
    article_clashes,
    has_word_beginning_with,
    pattern_of,
    with_case_of,
    with_changes,
    word_lists,
)

_WORDS_PER_TYPO = 20  # the number of words of five letters or more for one typing error


def with_typos(parts: PromptParts) -> str | None:
    """Return the text with typing errors: in one word of twenty, and in at least one word.

    Words with fewer than five letters are not counted. Only words of the list `typo_words` get an
    error. None is returned if the text has no word of this list.
    """
    typo_words = set(word_lists().typo_words.split())
    # words of five letters or more, without parts of words with a hyphen or a slash
    words = list(re.finditer(r"(?<![\w/-])[A-Za-z]{5,}(?![\w/-])", parts.text))
    ordinary = [word for word in words if word.group() in typo_words]
    if not ordinary:
        return None
    wanted = max(1, round(len(words) / _WORDS_PER_TYPO))
    count = min(wanted, len(ordinary))
    changes = []  # (start, end, new text)
    for word in parts.rng.sample(ordinary, count):
        changes.append((*word.span(), _mistyped(word.group(), parts.rng)))
    return with_changes(parts.text, changes)


def _mistyped(word: str, rng: random.Random) -> str:
    """Return the word with two inner letters swapped, or one inner letter missing or doubled.

    The result is never a word of the lists `typo_words` and `never_made`.
    """
    inner = range(1, len(word) - 1)  # the positions of the inner letters
    # The last inner letter has no inner letter after it to swap with: `inner[:-1]`.
    swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in inner[:-1]]  # "fveer"
    missing = [word[:i] + word[i + 1 :] for i in inner]  # "fver"
    doubled = [word[:i] + word[i] + word[i:] for i in inner]  # "feever"
    real_words = {word, *word_lists().typo_words.split(), *word_lists().never_made}
    forms = [form for form in (*swapped, *missing, *doubled) if form not in real_words]
    return rng.choice(forms)


# A capitalized word. Words of two letters are listed, because all other pairs of a capital letter
# and a small letter may be symbols (Na, Hg, Pa).
_CAPITALIZED = re.compile(
    r"(?:He|In|It|Is|At|An|As|By|Do|If|Of|On|Or|So|To|Up|We|My|Be|Me)|[A-Z][a-z]{2,}"
)


def in_lower_case(parts: PromptParts) -> str:
    """Return the text with capitalized words in lower case.

    Symbols, abbreviations and negations stay unchanged.
    """
    negations = set(word_lists().negations)

    def lowered(match: re.Match[str]) -> str:
        token = match.group()
        if _CAPITALIZED.fullmatch(token) and token.lower() not in negations:
            return token.lower()
        return token

    return re.sub(r"[^\W_]+", lowered, parts.text)  # each run of letters and digits


_GAPS_PER_CHANGE = 8  # the number of gaps between words for one gap with additional blanks


def with_extra_blanks(parts: PromptParts) -> str | None:
    """Return the text with additional blanks between some words; None if there is no gap."""
    gaps = list(re.finditer(r"(?<=[A-Za-z,]) (?=[A-Za-z])", parts.text))  # a blank between words
    if not gaps:
        return None
    changes = []
    for gap in parts.rng.sample(gaps, max(1, round(len(gaps) / _GAPS_PER_CHANGE))):
        changes.append((*gap.span(), " " * parts.rng.randint(2, 4)))
    return with_changes(parts.text, changes)


def with_synonyms(parts: PromptParts) -> str | None:
    """Return the text with half of the listed words, rounded up, replaced by their synonyms.

    A word in capitals is not replaced. A word after "a" or "an" is replaced only if the article
    fits the synonym. None is returned if no word can be replaced.
    """
    pairs = word_lists().synonyms  # dict from a word to its synonym
    changes = []  # (start, end, new text)
    for match in pattern_of(tuple(pairs)).finditer(parts.text):
        word = match.group()
        new = with_case_of(word, pairs[word.lower()])
        if word[1:].islower() and not article_clashes(parts.text[: match.start()], word, new):
            changes.append((*match.span(), new))
    if not changes:
        return None
    return with_changes(parts.text, parts.rng.sample(changes, (len(changes) + 1) // 2))


_POSITIONS = {
    "anywhere": r"{}",
    "start": r"(?<![A-Za-z]){}(?=[a-z])",
    "whole": r"(?<![A-Za-z]){}(?![A-Za-z])",
}
"""A dict from the position of a spelling in a word to the pattern for this position; `{}` stands
for the spelling. perturbations.yml has a list of spellings for each position.
"""


def in_other_dialect(parts: PromptParts) -> str:
    """Return the text in American spelling, or in British spelling if it is American already.

    American spelling is tried first because the British "oedema" contains the American "edema".
    """
    to_british = {}
    to_american: dict[str, dict[str, str]] = {}
    for position in _POSITIONS:
        to_british[position] = word_lists().spelling[position]
        to_american[position] = {}
        for american, british in to_british[position].items():
            to_american[position][british] = american
    # American words that contain a British spelling are replaced by themselves, so that they stay.
    for word in word_lists().spelling["american"]:
        to_american["anywhere"][word] = word
    american_text = _respelled(parts.text, to_american)
    if american_text != parts.text:
        return american_text
    return _respelled(parts.text, to_british)


def _respelled(text: str, tables: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text with old spellings replaced by new spellings.

    `tables`: for each position of `_POSITIONS`, a dict from old to new spellings.
    """
    for position, pattern in _POSITIONS.items():
        table = tables[position]
        listed = "|".join(sorted(table, key=len, reverse=True))
        # `title` capitalizes each spelling of the list. Words in capitals do not match.
        spelling = re.compile(pattern.format(f"(?:{listed}|(?:{listed.title()}))"))
        changes = []
        for match in spelling.finditer(text):
            old = match.group()
            changes.append((*match.span(), with_case_of(old, table[old.lower()])))
        text = with_changes(text, changes)
    return text


def with_brands(parts: PromptParts) -> str | None:
    """Return the text with generic names of drugs replaced by brands."""
    brands = word_lists().brands
    drugs = pattern_of(tuple(brands)).finditer(parts.text)
    return _renamed(parts, {drug.span(): brands[drug.group().lower()] for drug in drugs})


def with_generic_names(parts: PromptParts) -> str | None:
    """Return the text with brands of drugs replaced by generic names."""
    generic = {brand: name for name, brand in word_lists().brands.items()}
    names = {}
    for drug in pattern_of(tuple(generic), cased=True).finditer(parts.text):
        name = generic[drug.group()]
        # True at the beginning of the text, of a sentence or of a line
        is_first_word = re.search(r"(?:\A|[.?!:\n])\s*\Z", parts.text[: drug.start()])
        if is_first_word:
            name = name[0].upper() + name[1:]
        names[drug.span()] = name
    return _renamed(parts, names)


def _renamed(parts: PromptParts, names: Mapping[tuple[int, int], str]) -> str | None:
    """Return the text with the drugs at these positions renamed.

    None is returned in each of these cases:

    - The question may be about a name, or already contains a new name.
    - An old name is in capitals, or a salt, a form or an abbreviation follows it.
    - "a" or "an" stands before an old name and does not fit the new name.

    Args:
        parts: the parts of the question.
        names: a dict from (start, end) of a drug's name to the new name.
    """
    # " sodium", or the beginning of an abbreviation in brackets: " (ASA"
    salt_or_abbreviation = re.compile(
        rf"\s+(?:{'|'.join(word_lists().salts)})\b|\s*\((?-i:[A-Z]{{2}})", re.IGNORECASE
    )
    changes = []
    for (start, end), new in names.items():
        old = parts.text[start:end]
        has_new_name = re.search(rf"\b{new}\b", parts.all_texts, re.IGNORECASE)
        if has_new_name or old.isupper():
            return None
        if salt_or_abbreviation.match(parts.text[end:]):
            return None
        if article_clashes(parts.text[:start], old, new):
            return None
        changes.append((start, end, new))
    if has_word_beginning_with(parts, word_lists().name_question):
        return None
    return with_changes(parts.text, changes)
