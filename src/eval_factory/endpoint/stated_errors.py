"""Finds the HTTP status that an error means, from the error's code or words.

Some servers send errors with status 200, or with a status that does not fit. The table of words is
stated_errors.yml, with the source of each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from eval_factory.core.plain_yaml import load_packaged

_CODE_FIELDS = ("code", "status", "status_code", "error_code", "Code")
"""Fields of an error object that may hold its code."""
_NESTING_FIELDS = ("error", "base_resp", "header")
"""Fields that may hold the error object."""
_DIGITS = re.compile(r"\d{1,9}\Z")

NO_MATCH = r"(?!)"
"""A pattern that matches no text."""
NO_CREDIT = 402
"""The HTTP status 402 Payment Required: the account has no credit."""
_MAYBE_NO_CREDIT = frozenset({400, 403, 412, 429})
"""The HTTP statuses of errors whose words may mean that the account has no credit.

The statuses are Bad Request, Forbidden, Precondition Failed and Too Many Requests.
"""
_ERROR_NAME = re.compile(r'"(?:code|type|status)"\s*:\s*"([\w. -]{1,60})"')
"""Finds a name of an error in its JSON, such as `insufficient_quota`."""


@dataclass(frozen=True)
class _Row:
    """A row of the table: words of errors, and the HTTP status that the errors mean."""

    status: int
    words: re.Pattern[str]
    unless: re.Pattern[str]  # words of errors to which the row does not apply
    lasts: bool  # True if the errors are about a limit that lasts for hours or days


@cache
def _rows() -> tuple[_Row, ...]:
    """Read the table, and return its rows."""
    rows = []
    for row in load_packaged("endpoint/stated_errors.yml"):
        words = re.compile("|".join(row["says"]))
        unless = re.compile(row.get("unless", NO_MATCH))
        rows.append(_Row(row["status"], words, unless, lasts=row.get("lasts", False)))
    return tuple(rows)


def code_in(document: Any) -> int | None:
    """Return the code of an error object, or of an error object within it, as a number.

    Return None if no field holds a whole number above 0.
    """
    if not isinstance(document, Mapping):
        return None
    for name in _CODE_FIELDS:
        code = document.get(name)
        if isinstance(code, str) and _DIGITS.match(code):
            code = int(code)
        if type(code) is int and code > 0:  # not `isinstance`: a boolean is an int too
            return code
    for name in _NESTING_FIELDS:
        code = code_in(document.get(name))
        if code is not None:
            return code
    return None


def status_of(code: int | None, message: str) -> int | None:
    """Return the HTTP status that an error means; None if neither code nor words show a status.

    Args:
        code: the code of the error, as `code_in` returns it.
        message: the words of the error.
    """
    if code is not None and 400 <= code < 600:
        return code
    row = _row_of(message)
    if row is None:
        return None
    return row.status


def _row_of(message: str) -> _Row | None:
    """Return the first row that applies to a message; None if no row applies."""
    text = message.lower()
    for row in _rows():
        if row.words.search(text) and not row.unless.search(text):
            return row
    return None


def means_long_limit(message: str) -> bool:
    """Return True if the words of an error mean a limit that lasts for hours or days."""
    row = _row_of(message)
    return row is not None and row.lasts


_PAUSE = re.compile(
    r"(?:try again|retry|reset|wait|available) (?:in|after|for) "
    r"(?:(\d{1,4})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?)s)?(?!\w|\.\d)"
)
"""Finds the pause in errors of Groq and Gemini: "try again in 39m38.016s", "retry in 20h31m2s".

`(?!s)`: the m of "500ms" does not stand for minutes.
"""


def pause_in(message: str) -> float | None:
    """Return the seconds that the words of an error ask to wait; None if they state no pause."""
    match = _PAUSE.search(message.lower())
    # All groups are optional: the words alone match too, without any number.
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def means_no_credit(status: int, message: str, body: str) -> bool:
    """Return True if an error means that the account has no credit left.

    Args:
        status: the HTTP status.
        message: the message of the error.
        body: the beginning of the error's JSON; names of errors in it count too.
    """
    if status == NO_CREDIT:
        return True
    if status not in _MAYBE_NO_CREDIT:
        return False
    names = " ".join(_ERROR_NAME.findall(body))
    return status_of(code=None, message=f"{message} {names}") == NO_CREDIT
