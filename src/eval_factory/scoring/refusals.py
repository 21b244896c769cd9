"""Answers that decline to answer, told by how they begin."""

from __future__ import annotations

import re

LONGEST_REFUSAL = 400
"""Characters. What goes on for longer says something beside: that it is no physician, and then what to do."""

_APOLOGY = r"(?:(?:i'm|i am)\s+(?:very\s+|so\s+)?sorry|sorry|(?:my\s+)?apologies|i\s+apologi[sz]e|unfortunately)"
_NATURE = r"as\s+an?\s+(?:ai|(?:large\s+)?language model)(?:\s+(?:language\s+)?(?:model|assistant))?"
_CANNOT = r"(?:can(?:no|')t|can\s+not|won't|will\s+not|(?:must\s+|have\s+to\s+)?decline)"
_UNABLE = r"(?:am|'m)\s+(?:unable|not\s+able|not\s+allowed|not\s+comfortable)"
_REFUSED = (
    r"(?:help|assist|answer|provid|respond|compl[yie]|fulfil|discuss|giv|offer|generat|creat|diagnos|continu|engag"
    r"|do\s+(?:that|this)|shar|support|process|determin|make|advis|interpret)"
)
_REFUSAL = re.compile(
    rf"(?:(?:{_APOLOGY}|{_NATURE})[,.;:!]?\s+){{0,2}}(?:but\s+)?i(?:\s+{_CANNOT}|\s*{_UNABLE})\s+(?:to\s+)?{_REFUSED}",
    re.IGNORECASE,
)


def is_refusal(answer: str) -> bool:
    """Whether an answer begins by declining, in English, and holds nothing beside that."""
    text = answer.strip().strip("\"'*").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return len(text) <= LONGEST_REFUSAL and _REFUSAL.match(text) is not None
