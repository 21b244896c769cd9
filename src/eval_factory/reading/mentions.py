"""Finds all mentions of options in a text.

A label and a text that belong together, such as "B. Duodenal ulcer", are one mention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.normalised_words import in_lower_case, words_of
from eval_factory.reading.option_labels import mentions_by_label
from eval_factory.reading.option_texts import find_cut_text, mentions_by_text, option_texts
from eval_factory.reading.phrases import any_of, compiled_for_any_case

_BETWEEN = re.compile(r"[\s.,:;)\]'\"(/-]{1,5}(?:ie +)?")
"""The signs between a label and the text after it: "B. Duodenal ulcer"."""
_OR = r"(?:,? ?(?:or|which is|that is|ie,?) )?"
_TO_LABEL = compiled_for_any_case(
    rf"['\",]{{0,3}}(?: ?{_OR}[(\[]?|\. ?[(\[]|: )(?:{any_of('option')}[ :]{{1,2}})?['\"(]?"
)
"""The words between a text and the label after it: "colonoscopy (option B)"."""
_HEADING_SIGNS = {".", ")", ":", "]"}


def find_mentions(text: str, options: Mapping[str, str]) -> list[Mention]:
    """Return all mentions of options in a text, in the order of the text.

    Args:
        text: the answer without thinking and markup.
        options: dict from label to the option's text.
    """
    words = words_of(in_lower_case(text))
    texts = option_texts(tuple(options.items()))
    by_text, taken = mentions_by_text(words, texts)
    cut = find_cut_text(words, texts)
    if cut is not None and not by_text:
        by_text.append(cut)
    by_label = mentions_by_label(text, words, taken, options)
    return _joined(text, sorted([*by_label, *by_text], key=lambda mention: mention.start))


def _joined(text: str, mentions: Sequence[Mention]) -> list[Mention]:
    """Return the mentions, with each label joined to its text.

    Letters that are words rather than labels are left out: "A patient".
    """
    joined: list[Mention] = []
    number = 0
    while number < len(mentions):
        mention = mentions[number]
        pair = _pair(text, mention, mentions[number + 1 : number + 3])
        if pair is not None:
            joined.append(pair)
            number += 2
            continue
        if not mention.may_be_word:
            joined.append(mention)
        number += 1
    return joined


def _pair(text: str, mention: Mention, later: Sequence[Mention]) -> Mention | None:
    """Return one mention for a label and a text that follow each other.

    Return None if the mention and the mention after it do not belong together.

    Args:
        text: the complete text.
        mention: a mention by label or by text.
        later: the next two mentions, or fewer at the end of the text.
    """
    if not later:
        return None
    following = later[0]
    if mention.form is Form.TEXT:
        if _has_label(text, mention, following):
            return mention._replace(end=following.end, form=Form.BOTH, is_marked=True)
        return None
    if following.form is not Form.TEXT:
        return None
    between = text[mention.end : following.start]
    if not _BETWEEN.fullmatch(between):
        return None
    if mention.label == "A" and between == " " and text[following.start].islower():
        return None  # In "A cohort study", A is an article.
    if mention.label == following.label:
        return mention._replace(
            end=following.end, form=Form.BOTH, is_marked=True, may_be_word=False
        )
    # Here, the label and the text belong to two options. This is a conflict only under three
    # conditions: the label stands before the text like a heading ("B. Colitis"), no label of the
    # text's option follows the text ("B, colitis (A)"), and the text is not a frequent word.
    text_has_label = len(later) == 2 and _has_label(text, following, later[1])
    is_heading = between.strip()[:1] in _HEADING_SIGNS or between == ", "
    if not is_heading or text_has_label or following.is_frequent_word:
        return None
    return mention._replace(end=following.end, form=Form.CONFLICT, text_label=following.label)


def _has_label(text: str, by_text: Mention, by_label: Mention) -> bool:
    """Return True if the label of an option follows its text: "colonoscopy (option B)"."""
    if by_label.form is not Form.LABEL or by_text.label != by_label.label:
        return False
    return _TO_LABEL.fullmatch(text, by_text.end, by_label.start) is not None
