"""Finds the differences between a stored file and the same file made again.

Documents (YAML and JSON files, and each line of a file of JSON lines) are compared field by field,
other texts line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from eval_factory.core.plain_yaml import YamlError, parse_own_text
from eval_factory.core.secrets import REDACTED
from eval_factory.report.page.blocks import readable_page

_MAX_SHOWN = 80  # the maximum number of characters of a value in a message


class _Absent:
    """The class of `ABSENT`. Messages show the mark as `nothing`."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()
"""Marks a field, item or line that one of two documents or texts does not have."""


@dataclass(frozen=True)
class Difference:
    """A field or line in which a stored file differs from the file made again."""

    # `results.tasks.x`, or `line 3: latency_s`; empty if the difference concerns the whole file
    field: str
    stored: str  # the value in the stored file, as text
    made: str  # the value in the file made again, as text


def differences_of_files(stored: Path, made: Path) -> Iterator[Difference]:
    """Yield the differences of two files; none if the files are equal byte for byte.

    The suffix of the stored file decides whether both files are compared as YAML, JSON, JSON lines
    or text. A redaction mark in the stored file matches any text.
    """
    stored_bytes = stored.read_bytes()
    made_bytes = made.read_bytes()
    if stored_bytes == made_bytes:
        return
    stored_text = stored_bytes.decode("utf-8", errors="backslashreplace")
    made_text = made_bytes.decode("utf-8", errors="backslashreplace")
    if stored.suffix == ".html":  # Versions of zlib compress the same data to different bytes.
        stored_text = readable_page(stored_text)
        made_text = readable_page(made_text)
    is_different = False
    for difference in _differences_by_suffix(stored.suffix, stored_text, made_text):
        is_different = True
        yield difference
    # Equal documents may still differ as texts: in blanks, or in digits beyond a float's precision.
    # Report the first line that differs, if both texts have this line.
    if not is_different and REDACTED not in stored_text:
        pairs = zip(stored_text.split("\n"), made_text.split("\n"), strict=False)
        for number, (stored_line, made_line) in enumerate(pairs, start=1):
            if stored_line != made_line:
                yield from _text_differences(stored_line, made_line, f"line {number}")
                return


def _differences_by_suffix(suffix: str, stored: str, made: str) -> Iterator[Difference]:
    """Yield the differences of two texts that come from files with this suffix."""
    if suffix in (".yaml", ".yml", ".json"):
        yield from _document_differences(suffix, stored, made)
        return
    pairs = zip_longest(stored.split("\n"), made.split("\n"), fillvalue=ABSENT)
    for number, (stored_line, made_line) in enumerate(pairs, start=1):
        if stored_line is ABSENT or made_line is ABSENT:
            yield Difference(
                f"line {number}", as_message_text(stored_line), as_message_text(made_line)
            )
        elif stored_line != made_line:
            yield from _line_differences(suffix, stored_line, made_line, f"line {number}")


def _document_differences(suffix: str, stored: str, made: str) -> Iterator[Difference]:
    """Yield the differences of two YAML or JSON texts; one difference if `stored` is unreadable.

    Raises an error if `made` is unreadable, because this program has just written that text.
    """
    parse: Any = parse_own_text
    if suffix == ".json":
        parse = json.loads
    try:
        document = parse(stored)
    except (YamlError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        yield Difference(field="", stored=f"cannot be read ({first_line})", made="a document")
        return
    yield from differences_of_documents(document, parse(made))


def _line_differences(suffix: str, stored: str, made: str, line: str) -> Iterator[Difference]:
    """Yield the differences of two lines. In JSON lines, each field that differs is named.

    `line` is the name of the line in messages, such as `line 3`.
    """
    if suffix != ".jsonl":
        yield from _text_differences(stored, made, line)
        return
    try:
        stored_document = json.loads(stored)
        made_document = json.loads(made)
    except ValueError:
        yield from _text_differences(stored, made, line)
        return
    for difference in differences_of_documents(stored_document, made_document):
        field = line
        if difference.field:
            field = f"{line}: {difference.field}"
        yield replace(difference, field=field)


def _text_differences(stored: str, made: str, field: str) -> Iterator[Difference]:
    """Yield the difference of two texts, shown around the first character that differs.

    Yield nothing if the texts are the same apart from redacted parts.
    """
    if not same_text(stored, made):
        # Half of the shown characters are those before the difference.
        begin = max(0, _first_difference(stored, made) - _MAX_SHOWN // 2)
        yield Difference(field, as_message_text(stored[begin:]), as_message_text(made[begin:]))


def _first_difference(stored: str, made: str) -> int:
    """Return the index of the first character that differs.

    Return 0 if one text begins with the other text: messages then show the beginnings of both.
    """
    for index, (stored_character, made_character) in enumerate(zip(stored, made, strict=False)):
        if stored_character != made_character:
            return index
    return 0


def differences_of_documents(stored: Any, made: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences of two documents, each with the path of its field.

    The order of fields does not matter. A list and a tuple with the same items are equal. Other
    values are equal only if they also have the same type: 1 and 1.0 differ. `path` is the path of
    the two values in the complete document.
    """
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        for name in dict.fromkeys([*stored, *made]):
            field = str(name)
            if path:
                field = f"{path}.{name}"
            yield from differences_of_documents(
                stored.get(name, ABSENT), made.get(name, ABSENT), field
            )
    elif isinstance(stored, (list, tuple)) and isinstance(made, (list, tuple)):
        pairs = zip_longest(stored, made, fillvalue=ABSENT)
        for number, (stored_item, made_item) in enumerate(pairs):
            yield from differences_of_documents(stored_item, made_item, f"{path}[{number}]")
    elif isinstance(stored, str) and isinstance(made, str) and same_text(stored, made):
        return
    elif type(stored) is not type(made) or stored != made:
        yield Difference(path, as_message_text(stored), as_message_text(made))


def same_text(stored: str, made: str) -> bool:
    """Return True if two texts are equal. A redaction mark in `stored` matches any text."""
    if stored == made or REDACTED not in stored:
        return stored == made
    # The mark stands for any text: `key [API_KEY_REDACTED] of` matches `key abc of`.
    pattern = ".*?".join(map(re.escape, stored.split(REDACTED)))
    return re.fullmatch(pattern, made, re.DOTALL) is not None


def as_message_text(value: Any) -> str:
    """Return a value as text for a message; ` ...` follows if the text is cut.

    A text is cut after `_MAX_SHOWN` characters.
    """
    if isinstance(value, str):
        text = value
    elif value is ABSENT:
        text = repr(value)
    else:
        text = json.dumps(value, default=str)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN]} ..."
