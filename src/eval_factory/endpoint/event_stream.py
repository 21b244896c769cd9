"""Reads answers that a server streams without being asked to: some gateways always stream.

The events have the form of the HTML standard, section 9.2, as OpenAI's API sends them: each event
is a JSON chunk, and the last event is `[DONE]`. In another form (JSON lines, as Ollama's own API
streams) each line is a chunk. This module joins the chunks to a complete answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eval_factory.endpoint import native_answers

CONTENT_TYPE = "text/event-stream"
LINES_TYPES = frozenset({"application/x-ndjson", "application/jsonl", "application/json-lines"})
"""The media types of JSON lines."""
DONE = "[DONE]"
BEGINNING_SIZE = 1_024
"""The number of bytes at the beginning of a body that show whether the body is a stream."""
_LINE_END = re.compile(r"\r\n|\n|\r")
_NEXT_LINE = re.compile(rb"\}\r?\n\{")
"""Finds the position where a JSON document ends and the next one begins.

Within a single document, a comma separates `}` and `{`.
"""
_EVENT_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b": ")  # the last begins a comment
_JOINED_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a message whose texts are joined, chunk by chunk."""
_COPIED_FIELDS = (
    "id",
    "created",
    "model",
    "usage",
    "system_fingerprint",
    native_answers.CONVERTED_FROM,
)
"""Fields of an answer whose last value in the stream counts."""


class StreamCutError(ValueError):
    """The stream ends before the answer is complete."""


def is_stream(content_type: str, data: bytes) -> bool:
    """Return True if a body is a stream, by its Content-Type or by its beginning."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == CONTENT_TYPE or media_type in LINES_TYPES:
        return True
    beginning = data[:BEGINNING_SIZE].lstrip()
    return beginning.startswith(_EVENT_BEGINNINGS) or _NEXT_LINE.search(beginning) is not None


def _events(text: str) -> Iterator[str]:
    """Yield the data of each event, in the order of the stream."""
    lines: list[str] = []
    # Do not use `splitlines`, which also splits at other characters; an answer may hold these.
    for line in _LINE_END.split(text):
        if not line:
            if lines:
                yield "\n".join(lines)
            lines = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            lines.append(value.removeprefix(" "))
    if lines:
        yield "\n".join(lines)


def _are_chunks(lines: Sequence[str]) -> bool:
    """Return True if several lines are chunks, each of them a JSON object of its own.

    A single document may have line breaks too, but then not every line begins with `{` and ends
    with `}`.
    """
    possible_chunks = []
    for line in lines:
        if line.strip() != DONE:
            possible_chunks.append(line)
    return len(possible_chunks) > 1 and all(
        line.startswith("{") and line.rstrip().endswith("}") for line in possible_chunks
    )


def _without_comments(text: str) -> str:
    """Return the text without the comments at its beginning.

    Gateways send comments to keep a connection alive.
    """
    remaining = text.lstrip()
    while remaining.startswith(":"):
        _, _, following = remaining.partition("\n")
        remaining = following.lstrip()
    return remaining


def answer_in(text: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Join the chunks of a stream, and return the answer.

    A text that is a single JSON object is parsed and returned. If a chunk is an error object, or
    holds an error object, only that chunk is returned.

    Args:
        text: the complete body.
        parse: reads the JSON of one chunk. Its errors are passed on.

    Raises:
        StreamCutError: the stream ends before the answer is complete: `DONE` is missing, and not
            every choice has a finish reason.
    """
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    is_over = False
    text_without_comments = _without_comments(text).strip()
    if text_without_comments.startswith("{"):
        lines = [line for line in _LINE_END.split(text_without_comments) if line.strip()]
        if not _are_chunks(lines):
            return dict(parse(text_without_comments))
        events = iter(lines)
    else:
        events = _events(text)
    for event in events:
        if event.strip() == DONE:
            is_over = True
            break
        chunk = parse(event)
        if not isinstance(chunk, Mapping):
            continue
        chunk = native_answers.in_openai_form(chunk) or chunk
        if chunk.get("error"):
            return dict(chunk)
        if "choices" not in chunk and chunk.get("message"):
            return {"error": dict(chunk)}  # the chunk itself is an error object
        for name in _COPIED_FIELDS:
            if chunk.get(name) is not None:
                answer[name] = chunk[name]
        chunk_choices = chunk.get("choices")
        if not isinstance(chunk_choices, list):
            continue
        for chunk_choice in chunk_choices:
            if isinstance(chunk_choice, Mapping):
                _add_to_choices(choices, chunk_choice)
    are_finished = bool(choices) and all(choice["finish_reason"] for choice in choices.values())
    if not (is_over or are_finished):
        raise StreamCutError
    answer["choices"] = [choices[index] for index in sorted(choices)]  # in the order of the indices
    return answer


def _add_to_choices(choices: dict[int, dict[str, Any]], chunk_choice: Mapping[str, Any]) -> None:
    """Append the texts of a chunk's choice to the choice with the same index.

    Args:
        choices: the choices so far, by index.
        chunk_choice: the choice of the chunk. Without a whole number as its index, the index is 0.
    """
    index = chunk_choice.get("index")
    if type(index) is not int:
        index = 0
    choice = choices.setdefault(index, {"index": index, "finish_reason": None})
    choice["finish_reason"] = chunk_choice.get("finish_reason") or choice["finish_reason"]
    if chunk_choice.get("error"):
        choice["error"] = chunk_choice["error"]
    if isinstance(chunk_choice.get("text"), str):
        choice["text"] = choice.get("text", "") + chunk_choice["text"]
    delta = chunk_choice.get("delta") or chunk_choice.get("message")
    if not isinstance(delta, Mapping):
        # An empty delta belongs to a chat, and a chat's answer has a message even without text.
        if "delta" in chunk_choice:
            choice.setdefault("message", {"role": "assistant", "content": ""})
        return
    message = choice.setdefault("message", {"role": "assistant", "content": ""})
    for name in _JOINED_FIELDS:
        if isinstance(delta.get(name), str):
            message[name] = message.get(name, "") + delta[name]
