"""Converts answers of native APIs (Ollama's, Anthropic's, Gemini's and others) to OpenAI's form.

Such answers come from gateways, or from a configured URL that is not the OpenAI-compatible one.
An answer is converted if it holds the text of a single choice, or if a filter withheld the text.
The parts of a text are joined. The field `CONVERTED_FROM` of the converted answer names the server,
because a native API may ignore parameters that were sent. The table of the forms is
native_answers.yml, with the source of each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.endpoint import finish_reasons

CONVERTED_FROM = "converted_from"
"""The field of a converted answer that names the server whose form the answer had."""
_MISSING = object()  # stands for a value that an answer does not have
_COPIED = ("id", "model")  # the fields of an answer that stay as they are


@dataclass(frozen=True)
class _Form:
    """The form of one server's answers: a row of the table; paths are tuples of field names."""

    server: str
    has: tuple[str, ...]  # the fields by which an answer of this form is recognized
    text: tuple[str, ...]  # the path of the text
    thought: tuple[str, ...] = ()  # the path of the thinking
    reason: tuple[str, ...] = ()  # the path of the finish reason
    prompt_tokens: tuple[str, ...] = ()
    completion_tokens: tuple[str, ...] = ()
    path: re.Pattern[str] | None = None  # matches the URL paths of the native API
    openai_path: str = ""  # the URL path of the server's OpenAI-compatible API
    hosts: tuple[str, ...] = ()  # the only hosts of the native API; empty: any host


@cache
def _forms() -> tuple[_Form, ...]:
    """Read the table, and return its rows."""
    forms = []
    for row in load_packaged("endpoint/native_answers.yml"):
        fields: dict[str, Any] = {"server": row["server"]}
        fields["openai_path"] = row.get("openai", "")
        fields["has"] = tuple(row["has"])
        fields["hosts"] = tuple(row.get("hosts", ()))
        for name in ("text", "thought", "reason", "prompt_tokens", "completion_tokens"):
            if name in row:
                fields[name] = tuple(row[name].split("."))
        if "path" in row:
            # such as `/proxy/api/chat`, in which `before` is `/proxy`
            fields["path"] = re.compile(f"(?P<before>.*?)(?:{'|'.join(row['path'])})/?")
        forms.append(_Form(**fields))
    return tuple(forms)


def in_openai_form(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an answer of a native API in OpenAI's form.

    Return None if the answer has OpenAI's form already, is an error, or has no form of the table.
    Also return None if the answer does not hold the text of a single choice, unless a filter
    withheld the text.
    """
    if "choices" in answer or answer.get("error"):
        return None
    for form in _forms():
        if all(name in answer for name in form.has):
            converted = _converted(answer, form)
            if converted is not None:
                return converted
    return None


def _converted(answer: Mapping[str, Any], form: _Form) -> dict[str, Any] | None:
    """Return an answer of this form in OpenAI's form.

    Return None if the answer has no text, unless a filter withheld the text.
    """
    reason = _value_at(answer, form.reason)
    if not isinstance(reason, str):
        reason = None
    text = _text_at(answer, form.text)
    if text is None:
        if not _is_withheld(answer, reason):
            return None
        reason = FinishReason.FILTERED.value
        text = ""
    message = {"role": "assistant", "content": text}
    thought = _text_at(answer, form.thought)
    if thought:
        message["reasoning_content"] = thought
    usage = {}
    for name in ("prompt_tokens", "completion_tokens"):
        usage[name] = _value_at(answer, getattr(form, name))
        if usage[name] is _MISSING:
            usage[name] = None
    # `message` is the form of chats, `text` the form of completions.
    choice = {"index": 0, "message": message, "text": text, "finish_reason": reason}
    converted: dict[str, Any] = {"choices": [choice], "usage": usage}
    for name in _COPIED:
        if isinstance(answer.get(name), str):
            converted[name] = answer[name]
    converted[CONVERTED_FROM] = form.server
    return converted


def _is_withheld(answer: Mapping[str, Any], reason: str | None) -> bool:
    """Return True if a filter withheld the answer's text, or refused the prompt.

    `reason` is the value at the form's path of the finish reason. If Gemini refuses a prompt, the
    answer has no candidates and is of another form: the table's second row of Gemini, whose path is
    `promptFeedback.blockReason`.
    """
    if reason is None:
        return False
    # Every `blockReason` states a refusal, even `OTHER`, which the table of finish reasons lacks.
    is_prompt_refused = "promptFeedback" in answer and not answer.get("candidates")
    return is_prompt_refused or finish_reasons.kind_of(reason) == FinishReason.FILTERED


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path; `_MISSING` if there is none.

    The name "0" in a path stands for the only entry of a list.
    """
    if not path:
        return _MISSING
    for name in path:
        if isinstance(value, list) and name == "0" and len(value) == 1:
            value = value[0]
        elif isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            return _MISSING
    return value


def _text_at(answer: Any, path: tuple[str, ...]) -> str | None:
    """Return the texts at a path, joined; None if there is no text, or not only texts."""
    texts = list(_texts_at(answer, path))
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    return "".join(texts)


def _texts_at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values at a path, which may lead through lists of parts; skip parts with thoughts.

    The name "0" in a path stands for the only entry of a list. If the list has several entries,
    there are no values at the path.
    """
    if not path:
        yield value
        return
    name, *rest = path
    if isinstance(value, list):
        if name == "0":
            if len(value) == 1:
                yield from _texts_at(value[0], tuple(rest))
            return
        for entry in value:
            if isinstance(entry, Mapping) and not entry.get("thought"):
                yield from _texts_at(entry, path)
    elif isinstance(value, Mapping) and value.get(name) is not None:
        yield from _texts_at(value[name], tuple(rest))


def openai_address(url: str) -> tuple[str, str] | None:
    """Return (server, URL of the server's OpenAI-compatible API) for the URL of a native API.

    Return None if the URL does not belong to a native API of the table.
    """
    parts = urlsplit(url)
    for form in _forms():
        is_of_other_host = form.hosts and parts.hostname not in form.hosts
        if form.path is None or is_of_other_host:
            continue
        native = form.path.fullmatch(parts.path)
        if native is not None:
            path = native["before"] + form.openai_path
            return form.server, urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return None
