"""Finds the request parameter that an endpoint's error refuses, and the change that may help.

The words of the servers' errors are in refused_parameters.yml, with their sources. A change is
tried once. Only an answer to the changed request shows that the change was needed, so a wrong guess
costs a single refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from eval_factory.core.foreign_text import one_line, texts_in
from eval_factory.core.plain_yaml import packaged
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.openai_api import Change, SetTo

Changes = Mapping[str, Change]  # the change of each parameter, by the parameter's name

STATUSES = frozenset({400, 422})
"""The HTTP statuses with which servers refuse parameters: Bad Request, Unprocessable Content."""
LOOKED_AT = 4000
"""The number of characters of an error that are read; the rest of a long error repeats the request.
"""
_FIELD = re.compile(r'"(?:param|parameter|loc)\\?"\s*:\s*\\?(?:"([^"\\]{1,80})|\[([^\]]{1,120}))')
"""Finds the field of an error that names the refused parameter."""
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")  # a character as JSON escapes it; the text is lower case
_REPEATED = re.compile(r"""["']\w{1,40}\\?["']\s*:\s*(?=[\d\[-]|null|none|true|false)""")
"""Finds the fields of the request that an error repeats; their names do not mean a refusal."""
_BEFORE_NAME = r"""["'`“\u2018«\[(]\s*"""
_AFTER_NAME = r"""\s*\\?["'`”\u2019»\])]"""


@dataclass(frozen=True)
class _Table:
    """The contents of refused_parameters.yml, compiled; that file explains the fields."""

    names: Mapping[str, re.Pattern[str]]
    quoted: Mapping[str, re.Pattern[str]]
    refuses: re.Pattern[str]
    unless: re.Pattern[str]
    excludes: re.Pattern[str]
    values: re.Pattern[str]
    lowest: re.Pattern[str]
    highest: re.Pattern[str]
    unnamed: tuple[tuple[re.Pattern[str], str], ...]


def _any_of(rows: list[dict[str, Any]]) -> re.Pattern[str]:
    """Return a pattern that matches the words of any of these rows."""
    return re.compile("|".join(chain.from_iterable(row["says"] for row in rows)))


@cache
def _table() -> _Table:
    """Read and compile refused_parameters.yml."""
    document = packaged("endpoint/refused_parameters.yml")
    names = {}
    quoted = {}
    for name, spellings in document["names"].items():
        spelled = f"(?:{'|'.join(spellings)})"
        names[name] = re.compile(rf"(?<![\w-]){spelled}(?![\w-])")
        quoted[name] = re.compile(f"{_BEFORE_NAME}{spelled}{_AFTER_NAME}")
    unnamed = tuple((_any_of([row]), row["parameter"]) for row in document["unnamed"])
    return _Table(
        names=names,
        quoted=quoted,
        refuses=_any_of(document["words"]),
        unless=_any_of(document["unless"]),
        excludes=_any_of(document["excludes"]),
        values=_any_of(document["values"]),
        lowest=_any_of(document["lowest"]),
        highest=_any_of(document["highest"]),
        unnamed=unnamed,
    )


def changes_asked_for(error: str, sent: Mapping[str, Any]) -> dict[str, Change]:
    """Return the change that the text of an error asks for; empty if it asks for no change.

    The change is a guess: the error may be about this prompt only. Text that the error quotes from
    the prompt is ignored.

    Args:
        error: the text of the error.
        sent: the body that was refused.
    """
    text = one_line(error[:LOOKED_AT], LOOKED_AT, prompt=texts_in(sent)).lower()
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    # The error names the parameter that this server accepts instead.
    if "max_completion_tokens" in text and "max_tokens" in sent:
        return {"max_tokens": "max_completion_tokens"}
    if "response_format" in text and sent.get("response_format") == openai_api.BASE64:
        # Some picture models only answer in base64, and refuse the field.
        return {"response_format": None}
    table = _table()
    for pattern, name in table.unnamed:
        if name in sent and pattern.search(text):
            return {name: None}
    named = _named_in(text, sent)
    if not named:
        return {}
    # Two parameters exclude each other: keep the first parameter (temperature), and drop the last
    # (top_p). The table has this order.
    if table.excludes.search(text):
        return {named[-1]: None}
    return {named[0]: _allowed_value(text, sent[named[0]])}


def merged_changes(changes: Changes, new_changes: Changes) -> dict[str, Change]:
    """Return the changes so far together with the changes that an error now asks for.

    A parameter that was set to another value, and is refused again, is left out.
    """
    together = dict(changes)
    for name, change in new_changes.items():
        if isinstance(changes.get(name), SetTo):
            together[name] = None
        else:
            together[name] = change
    return together


def _named_in(text: str, sent: Mapping[str, Any]) -> list[str]:
    """Return the optional parameters of the request that an error refuses.

    If the error has a field for the parameter's name, only that field counts. Else the parameters
    in quotes count. If there are none, parameters without quotes count, but only if the error also
    has a word that refuses, or a limit.
    """
    table = _table()
    candidates = []
    for name in table.names:
        # A response format that the user configured is never changed.
        is_ours = name != openai_api.RESPONSE_FORMAT or openai_api.has_verdict_schema(sent)
        if name in sent and is_ours:
            candidates.append(name)
    fields = " ".join(name or names for name, names in _FIELD.findall(text))
    in_field = []
    for name in candidates:
        if table.names[name].search(fields):
            in_field.append(name)
    if in_field:
        return in_field
    if table.unless.search(text):
        return []
    without_request = _REPEATED.sub(" ", text)
    quoted = []
    for name in candidates:
        if table.quoted[name].search(without_request):
            quoted.append(name)
    if quoted:
        return quoted
    refusals = (table.refuses, table.excludes, table.values, table.lowest, table.highest)
    if not any(pattern.search(text) for pattern in refusals):
        return []
    named: list[str] = []
    for name in candidates:
        if table.names[name].search(without_request):
            named.append(name)
    return named


def _allowed_value(text: str, sent: Any) -> Change:
    """Return the change to a value that an error allows; None if the error names no other value.

    None leaves out the parameter. `sent` is the value that was sent.
    """
    if isinstance(sent, bool) or not isinstance(sent, (int, float)):
        return None
    table = _table()
    value = _number_at(table.values, text)
    if value is None:
        value = sent
        lowest = _number_at(table.lowest, text)
        highest = _number_at(table.highest, text)
        if lowest is not None and sent < lowest:
            value = lowest
        elif highest is not None and sent > highest:
            value = highest
    if value == sent:
        return None
    if value == int(value):
        value = int(value)
    return SetTo(value)


def _number_at(pattern: re.Pattern[str], text: str) -> float | None:
    """Return the number in the pattern's first match in the text; None without a match.

    Each alternative of the pattern has a group for the number.
    """
    match = pattern.search(text)
    if match is None:
        return None
    return next(float(group) for group in match.groups() if group is not None)
