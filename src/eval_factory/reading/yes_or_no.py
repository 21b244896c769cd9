"""Reads "yes" from reasoning that ends with an affirmation: "Therefore, X is indeed safer".

A sentence that affirms or denies by its meaning alone is not read: "X does not raise mortality" is
"no" to one question, but "yes" to "Is X safe?".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from eval_factory.reading.phrases import any_of, compiled

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CONCLUDES = compiled(rf"\W*(?:\d+[.)] )?{any_of('conclusion')}(?!\w)")  # "3. Therefore"
_AFFIRMS = compiled(rf"(?<!\w){any_of('affirmation')}(?!\w)")
_CLOSES = compiled(rf"{any_of('closing')}(?!\w)")  # "I hope this helps"
_LIMITS = compiled(rf"(?<!\w){any_of('limit')}(?!\w)")  # words that deny or restrict: "not", "may"


def affirmed_option(text: str, options: Mapping[str, str]) -> str | None:
    """Return the label of the option "yes" if the last sentence affirms the question; else None.

    None is also returned if the options do not include "yes" and "no".
    """
    labels = {option.strip().casefold(): label for label, option in options.items()}
    if not {"yes", "no"} <= labels.keys():
        return None
    sentences = _SENTENCE_END.split(text.strip().lower())
    while len(sentences) > 1 and _CLOSES.match(sentences[-1]):
        sentences.pop()
    last = sentences[-1]
    if not _CONCLUDES.match(last) or not _AFFIRMS.search(last) or _LIMITS.search(last):
        return None
    return labels["yes"]
