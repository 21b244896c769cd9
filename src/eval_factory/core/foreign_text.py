"""Makes foreign text safe for screens, logs and pages.

Foreign text is text that eval-factory did not write: an endpoint's error, HELM's output, a value of
a data set. An escape sequence in it can rewrite a terminal, a line break can imitate a line of
eval-factory, and an error often quotes the request. Foreign text is therefore shown on one line,
shortened, with printable characters only and without quotes of the prompt. The model's answers are
data and are never changed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

MAX_FOREIGN_TEXT = 500  # the limit of a shown foreign text, in characters
MAX_LOG_LINE = 10_000  # in characters
READ_FACTOR = 16
"""The number of characters that are read for each character that is shown: white space and tags
take space that the shown text does not have.
"""

NO_MESSAGE = "an error without a message"
QUOTED_PROMPT = "[text of the prompt]"  # replaces a quote of the prompt
SHORTEST_QUOTE = 24  # the length from which a common text counts as a quote, in characters
_PIECE = SHORTEST_QUOTE // 2

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
    letters = (
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
    return "".join(letters)


def one_line(text: str, limit: int = MAX_FOREIGN_TEXT, *, prompt: Iterable[str] = ()) -> str:
    """Return a foreign text on one line, printable, and shortened.

    Args:
        text: the text, without secrets: a secret that is cut or escaped could not be redacted
            later.
        limit: the maximum length in characters.
        prompt: the texts of the request; quotes of these texts are replaced by `QUOTED_PROMPT`.
    """
    line = " ".join(text[: READ_FACTOR * limit].split())
    for question in prompt:
        line = _without_quotes(line, " ".join(question.split()))
    return printable(line)[:limit]


def own_lines(text: str) -> str:
    """Return a text of several lines with each line made printable.

    Line breaks stay, so foreign text in the lines must not contain any.
    """
    return "\n".join(printable(line) for line in text.split("\n"))


def message_or_default(document: Any) -> str:
    """Return the message of an error object, or `NO_MESSAGE`.

    Other parts of the object are not returned, because they may contain the request.
    """
    return _message(document, 6) or NO_MESSAGE


def message_in(document: Any) -> str | None:
    """Return the text of an error object; None if it has no text (for example only a code)."""
    return _message(document, 6, _TEXT_FIELDS)


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
        messages = [message for item in value[:3] if (message := _message(item, depth - 1, fields))]
        return "; ".join(messages) or None
    return None


_LOCATION_PARTS = 6  # the number of parts of a field's path that are shown
_PASSED_ON = "Provider returned error"
"""The message of OpenRouter; the provider's own message is in `metadata`."""


def _with_origin(message: str, error: Mapping[str, Any]) -> str:
    """Return a message together with the field's path (pydantic) or the provider's own message."""
    location = error.get("loc")
    if isinstance(location, list) and location:
        return f"{'.'.join(map(str, location[:_LOCATION_PARTS]))}: {message}"
    metadata = error.get("metadata")
    if message == _PASSED_ON and isinstance(metadata, Mapping):
        words = metadata.get("raw")
        if isinstance(words, str) and words.strip():
            return f"{message}: {words.strip()}"
    return message


def plain(text: str) -> str:
    """Return the text of a response that is not JSON, without HTML tags.

    Escaped line breaks and tabs (`\\n`) become blanks. A long response is cut.
    """
    start = text[: READ_FACTOR * MAX_FOREIGN_TEXT]
    if "<" in start and ">" in start:
        start = re.sub(r"<[^<>]{0,2000}>", " ", start)
    return re.sub(r"\\[nrt]", " ", start)


def with_each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a tree of mappings and lists with `change` applied to every text, including keys."""
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
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            yield from texts_in(item)


def _without_quotes(line: str, prompt: str) -> str:
    """Return the line with quotes of the prompt replaced by `QUOTED_PROMPT`.

    The line is cut into pieces of half the length of a quote. Each quote contains at least one
    complete piece, so only the pieces are searched for in the prompt. A piece that occurs there is
    then extended in both directions.
    """
    if len(prompt) < SHORTEST_QUOTE:
        return line.replace(prompt, QUOTED_PROMPT) if len(prompt) >= _PIECE else line
    position = 0
    copied = 0  # the position up to which the line is in `parts`
    parts = []
    while position + _PIECE <= len(line):
        start = position
        end = position + _PIECE
        if line[start:end] in prompt:
            # Large steps first: few comparisons find (nearly) the longest common text.
            for step in (256, 32, 4, 1):
                while end + step <= len(line) and line[start : end + step] in prompt:
                    end += step
                while start - step >= copied and line[start - step : end] in prompt:
                    start -= step
            if end - start >= SHORTEST_QUOTE:
                quote = line[start:end]
                parts += [
                    line[copied:start],
                    quote[: len(quote) - len(quote.lstrip())],
                    QUOTED_PROMPT,
                ]
                copied = start + len(quote.rstrip())
        position = max(end, position + _PIECE)
    return "".join([*parts, line[copied:]])
