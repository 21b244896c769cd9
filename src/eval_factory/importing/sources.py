"""Reads files of other programs, which are not trusted.

A file must be a regular file of limited size. Its numbers must be finite, and its names must not
lead out of a folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import UTC_FORMAT
from eval_factory.core.safe_files import LEADS_OUT, is_within, open_regular

MAX_DOCUMENT_BYTES = 2 * 1024**3
"""The maximum size of a file that is read as one JSON document."""
MAX_LINE_BYTES = 64 * 1024**2  # the maximum size of a line of JSON, or of a value in a document
MAX_ENTRIES = 2_000_000  # the maximum number of entries in an archive
MAX_ENTRY_BYTES = 256 * 1024**2  # the maximum size of an unpacked entry, in bytes
MAX_RATIO = 2_000
"""The maximum ratio of an entry's unpacked size to its compressed size. Texts of models have far
smaller ratios; a larger ratio is a sign of a ZIP bomb.
"""
ZSTANDARD = 93
"""The number of the compression method zstd in ZIP files (APPNOTE.TXT 6.3.8, section 4.4.5)."""
_LOCAL_HEADER_BYTES = 30  # without the name and the extra field (APPNOTE.TXT, section 4.3.7)
_LOCAL_HEADER_BEGINS = b"PK\x03\x04"
_CHUNK = 1024**2  # the number of bytes that are read at once
_MAX_ID = 300  # the maximum number of characters of an id
_MAX_NUMBER = 1e100
"""The largest value that is read. No metric has larger values, and their sums would overflow."""
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    NotImplementedError,
    EOFError,
)
"""The exceptions of reading a damaged entry of an archive."""
_UNEXPECTED_FIELD = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError)
"""The exceptions of code that reads a field of an unexpected type."""


class SourceError(PrerequisiteError):
    """Raised if a source cannot be read or cannot be trusted."""


@contextmanager
def unexpected_fields_refused(location: Path | str) -> Iterator[None]:
    """Refuse the source if the code in the context reads a field of an unexpected type.

    `location` names the document in the error message.

    Raises:
        SourceError: the code in the context raised one of the exceptions in `_UNEXPECTED_FIELD`.
    """
    try:
        yield
    except _UNEXPECTED_FIELD as error:
        why = one_line(f"{type(error).__name__}: {error}")
        raise SourceError(
            f"{location}: a field does not have the form in which its program writes it ({why}); "
            "make the file again, or import it as a table"
        ) from error


def refuse_outside_links(folder: Path) -> None:
    """Check that no symbolic link in a folder leads out of the folder.

    Raises:
        SourceError: a link leads out of the folder.
    """
    for path in folder.rglob("*"):
        if path.is_symlink() and not is_within(path, folder):
            raise SourceError(f"{path}: {LEADS_OUT.format(folder=folder)}")


def file_next_to(path: Path, name: str) -> Path | None:
    """Return the file `name` in the folder of `path`; None if there is no such file.

    Raises:
        SourceError: the file is a symbolic link that leads out of the folder.
    """
    file = path.with_name(name)
    if not file.is_file():
        return None
    if not is_within(file, path.parent):
        raise SourceError(f"{file}: {LEADS_OUT.format(folder=path.parent)}")
    return file


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a regular file, in hexadecimal digits.

    `algorithm`: the name of the algorithm in `hashlib`. Raises OSError if the file cannot be read.
    """
    # Without this argument, some builds of Python refuse MD5.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def parse_foreign_json(text: str | bytes, location: str) -> Any:
    """Return a JSON document. NaN, which programs write for "no value", is read as None.

    `location` names the document in the error message.

    Raises:
        SourceError: the text is not JSON, is nested too deeply, or has an infinite number.
    """
    try:
        return json.loads(text, parse_constant=none_for_nan, parse_float=finite_number)
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error))
        raise SourceError(f"{location}: is not JSON that can be read: {reason}") from None


