"""Finds the fields of JSON objects that contain the answer.

Example: {"reasoning": "...", "answer_choice": "B"}.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The key of a field for an answer consists of `_KEY` (may be empty), `_NAME` and `_END` (may be
# empty): "final_answer", "answer_choice".
_KEY = r"(?:(?:final|correct|best|selected|chosen|your|my|predicted)[ _]?)?"
_NAME = r"(?:answer|choice|option|letter|label|prediction|antwort|respuesta|resposta|réponse)"
_END = r"(?:[ _](?:letter|choice|option|label|text))?"
_ANSWER_KEY = re.compile(f"{_KEY}{_NAME}{_END}", re.IGNORECASE)
_CUT_OFF = re.compile(
    rf"[\"']({_KEY}{_NAME}{_END})[\"']\s*:\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^'\n]*)'|([-+]?\d[\d.]*|null))",
    re.IGNORECASE,
)
_DECODER = json.JSONDecoder(strict=False)
_OBJECT = re.compile(r"\{\s*(?:[\"'{]|$)")  # the beginning of an object, also if it is cut off


def answer_fields(text: str) -> list[str] | None:
    """Return the values of the fields that contain an answer; None if the text is not JSON.

    Return an empty list if the JSON objects have no field for an answer, or if the value of this
    field is null. In an object that was cut off, fields for an answer are found by their form.
    """
    begin = _OBJECT.search(text)
    if begin is None:
        return None
    values = _values_in(text, begin.start())
    # If no object has such a field, a text before the first object may state the answer.
    if values is not None and (values or not text[: begin.start()].strip()):
        return values
    matches = _CUT_OFF.findall(text)
    if matches:
        # A match has the key and three forms of the value, of which one is not empty: in double
        # quotes, in single quotes, and a number or null.
        return ["".join(match[1:]) for match in matches if match[3] != "null"]
    if text.lstrip().startswith("{"):  # the whole answer is an object, without such a field
        return []
    return None


def _values_in(text: str, start: int) -> list[str] | None:
    """Return the answers in all JSON objects after the position `start`.

    Return None if the first object is not complete JSON.
    """
    values: list[str] = []
    begin = _OBJECT.search(text, start)
    is_first = True
    while begin is not None:
        try:
            parsed, end = _DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            break
        values.extend(_values(parsed, is_answer=False))
        is_first = False
        begin = _OBJECT.search(text, end)
    if is_first:
        return None
    return values


def _inner_values(value: dict[str, Any]) -> list[str]:
    """Return the answers in the inner objects of an object: {"final": {"answer": "B"}}."""
    answers: list[str] = []
    for inner in value.values():
        if isinstance(inner, dict):
            answers.extend(_values(inner, is_answer=False))
    return answers


def _values(value: Any, *, is_answer: bool) -> list[str]:
    """Return the answers in a JSON value.

    Args:
        value: the parsed JSON value.
        is_answer: True if the value belongs to a field for an answer: numbers and texts are then
            answers. False: only the fields for an answer in an object count.
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
