"""Finds the request parameter that an endpoint's error refuses, and the change that may help.

The words of the servers' errors are in refused_parameters.yml, with their sources. A change is
tried once. Only an answer to the changed request shows that the change was needed, so a wrong guess
costs a single refusal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from eval_factory.core.foreign_text import one_line, texts_in
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.openai_api import Change, SetTo

Changes = Mapping[str, Change]  # the change of each parameter, by the parameter's name

STATUSES = frozenset({400, 422})
"""The HTTP statuses with which servers refuse parameters: Bad Request, Unprocessable Content."""
SEARCHED_LENGTH = 4000
"""The number of characters at the beginning of an error that are searched.

The rest of a long error repeats the request.
"""
_FIELD = re.compile(r'"(?:param|parameter|loc)\\?"\s*:\s*\\?(?:"([^"\\]{1,80})|\[([^\]]{1,120}))')
"""Finds the field of an error that names the refused parameter: one text, or a list of texts.

Examples: `"param": "top_p"`, `"loc": ["body", "top_p"]`, and both with escaped quotes.
"""
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")  # a character as JSON escapes it; the text is lower case
_REPEATED_FIELD = re.compile(r"""["']\w{1,40}\\?["']\s*:\s*(?=[\d\[-]|null|none|true|false)""")
"""Finds the fields of the request that an error repeats; their names do not mean a refusal.

Examples: `"temperature": 0`, `'stop': none`.
"""
# the quotes and brackets around a parameter's name, such as `'top_p'` or `[top_p]`
_BEFORE_NAME = r"""["'`“\u2018«\[(]\s*"""
_AFTER_NAME = r"""\s*\\?["'`”\u2019»\])]"""


@dataclass(frozen=True)
class _Table:
    """The contents of refused_parameters.yml as patterns.

    Attributes:
        names: a dict from each parameter to the pattern that finds it without quotes.
        quoted: a dict from each parameter to the pattern that finds it in quotes.
        words: finds a word that refuses.
        unless: finds errors about something else.
        excludes: finds errors about two parameters that exclude each other.
        values: finds the only value that is allowed.
        lowest: finds the lowest value that is allowed.
        highest: finds the highest value that is allowed.
        unnamed: pairs of a pattern, which finds errors that name no parameter, and the parameter
            that these errors mean.
    """

    names: Mapping[str, re.Pattern[str]]
    quoted: Mapping[str, re.Pattern[str]]
    words: re.Pattern[str]
    unless: re.Pattern[str]
    excludes: re.Pattern[str]
    values: re.Pattern[str]
    lowest: re.Pattern[str]
    highest: re.Pattern[str]
    unnamed: tuple[tuple[re.Pattern[str], str], ...]


def _any_of(rows: list[dict[str, Any]]) -> re.Pattern[str]:
    """Return a pattern that matches the words of any of these rows.

    Each row of refused_parameters.yml has a list `says` of patterns.
    """
    return re.compile("|".join(chain.from_iterable(row["says"] for row in rows)))


@cache
def _table() -> _Table:
    """Read and compile refused_parameters.yml."""
    document = load_packaged("endpoint/refused_parameters.yml")
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
        words=_any_of(document["words"]),
        unless=_any_of(document["unless"]),
        excludes=_any_of(document["excludes"]),
        values=_any_of(document["values"]),
        lowest=_any_of(document["lowest"]),
        highest=_any_of(document["highest"]),
        unnamed=unnamed,
    )


def changes_asked_for(error: str, sent: Mapping[str, Any]) -> dict[str, Change]:
    """Return the change that an error asks for, by the parameter's name; empty without a change.

    The change is a guess: the error may be about this prompt only. Text that the error quotes from
    the prompt is ignored.

    Args:
        error: the text of the error.
        sent: the body that was refused.
    """
    text = one_line(error[:SEARCHED_LENGTH], SEARCHED_LENGTH, prompt=texts_in(sent)).lower()
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    # The error names the parameter that this server accepts instead.
    if "max_completion_tokens" in text and "max_tokens" in sent:
        return {"max_tokens": "max_completion_tokens"}
    if "response_format" in text and sent.get("response_format") == openai_api.BASE64_FIELD:
        # Some picture models only answer in base64, and refuse the field.
        return {"response_format": None}
    table = _table()
    for pattern, name in table.unnamed:
        if name in sent and pattern.search(text):
            return {name: None}
    named = _named_in(text, sent)
    if not named:
        return {}
    if table.excludes.search(text):
        # Leave out the parameter that the table names last: temperature stays, top_p does not.
        return {named[-1]: None}
    return {named[0]: _allowed_value(text, sent[named[0]])}


def merged_changes(changes: Changes, new_changes: Changes) -> dict[str, Change]:
    """Return the changes so far, merged with the changes that an error now asks for.

    A parameter that was set to another value, and is refused again, is left out.
    """
    merged = dict(changes)
    for name, new_change in new_changes.items():
        if isinstance(changes.get(name), SetTo):
            merged[name] = None
        else:
            merged[name] = new_change
    return merged


def _named_in(text: str, sent: Mapping[str, Any]) -> list[str]:
    """Return the optional parameters of the request that an error refuses.

    If a field of the error (`_FIELD`) names optional parameters of the request, only the
    parameters in that field count. Else the parameters in quotes count. If there are none,
    parameters without quotes count, but only if the error also has a word that refuses, or a limit.
    """
    table = _table()
    candidates = []
    for name in table.names:
        # Of response formats, only eval-factory's own is changed: the schema of judges' verdicts.
        may_change = name != openai_api.RESPONSE_FORMAT or openai_api.has_verdict_schema(sent)
        if name in sent and may_change:
            candidates.append(name)
    # The two groups of `_FIELD` are a single name, or the names in a list; one of them is empty.
    fields = " ".join(single or listed for single, listed in _FIELD.findall(text))
    in_field = _found_in(fields, candidates, table.names)
    if in_field:
        return in_field
    if table.unless.search(text):
        return []
    without_request = _REPEATED_FIELD.sub(" ", text)
    quoted = _found_in(without_request, candidates, table.quoted)
    if quoted:
        return quoted
    signs_of_refusal = (table.words, table.excludes, table.values, table.lowest, table.highest)
    if not any(pattern.search(text) for pattern in signs_of_refusal):
        return []
    return _found_in(without_request, candidates, table.names)


def _found_in(
    text: str, names: Sequence[str], patterns: Mapping[str, re.Pattern[str]]
) -> list[str]:
    """Return the names whose patterns find something in the text."""
    return [name for name in names if patterns[name].search(text)]


def _allowed_value(text: str, sent: Any) -> Change:
    """Return the change of a parameter to the value that an error allows.

    Return None, which leaves out the parameter, if the error names no other value. `sent` is the
    value that was sent.
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
        value = int(value)  # so that the body has 1, not 1.0
    return SetTo(value)


def _number_at(pattern: re.Pattern[str], text: str) -> float | None:
    """Return the number in the pattern's first match; None without a match or a finite number.

    Each alternative of the pattern has a group for the number.
    """
    match = pattern.search(text)
    if match is None:
        return None
    number = next(float(group) for group in match.groups() if group is not None)
    if not math.isfinite(number):  # hundreds of digits
        return None
    return number