def none_for_nan(name: str) -> None:
    """Return None for the JSON constant NaN.

    Raises:
        ValueError: the constant is infinite.
    """
    if name != "NaN":
        raise ValueError(f"the number {name}")


def finite_number(digits: str) -> float:
    """Return the number with these digits.

    Raises ValueError if the number is not finite: `1e999` is valid JSON, but Python reads it as
    infinity.
    """
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]}")
    return number


def json_document(path: Path) -> Any:
    """Return the document in a JSON file.

    Raises:
        SourceError: the file is missing, too large, not a regular file, or not JSON.
    """
    try:
        with open_regular(path) as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1)  # one more byte shows that the file is larger
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(text) > MAX_DOCUMENT_BYTES:
        raise SourceError(f"{path}: is larger than {MAX_DOCUMENT_BYTES // 1024**2} MiB")
    return parse_foreign_json(text, str(path))


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines. Empty lines are skipped.

    Raises:
        SourceError: a line is not a JSON object or is too long; the message has its number.
    """
    for _, document in json_lines_with_offsets(path):
        yield document


def json_lines_with_offsets(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (offset, object) of each line in a file of JSON lines.

    The offset is the number of bytes before the line.

    Raises:
        SourceError: a line is not a JSON object or is too long; the message has its number.
    """
    with _readable(path) as file:
        number = 0
        offset = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if line.strip():
                yield offset, _object_in(line, f"{path}, line {number}")
            offset += len(line)


