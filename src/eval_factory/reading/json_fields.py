"""Finds the fields of JSON objects that contain the answer.

Example: {"reasoning": "...", "answer_choice": "B"}.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The key of a field for an answer consists of `_BEGIN` (may be empty), `_NAME` and `_END` (may be
# empty): "final_answer", "answer_choice".
_BEGIN = r"(?:(?:final|correct|best|selected|chosen|your|my|predicted)[ _]?)?"
_NAME = r"(?:answer|choice|option|letter|label|prediction|antwort|respuesta|resposta|réponse)"
_END = r"(?:[ _](?:letter|choice|option|label|text))?"
_ANSWER_KEY = re.compile(f"{_BEGIN}{_NAME}{_END}", re.IGNORECASE)
# `"answer": "B"` in `{"answer": "B", "reason": "because the`
_FIELD_OF_CUT_OFF_OBJECT = re.compile(
    rf"[\"']({_BEGIN}{_NAME}{_END})[\"']\s*:\s*"
    r"(?:\"((?:[^\"\\]|\\.)*)\"|'([^'\n]*)'|([-+]?\d[\d.]*|null))",
    re.IGNORECASE,
)
_DECODER = json.JSONDecoder(strict=False)
_OBJECT = re.compile(r"\{\s*(?:[\"'{]|$)")  # the beginning of an object, also if it is cut off


def answer_fields(text: str) -> list[str] | None:
    """Return the values of the fields that contain an answer.

    If an object was cut off, its fields are found by a regular expression.

    Returns:
        None if the answer must be read as a text: the text has no JSON objects, or a text precedes
        objects without a field for an answer. An empty list if the text is JSON, but has no such
        field, or null in such a field.
    """
    begin = _OBJECT.search(text)
    if begin is None:
        return None
    values = _values_in(text, begin.start())
    has_text_before = bool(text[: begin.start()].strip())
    if values:
        return values
    # If no object has a field for an answer, the text before the objects may state the answer.
    is_only_json = values is not None and not has_text_before
    if is_only_json:
        return []
    matches = _FIELD_OF_CUT_OFF_OBJECT.findall(text)
    if matches:
        # A match has the key, then three groups: for a value in double quotes, in single quotes, or
        # as a number or null. At most one group is not empty.
        return ["".join(match[1:]) for match in matches if match[3] != "null"]
    if text.lstrip().startswith("{"):  # the text is an object without a field for an answer
        return []
    return None


def _values_in(text: str, start: int) -> list[str] | None:
    """Return the answers in the JSON objects after the position `start`, in order.

    The first incomplete object ends the search. Return None if no object is complete.
    """
    values: list[str] = []
    begin = _OBJECT.search(text, start)
    is_any_complete = False
    while begin is not None:
        try:
            parsed, end = _DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            break
        is_any_complete = True
        values.extend(_values(parsed, is_answer=False))
        begin = _OBJECT.search(text, end)
    if not is_any_complete:
        return None
    return values


def _inner_values(value: dict[str, Any]) -> list[str]:
    """Return the answers in the inner objects of an object, such as {"final": {"answer": "B"}}."""
    answers: list[str] = []
    for inner in value.values():
        if isinstance(inner, dict):
            answers.extend(_values(inner, is_answer=False))
    return answers


def _values(value: Any, *, is_answer: bool) -> list[str]:
    """Return the answers in a JSON value.

    Args:
        value: the parsed JSON value.
        is_answer: True if the value belongs to a field for an answer. Numbers and texts are then
            answers; otherwise only an object can have answers, in its fields for an answer.
    """
    if isinstance(value, dict):
        answers: list[str] = []
        for key, inner in value.items():
            if _ANSWER_KEY.fullmatch(str(key)):
                answers.extend(_values(inner, is_answer=True))
        if not answers and not is_answer:
            answers = _inner_values(value)
        if answers or not is_answer:
            return answers
        # An answer in parts, such as {"answer": {"id": "B", "name": "ulcer"}}, is one text.
        return [" ".join(_values(list(value.values()), is_answer=True))]
    if not is_answer or value is None:
        return []
    if isinstance(value, list):
        joined: list[str] = []
        for inner in value:
            joined.extend(_values(inner, is_answer=True))
        return [", ".join(joined)]
    return [str(value)]
