"""Fields of a line of JSON that holds a conversation, checked: messages name the field and never what it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.rubric.rubric_case import ROLES, SYSTEM, USER

_MESSAGE_KEYS = ("role", "content")
_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def object_in(line: str, first_key: str) -> dict[str, Any] | str:
    """The JSON object that a line is, or what is wrong with it; `first_key` shows what one looks like."""
    try:
        row = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it holds NaN, Infinity or too many levels"
        return f"is not JSON ({reason}); each line is one JSON object"
    return row if isinstance(row, dict) else f'must be a JSON object such as {{"{first_key}": ...}}'


def _no_number(_name: str) -> float:
    raise ValueError


def unknown_fields(row: Mapping[str, Any], known: Iterable[str], where: str = "") -> Iterator[str]:
    known = tuple(known)
    for name in row:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known here: {', '.join(known)}"
            yield f"{where}{name}: is no known field{hint}"


def text_problems(where: str, value: Any) -> Iterator[str]:
    if value is None:
        yield f"{where}: is missing"
    elif not isinstance(value, str):
        yield f"{where}: must be text"
    elif not value.strip():
        yield f"{where}: is empty"
    elif _HALF_OF_A_PAIR.search(value):
        yield f"{where}: holds half a surrogate pair (\\ud800 to \\udfff), which is no character"


def name_problems(where: str, value: Any, longest: int) -> Iterator[str]:
    problems = list(text_problems(where, value))
    if not problems and (len(value) > longest or any(ord(letter) < 32 for letter in value)):
        problems.append(f"{where}: must be one line of at most {longest} characters")
    yield from problems


def message_problems(where: str, value: Any, *, own: bool) -> Iterator[str]:
    """`own`: a file of the user's own, in which whatever looks like a slip is told."""
    if not isinstance(value, list) or not value:
        yield f'{where}: must be a list of messages such as [{{"role": "user", "content": "..."}}]'
        return
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            yield f"{where}.{number}: must be an object with role and content"
            continue
        if own:
            yield from unknown_fields(message, _MESSAGE_KEYS, f"{where}.{number}.")
        role = message.get("role")
        if role not in ROLES:
            yield f"{where}.{number}.role: must be one of {', '.join(ROLES)}"
        elif role == SYSTEM and number > 0:
            yield f"{where}.{number}.role: a system message can only be the first"
        if own or not isinstance(message.get("content"), str):
            yield from text_problems(f"{where}.{number}.content", message.get("content"))
    last = value[-1]
    if isinstance(last, dict) and last.get("role") in ROLES and last["role"] != USER:
        yield f"{where}.{len(value) - 1}.role: the last message must be the user's: it is what the model answers"
