"""In which other orders the choices of a question may be shown, and which questions keep the order that they have."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Sequence
from functools import cache

MOST_ORDERS = 24
"""As many as four choices have."""
NAME = "choice_order_"
"""How HELM's files call the instances in another order: `choice_order_2` ..."""

REFERS, LABELS, ALONE = "a choice refers to others", "the choices are labels", "one choice"
"""Why a question keeps its order."""

_LABEL = r"(?:[a-h]|[1-9]|i{1,3}|iv|vi{0,3})"
_NAMED = rf"(?:(?:option|choice|answer|statement|opci[oó]n|respuesta)(?:e?s)?\s+)?[(\"']?{_LABEL}[)\"'.]?"
_AND = r"(?:\s*(?:,|;|&|\+|/)\s*(?:and\s+|or\s+|y\s+|o\s+)?|\s+(?:and|or|y|o|e)\s+)"
_SEVERAL = rf"{_NAMED}(?:{_AND}{_NAMED})+"
_OTHERS = (
    r"(?:above|these|those|preceding|previous|foregoing|following|below|others?|other\s+\w+|options|choices|answers"
    r"|listed\s+\w+)"
)
_NOUN = r"(?:option|choice|answer|statement|opci[oó]n|respuesta)"
_HOW_MANY = r"(?:all|none|any|both|neither|either|each|some|two|three|more than one|one)"
_RIGHT_ES = r"(?:correct|ciert|fals|verdader|incorrect)"
_REFERENCES = (
    rf"\b{_HOW_MANY}\s+of\s+(?:the\s+)?{_OTHERS}\b",
    r"\b(?:all|none|both|any)\s+(?:the\s+)?(?:above|options|choices|answers)\b",
    r"\b(?:mentioned|listed|stated|given)\s+above\b|\babove[- ]mentioned\b",
    rf"\b(?:both|either|neither|only|all\s+(?:but|except))\s+{_NAMED}(?:(?:\s+nor\s+|{_AND}){_NAMED})+(?![\w-])",
    rf"^\W*{_SEVERAL}(?:\s+(?:only|alone|both|are|is|son|es)\b.*)?\W*$",
    rf"^\W*(?:only|solo|sólo|all\s+(?:but|except))\s+{_NAMED}\W*$",
    rf"^\W*(?:(?:only|solo|sólo)\s+)?{_NOUN}s?\s+{_NAMED}(?:\s+(?:only|alone|is|es)\b.*)?\W*$",
    r"\b(?:all|both|none)\s+(?:are|is)\s+(?:correct|true|false|right|wrong|incorrect)\b",
    r"\b(?:tod[oa]s|ningun[oa]|cualquiera)\s+(?:(?:de\s+)?l[oa]s\s+)?(?:respuestas\s+|opciones\s+)?(?:anterior|opcion|respuesta)",
    r"\b(?:las|los)\s+(?:dos|tres)\s+anteriores\b",
    rf"\b(?:tod[oa]s|ningun[oa])\s+(?:son|es)\s+{_RIGHT_ES}",
    rf"\bson\s+{_RIGHT_ES}[oa]s\s+{_NAMED}|\brespuestas\s+{_SEVERAL}",
    r"^\W*(?:all|none|neither|both)\W*$",
)
_IS_LABEL = r"\W*[A-Za-z]\W*"


def why_kept(choices: Sequence[str]) -> str | None:
    """Why the choices of a question may not be moved; None where they may.

    "All of the above" means something only in its place, and "both A and B" only beside choices in theirs. Choices
    that are letters themselves (their texts stand in the question) would stand beside another letter.
    """
    if len(set(choices)) < 2:
        return ALONE
    if all(re.fullmatch(_IS_LABEL, choice) for choice in choices):
        return LABELS
    return REFERS if any(map(refers_to_others, choices)) else None


def refers_to_others(choice: str) -> bool:
    """Whether a choice means something only beside others, or in its place: "none of the above", "both A and B"."""
    return _reference().search(choice) is not None


@cache
def _reference() -> re.Pattern[str]:
    """Compiled when choices are looked at: a configuration is checked without."""
    return re.compile("|".join(f"(?:{one})" for one in _REFERENCES), re.IGNORECASE)


def orders_of(question: str, choices: Sequence[str], wanted: int) -> list[tuple[int, ...]]:
    """Different orders of the choices, the original first: for each place, the number of the choice that stands there.

    They depend on the question's id alone, so the same command asks the same. There are fewer than `wanted` where there
    are not so many, and one where the choices may not be moved.
    """
    count = len(choices)
    original = tuple(range(count))
    if why_kept(choices) is not None:
        return [original]
    chance = random.Random(hashlib.sha256(f"choice orders of {question}".encode()).digest())  # noqa: S311 - no secret
    found = {original: None}
    while len(found) < min(wanted, math.factorial(count)):
        found[tuple(chance.sample(original, count))] = None
    return list(found)


def name_of(order: int) -> str:
    """Args: order: from 2 on; the first is the question as it is."""
    return f"{NAME}{order}"


def order_of(perturbation: str | None) -> int | None:
    """Of an instance, by the name of its perturbation: 1 where it has none; None where it is one of HELM's."""
    if perturbation is None:
        return 1
    number = perturbation.removeprefix(NAME)
    return int(number) if number != perturbation and number.isdecimal() else None
