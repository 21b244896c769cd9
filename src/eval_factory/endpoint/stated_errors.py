"""Errors that come with status 200: the HTTP status that each means, by its number or its words.

The table is stated_errors.yml, with the source of each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from eval_factory.core.plain_yaml import packaged

_CODE_FIELDS = ("code", "status", "status_code", "error_code", "Code")
_AROUND = ("error", "base_resp", "header")
_DIGITS = re.compile(r"\d{1,9}\Z")


@cache
def _rows() -> list[tuple[int, re.Pattern[str]]]:
    rows = []
    for row in packaged("endpoint/stated_errors.yml"):
        rows.append((row["status"], re.compile("|".join(row["says"]))))
    return rows


def code_in(document: Any) -> int | None:
    """The number that an error object has; None where it has none."""
    if not isinstance(document, Mapping):
        return None
    for name in _CODE_FIELDS:
        code = document.get(name)
        if isinstance(code, str) and _DIGITS.match(code):
            code = int(code)
        if type(code) is int and code > 0:
            return code
    for name in _AROUND:
        code = code_in(document.get(name))
        if code is not None:
            return code
    return None


def status_of(code: int | None, said: str) -> int | None:
    """The HTTP status that an error means; None where neither its number nor its words tell."""
    if code is not None and 400 <= code < 600:
        return code
    text = said.lower()
    for status, words in _rows():
        if words.search(text):
            return status
    return None
