"""One value as one line of strict JSON, for any content: what any reader takes, and no terminal obeys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

LARGEST_INTEGER_BITS = 8_192
"""Python refuses to write out, and most readers to read, what is much larger."""

_ESCAPED = (
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Line breaks to some readers (U+0085, U+2028, U+2029), control and format characters, halves of surrogate pairs. A
pattern that is compiled at its first use: it takes a millisecond."""


_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # made once: it takes time


def json_line(value: Any) -> str:
    """JSON without a line break. Numbers that JSON does not know (NaN, Infinity), or that nobody can read, are null.

    What is escaped is the same text again when it is read.

    Raises:
        RecursionError: it is nested too deeply.
    """
    try:
        text = _encoded(value)
    except ValueError:
        text = _encoded(_readable(value))
    return text if text.isascii() and "\x7f" not in text else re.sub(_ESCAPED, _escape, text)


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _readable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() <= LARGEST_INTEGER_BITS else None
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    return value
