"""Reads a JSON object from a file value by value.

Only one element of a list is in memory at a time, so a list may be larger than memory.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.safe_files import open_regular
from eval_factory.importing.sources import (
    MAX_DOCUMENT_BYTES,
    MAX_LINE_BYTES,
    SourceError,
    finite_number,
    none_for_nan,
)

_CHUNK_BYTES = 1024**2  # the minimum size of a chunk, in bytes; only the last chunk may be smaller
_SPACES = " \t\n\r"  # the characters that JSON allows between values
_AFTER_A_VALUE = frozenset([*_SPACES, ",", ":", "]", "}"])
"""The characters that can follow a complete value."""


class _JsonText:
    """A JSON text that is read from a file in chunks.

    An instance has a position in the text, at which the next value is read. When the next chunk is
    read, the text before the position is dropped.

    Every method that reads raises SourceError if the file is too large or is not UTF-8.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._decoder = json.JSONDecoder(parse_constant=none_for_nan, parse_float=finite_number)
        self._text = ""  # the decoded chunks that were not dropped
        self._position = 0  # an index in `_text`
        self._is_complete = False  # True after the last chunk was read
        self._bytes = 0  # the number of bytes that were read

    def error(self, reason: str) -> SourceError:
        """Return an error for the caller to raise; `reason` states why the file cannot be read."""
        return SourceError(f"{self._path}: is not JSON that can be read: {one_line(reason)}")

    def _read_more(self) -> None:
        """Read the next chunk of the file, and drop the text before the position."""
        # After each chunk, the method `value` parses a long value again from its beginning. A chunk
        # is therefore as long as the text so far: a few chunks are then enough.
        size = max(_CHUNK_BYTES, len(self._text) - self._position)
        content = self._file.read(size)
        self._bytes += len(content)
        if self._bytes > MAX_DOCUMENT_BYTES:
            raise SourceError(f"{self._path}: is larger than {MAX_DOCUMENT_BYTES // 1024**2} MiB")
        # A read from a regular file returns fewer bytes only at the end of the file.
        self._is_complete = len(content) < size
        try:
            self._text = self._text[self._position :] + self._decode(
                content, final=self._is_complete
            )
        except UnicodeDecodeError as error:
            raise self.error(str(error)) from None
        self._position = 0

    def next_character(self) -> str:
        """Move past white space, and return the character at the position.

        An empty text is returned at the end of the file.
        """
        while True:
            while self._position < len(self._text) and self._text[self._position] in _SPACES:
                self._position += 1
            if self._position < len(self._text):
                return self._text[self._position]
            if self._is_complete:
                return ""
            self._read_more()

    def skip(self, character: str) -> None:
        """Move past this character.

        Raises:
            SourceError: the text has another character at the position.
        """
        if self.next_character() != character:
            raise self.error(f"expected {character}; is the file complete?")
        self._position += 1

    def value(self) -> Any:
        """Return the JSON value at the position, and move past the value.

        Raises:
            SourceError: there is no valid value, or the value is longer than `MAX_LINE_BYTES`.
        """
        self.next_character()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:  # the value may continue in the next chunk
                if self._is_complete:
                    raise self.error(str(error)) from None
            # JSONDecodeError is a ValueError too, so this clause must come second. A longer text
            # would not help here: a number is infinite, or the value has too many levels.
            except (ValueError, RecursionError) as error:
                raise self.error(str(error)) from None
            else:
                # A number at the end of a chunk may continue in the next chunk: `1.5` and `e3`.
                if self._is_complete or self._text[end : end + 1] in _AFTER_A_VALUE:
                    self._position = end
                    return value
            if len(self._text) - self._position > MAX_LINE_BYTES:
                limit = MAX_LINE_BYTES // 1024**2
                raise self.error(f"a value is damaged, or longer than {limit} MiB")
            self._read_more()


@contextmanager
def _opened(path: Path) -> Iterator[_JsonText]:
    """Open a regular file as a JSON text. Raises SourceError if the file cannot be read."""
    try:
        with open_regular(path) as file:
            yield _JsonText(file, path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _elements(text: _JsonText) -> Iterator[Any]:
    """Yield the values of the list at the position. A comma after the last value is accepted."""
    text.skip("[")
    while text.next_character() != "]":
        yield text.value()
        if text.next_character() != "]":
            text.skip(",")
    text.skip("]")


def _keys(text: _JsonText) -> Iterator[str]:
    """Yield the keys of the object at the position. A comma after the last value is accepted.

    The caller must read the value of each key before the next key.

    Raises:
        SourceError: a key is not a text or occurs twice, or the object is malformed.
    """
    text.skip("{")
    keys = set()
    while text.next_character() != "}":
        key = text.value()
        if not isinstance(key, str):
            raise text.error("a key is not a text")
        if key in keys:
            raise text.error(f"the key {key} occurs twice")
        keys.add(key)
        text.skip(":")
        yield key
        if text.next_character() != "}":
            text.skip(",")
    text.skip("}")


def object_without_lists(path: Path, list_keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the JSON object in a file. The lists under the keys `list_keys` are empty.

    The elements of these lists are read, and so checked, but not returned. Returns None if the
    document in the file is not an object.

    Raises:
        SourceError: the file cannot be read, or the document is malformed or incomplete.
    """
    with _opened(path) as text:
        if text.next_character() != "{":
            return None
        document: dict[str, Any] = {}
        for key in _keys(text):
            if key in list_keys and text.next_character() == "[":
                document[key] = []
                for _dropped in _elements(text):
                    pass
            else:
                document[key] = text.value()
        if text.next_character():
            raise text.error("there is text after the end of the document")
        return document


def value_in(path: Path, key: str) -> Any:
    """Return the value under a key of the JSON object in a file.

    Returns None if the object does not have the key, or if the document in the file is not an
    object. The text after the value is not read.

    Raises:
        SourceError: the file cannot be read up to the value.
    """
    with _opened(path) as text:
        if text.next_character() != "{":
            return None
        for next_key in _keys(text):
            value = text.value()
            if next_key == key:
                return value
    return None


def elements_of(path: Path, key: str) -> Iterator[Any]:
    """Yield the elements of the list under a key of the JSON object in a file.

    Yields nothing if the object does not have the key, or if the value under the key is null. The
    text after the list is not read.

    Raises:
        SourceError: the file cannot be read up to the end of the list, the document is not an
            object, or the value is not a list.
    """
    with _opened(path) as text:
        for next_key in _keys(text):
            if next_key == key and text.next_character() == "[":
                yield from _elements(text)
                return
            value = text.value()
            if next_key == key and value is not None:
                raise SourceError(f"{path}: {key} is not a list")
