"""Words for what is wrong with a value: the nearest known name, and pydantic's findings in plain English."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def did_you_mean(name: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """`, did you mean 'x'?`, or nothing where no known name is near. The same letters in another order are nearest."""
    import difflib  # of a mistake alone

    spelled = {text.lower(): text for text in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=5, cutoff=cutoff)
    letters = sorted(name.lower())
    nearest = next((text for text in near if sorted(text) == letters), near[0] if near else None)
    return f", did you mean {spelled[nearest]!r}?" if nearest else ""


def expectation(detail: Any) -> str:
    """What a value must be, from one of pydantic's error records."""
    kind = detail["type"]
    return {
        "literal_error": f"must be {detail.get('ctx', {}).get('expected')}",
        "model_type": "must be a mapping of keys to values",
        "list_type": "must be a list",
        "string_type": "must be text (put it in quotes)",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "bool_type": "must be true or false",
    }.get(kind) or str(detail["msg"]).replace("Input should be", "must be")
