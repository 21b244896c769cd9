"""Finds the value in an answer to a question that asks for a number."""

from __future__ import annotations

import re

from eval_factory.reading.cleaning import answering_part, plain_text
from eval_factory.reading.cues import SAID
from eval_factory.reading.json_fields import answer_fields
from eval_factory.reading.normalised_words import in_lower_case

_NEAR_NUMBER = re.compile(r"[^\d\n]{0,30}\d")  # " approximately 7"


def stated_value(answer: str) -> str:
    """Return the text after the last "the answer is" before a number.

    If the answer has no such words, return the complete answer. In both cases, the text has no
    thinking and no markup. If the answer is JSON, only its fields for the answer are read.
    """
    text = answering_part(answer)
    fields = answer_fields(text)
    if fields:
        text = "\n".join(fields)
    plain = plain_text(text).replace("\N{MINUS SIGN}", "-")
    # In lower case, the positions of the letters are the same.
    for match in reversed(list(SAID.finditer(in_lower_case(plain)))):
        if _NEAR_NUMBER.match(plain, match.start("fill")):
            return plain[match.start("fill") :].lstrip(" :=").strip()
    return plain
