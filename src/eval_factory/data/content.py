"""Whether a download is what its name says: the only question that can be asked where no hash is known."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SQLITE_HEADER = b"SQLite format 3\0"
PAGE_BEGINNINGS = (b"<!doctype html", b"<html")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Blob:
    """A file as git knows it: its size in bytes, and the SHA-1 of its object."""

    size: int
    sha1: str

    def problem_of(self, path: Path) -> str | None:
        """Why a file is another one; None where it is not."""
        content = path.read_bytes()
        if len(content) != self.size:
            return f"{len(content)} of {self.size} bytes came"
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return None if found == self.sha1 else f"its content is not what is listed (git {found}, listed is {self.sha1})"


def is_page(path: Path) -> bool:
    """Whether it begins as a web page does."""
    with path.open("rb") as file:
        beginning = file.read(1024)
    return beginning.removeprefix(BYTE_ORDER_MARK).lstrip().lower().startswith(PAGE_BEGINNINGS)


def problem_of(path: Path, name: str) -> str | None:
    """Why the content of `path` is none for a file named `name`; None where nothing is wrong with it."""
    if path.stat().st_size == 0:
        return "it is empty"
    look = KINDS.get(Path(name).suffix.lower())
    return None if look is None else look(path)


def _zip_problem(path: Path) -> str | None:
    """Office documents are zip files too. Every member is read: each has a checksum."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except Exception as error:  # zlib's, struct's, a password's: it cannot be used in any case
        return f"is no zip file that can be used: {error}"
    return None if damaged is None else f"is no zip file that can be used: {damaged!r} in it is damaged"


def _json_problem(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            json.load(file)
    except (ValueError, RecursionError) as error:
        return f"is no JSON, or not all of it came: {error}"
    return None


def _sqlite_problem(path: Path) -> str | None:
    with path.open("rb") as file:
        if file.read(len(SQLITE_HEADER)) != SQLITE_HEADER:
            return "is no SQLite database"
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            ((found,), *_) = database.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        found = str(error)
    return None if found == "ok" else f"is a damaged SQLite database, or not all of it came: {found}"


KINDS: dict[str, Callable[[Path], str | None]] = {
    ".zip": _zip_problem, ".docx": _zip_problem, ".xlsx": _zip_problem,
    ".json": _json_problem, ".sqlite": _sqlite_problem,
}  # fmt: skip
"""By a file's suffix. Files of the Hub are read whole by the `datasets` package when they are prepared."""