def json_lines_at(path: Path, offsets: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the object at each of these offsets, which `json_lines_with_offsets` returned.

    Raises:
        SourceError: a line is not a JSON object or is too long; the message has its offset.
    """
    with _readable(path) as file:
        for offset in offsets:
            file.seek(offset)
            yield _object_in(file.readline(MAX_LINE_BYTES + 1), f"{path}, byte {offset}")


@contextmanager
def _readable(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading. Raises SourceError if the file cannot be read."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _object_in(line: bytes, location: str) -> dict[str, Any]:
    """Return the JSON object in a line. `location` names the line in error messages."""
    if len(line) > MAX_LINE_BYTES:
        raise SourceError(f"{location}: is longer than {MAX_LINE_BYTES // 1024**2} MiB")
    document = parse_foreign_json(line, location)
    if not isinstance(document, dict):
        raise SourceError(f"{location}: is not a JSON object")
    return document


class Archive:
    """A ZIP file with JSON documents, which may be compressed with zstd.

    Python's `zipfile` supports zstd only since version 3.14.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            reason = one_line(str(error))
            raise SourceError(f"{path}: is not a complete ZIP archive: {reason}") from None
        entries = self._zip.infolist()
        if len(entries) > MAX_ENTRIES:
            raise SourceError(f"{path}: has {len(entries)} entries; at most {MAX_ENTRIES} are read")
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise SourceError(f"{path}: has two entries with the same name")

    def names(self) -> list[str]:
        """Return the names of the entries in the order of the archive."""
        return list(self._entries)

    def document(self, name: str) -> Any:
        """Return the JSON document in an entry.

        Raises:
            SourceError: there is no entry of this name, or the entry is damaged or too large.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise SourceError(f"{self._path}: has no entry {name}; is the archive complete?")
        return parse_foreign_json(self._unpacked(entry), f"{self._path}: {one_line(name)}")

    def _unpacked(self, entry: zipfile.ZipInfo) -> bytes:
        """Return the unpacked content of an entry.

        Raises:
            SourceError: the entry is damaged, or the content exceeds the limit.
        """
        location = f"{self._path}: {one_line(entry.filename)}"
        # Small entries may have any ratio: a chunk of text needs little memory.
        limit = min(MAX_ENTRY_BYTES, max(_CHUNK, entry.compress_size * MAX_RATIO))
        if entry.file_size > limit:
            raise SourceError(
                f"{location}: unpacks to {entry.file_size} bytes, which is more than {limit}"
            )
        try:
            if entry.compress_type == ZSTANDARD:
                text = self._zstandard(entry, limit)
            else:
                with self._zip.open(entry) as opened:
                    text = opened.read(limit + 1)  # the check below refuses a longer text
        except _DAMAGED as error:
            raise SourceError(f"{location}: is damaged: {one_line(str(error))}") from None
        if len(text) != entry.file_size:
            raise SourceError(f"{location}: does not unpack to the size that the archive states")
        return text

    def _zstandard(self, entry: zipfile.ZipInfo, limit: int) -> bytes:
        """Return the unpacked content of an entry with zstd, at most `limit` + 1 bytes.

        Raises ValueError if the entry is damaged, and SourceError if the entry has no header.
        """
        import zstandard  # Imported here, because only archives with zstd need this package.

        # An entry consists of its local header, its name, an extra field, and the packed content.
        # The last four bytes of the header state the lengths of the name and of the extra field.
        self._file.seek(entry.header_offset)
        header = self._file.read(_LOCAL_HEADER_BYTES)
        if not header.startswith(_LOCAL_HEADER_BEGINS):
            raise SourceError(f"{self._path}: {one_line(entry.filename)}: has no header")
        name_length = int.from_bytes(header[26:28], "little")
        extra_length = int.from_bytes(header[28:30], "little")
        self._file.seek(name_length + extra_length, os.SEEK_CUR)
        packed = self._file.read(entry.compress_size)
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
                text: bytes = reader.read(limit + 1)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        if zlib.crc32(text) != entry.CRC:
            raise ValueError("its checksum differs")
        return text


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive for reading.

    Raises:
        SourceError: the file is missing, not a regular file, or not a ZIP archive.
    """
    try:
        file = open_regular(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        yield Archive(file, path)


def checked_id(value: Any, location: str) -> str:
    """Check an id, and return it as text. `location` names the sample in error messages.

    An id that is a path out of a folder is refused as a precaution: eval-factory names no file
    after an id, but other programs that read its results may.

    Raises:
        SourceError: the id is empty, unprintable, too long, a path out of a folder, or neither a
            text nor an integer.
    """
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not (isinstance(value, str) or is_integer):
        raise SourceError(f"{location}: its id is neither text nor a whole number")
    text = str(value)
    if not text.strip() or len(text) > _MAX_ID or not text.isprintable():
        raise SourceError(
            f"{location}: its id is empty, unprintable or beyond {_MAX_ID} characters"
        )
    parts = text.replace("\\", "/").split("/")
    if text.startswith(("/", "~")) or ".." in parts:
        raise SourceError(f"{location}: its id {one_line(text)} is a path that leads elsewhere")
    return text


def list_of(value: Any, name: str, location: str) -> list[Any]:
    """Return the value of a field that must be a list; an empty list if the value is None.

    Raises:
        SourceError: the value is not a list.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise SourceError(f"{location}: {name} is not a list")
    return value


def number_or_none(value: Any) -> float | None:
    """Return a number as float; True is 1, False is 0.

    Returns None if the value is not a number, not finite, or larger than `_MAX_NUMBER`.
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        if abs(number) <= _MAX_NUMBER:
            return number
    return None


def utc_time(value: Any) -> str | None:
    """Return an ISO 8601 time in UTC, in the format of results.

    Returns None if the value is not a time or has no time zone.
    """
    try:
        # Python 3.10 does not accept the Z that means UTC.
        moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return moment.astimezone(timezone.utc).strftime(UTC_FORMAT)


def count_or_none(value: Any) -> int | None:
    """Return a value that is an integer from 0 to 2**53 - 1; None for all other values.

    Programs that read the numbers of JSON as floats cannot read larger integers exactly.
    """
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and 0 <= value < 2**53:
        return int(value)
    return None
