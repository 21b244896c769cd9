"""Makes foreign text safe for screens, logs and pages.

Foreign text is text that eval-factory did not write: an endpoint's error, HELM's output, a value of
a data set. An escape sequence in foreign text can rewrite a terminal, a line break can imitate a
line of eval-factory, and an error often quotes the request. Foreign text is therefore shown on one
line, shortened, with printable characters only and without quotes of the prompt. This module never
changes the model's answers, because these are data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

MAX_FOREIGN_TEXT = 500  # the limit of a shown foreign text, in characters
MAX_LOG_LINE = 10_000  # in characters
READ_FACTOR = 16
"""The number of characters that are read for each character that is shown.

More characters are read than shown, because white space and tags are removed.
"""

NO_MESSAGE = "an error without a message"
QUOTED_PROMPT = "[text of the prompt]"  # replaces a quote of the prompt
SHORTEST_QUOTE = 24
"""A text that is both in the line and in the prompt is a quote if it has at least this length, in
characters.
"""
_PIECE = SHORTEST_QUOTE // 2  # the length of the pieces that `_without_quotes` searches for
_MAX_DEPTH = 6
"""The maximum number of nested levels of an error object in which a message is searched."""

_MAX_MESSAGES = 3  # the number of messages that are read from a list of errors

_TEXT_FIELDS = (
    "message",
    "msg",
    "error_description",
    "error_msg",
    "status_msg",
    "detail",
    "error",
    "errors",
    "base_resp",
    "header",
    "Response",
    "ResponseMetadata",
    "Error",
    "Message",
    "title",
    "fault",
    "faultstring",
    "errorMessage",
)
"""The JSON keys of an error's text, and of the objects that contain it, at various servers: OpenAI,
FastAPI, Qianfan, MiniMax, iFlytek, Tencent, Volcengine, Apigee, AWS Lambda and others.
"""
_MESSAGE_FIELDS = (*_TEXT_FIELDS, "code", "type")


def printable(text: str) -> str:
    """Return the text with an escape such as `\\x1b` for each character that is not printable.

    Such characters are control characters, format characters, bidi marks and line breaks.
    """
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if character.isprintable():
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode("ascii"))
    return "".join(characters)


def one_line(text: str, limit: int = MAX_FOREIGN_TEXT, *, prompt: Iterable[str] = ()) -> str:
    """Return a foreign text on one line, printable, and shortened.

    Args:
        text: the text, without secrets: a secret that is cut or escaped could not be redacted
            later.
        limit: the maximum length in characters.
        prompt: the texts of the request; quotes of these texts are replaced by `QUOTED_PROMPT`.
    """
    line = " ".join(text[: READ_FACTOR * limit].split())
    for request_text in prompt:
        line = _without_quotes(line, " ".join(request_text.split()))
    return printable(line)[:limit]


def printable_lines(text: str) -> str:
    """Return eval-factory's own text of several lines, with each line made printable.

    Line breaks stay. Foreign text in the lines must therefore not contain line breaks.
    """
    return "\n".join(printable(line) for line in text.split("\n"))


def message_or_default(document: Any) -> str:
    """Return the message of an error object, else its code or type, else `NO_MESSAGE`.

    The path of a refused field, and the message that a gateway passes on from a provider, are
    returned with the message. Other parts of the object are not, because they may contain the
    request.
    """
    return _message(document, _MAX_DEPTH) or NO_MESSAGE


def message_in(document: Any) -> str | None:
    """Return the message of an error object; None if the object has only a code or a type."""
    return _message(document, _MAX_DEPTH, _TEXT_FIELDS)


def _message(value: Any, depth: int, fields: tuple[str, ...] = _MESSAGE_FIELDS) -> str | None:
    """Return the message in a JSON value; `depth` is the maximum number of nested levels."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        for name in fields:
            message = _message(value.get(name), depth - 1, fields)
            if message:
                return _with_origin(message, value)
        return None
    if isinstance(value, (list, tuple)):
        messages = []
        for item in value[:_MAX_MESSAGES]:
            message = _message(item, depth - 1, fields)
            if message:
                messages.append(message)
        return "; ".join(messages) or None
    return None


_LOCATION_PARTS = 6  # the number of parts of a field's path that are shown
_PASSED_ON = "Provider returned error"
"""OpenRouter's message for an error of a provider, whose own message is in `metadata.raw`."""


def _with_origin(message: str, error: Mapping[str, Any]) -> str:
    """Return the message, with the field's path (pydantic) or the provider's own message if the
    error has one of these.
    """
    location = error.get("loc")
    if isinstance(location, list) and location:
        return f"{'.'.join(map(str, location[:_LOCATION_PARTS]))}: {message}"
    metadata = error.get("metadata")
    if message == _PASSED_ON and isinstance(metadata, Mapping):
        words = metadata.get("raw")
        if isinstance(words, str) and words.strip():
            return f"{message}: {words.strip()}"
    return message


def without_html(text: str) -> str:
    """Return the text of a response that is not JSON, without HTML tags.

    Escaped line breaks and tabs (`\\n`) become blanks. A long response is cut.
    """
    start = text[: READ_FACTOR * MAX_FOREIGN_TEXT]
    if "<" in start and ">" in start:
        # A tag, such as `<h1>`. The limit bounds the time for a text with many `<`.
        start = re.sub(r"<[^<>]{0,2000}>", " ", start)
    return re.sub(r"\\[nrt]", " ", start)


def with_each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return nested mappings and lists with `change` applied to every text, including keys.

    Tuples become lists.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (dict, Mapping)):  # `dict` first: the check for Mapping is slow
        return {
            with_each_text(key, change): with_each_text(item, change) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [with_each_text(item, change) for item in value]
    return value


def texts_in(tree: Any) -> Iterator[str]:
    """Yield every text among the values of nested mappings and lists."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (Mapping, list, tuple)):
        items = tree.values() if isinstance(tree, Mapping) else tree
        for item in items:
            yield from texts_in(item)


def _without_quotes(line: str, prompt: str) -> str:
    """Return the line with quotes of the prompt replaced by `QUOTED_PROMPT`.

    The line is cut into pieces of half `SHORTEST_QUOTE`. Each quote contains at least one complete
    piece, so only the pieces are searched for in the prompt. A piece that occurs there is then
    extended in both directions.
    """
    if len(prompt) < _PIECE:
        return line
    if len(prompt) < SHORTEST_QUOTE:
        # A short prompt counts as a quote only if it is quoted completely.
        return line.replace(prompt, QUOTED_PROMPT)
    position = 0
    copied = 0  # the position up to which the line is in `parts`
    parts = []
    while position + _PIECE <= len(line):
        start = position
        end = position + _PIECE
        position = end
        if line[start:end] in prompt:
            # Large steps first: few comparisons find (nearly) the longest text that the line and
            # the prompt share.
            for step in (256, 32, 4, 1):
                while end + step <= len(line) and line[start : end + step] in prompt:
                    end += step
                while start - step >= copied and line[start - step : end] in prompt:
                    start -= step
            if end - start >= SHORTEST_QUOTE:
                # The blanks at both ends of a quote stay in the line.
                quote = line[start:end]
                blanks = quote[: len(quote) - len(quote.lstrip())]
                parts += [line[copied:start], blanks, QUOTED_PROMPT]
                copied = start + len(quote.rstrip())
                position = end
    return "".join([*parts, line[copied:]])
