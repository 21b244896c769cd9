"""Reads, checks and writes the pictures of published multiple-choice benchmarks."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval_factory.endpoint.media import MAX_FILE, UnusableMedium, picture_type
from eval_factory.tasks.choice_question import DataRow, RowFaultError


class Pictures:
    """The pictures of one published file.

    Each picture is checked once, and written once if there is a folder for the files.
    """

    def __init__(self, column: str, archive: zipfile.ZipFile | None, folder: Path | None) -> None:
        """
        Args:
            column: the column of the pictures. A cell is a picture's name in the archive, a list of
                names, or an object with the picture's `bytes`. "" if questions have no pictures.
            archive: the ZIP file with the pictures; None if the table holds the pictures.
            folder: the folder to which pictures are written; None: nothing is written.
        """
        self._column = column
        self._archive = archive
        self._folder = folder
        self._members = {} if archive is None else _members_by_name(archive)
        self._file_names: dict[str, str] = {}
        """A dict from a picture's name in the archive to the name of the picture's file. A picture
        also has its SHA-256 as a key.
        """

    def of(self, row: DataRow) -> tuple[str, ...]:
        """Return the file names of a row's pictures; empty if the questions have no pictures.

        Raises RowFaultError if a picture is missing or cannot be sent to a model.
        """
        if not self._column:
            return ()
        cell = row.get(self._column)
        entries = cell if isinstance(cell, list) else [cell]
        if not entries:
            raise self._fault("names no picture")
        return tuple(self._file_name_of(entry) for entry in entries)

    def _fault(self, reason: str) -> RowFaultError:
        """Return an error for the caller to raise, about the cell of the pictures."""
        return RowFaultError(self._column, reason)

    def _file_name_of(self, entry: Any) -> str:
        """Return the file name of a picture. Raises RowFaultError as `of`.

        `entry`: a cell, or an entry of the list in a cell.
        """
        if isinstance(entry, str) and self._archive is not None:
            if entry not in self._file_names:
                picture = self._content_of_member(entry, self._archive)
                self._file_names[entry] = self._stored_as(picture)
            return self._file_names[entry]
        content = entry.get("bytes") if isinstance(entry, Mapping) else None
        if not isinstance(content, bytes):
            raise self._fault("holds no picture")
        return self._stored_as(content)

    def _content_of_member(self, name: str, archive: zipfile.ZipFile) -> bytes:
        """Return the content of a file in the archive. Raises RowFaultError if it is not usable."""
        is_absolute = name.startswith("/") or "\\" in name
        if is_absolute or ".." in name.split("/"):
            raise self._fault("leaves the folder of the pictures")
        member = self._members.get(name)
        if member is None:
            raise self._fault("names a picture that is not in the archive")
        if member.file_size > MAX_FILE:
            raise self._fault(f"names a file of more than {MAX_FILE >> 20} MiB")
        try:
            return archive.read(member)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            OSError,
        ) as error:
            raise self._fault(
                f"names a picture that cannot be read from the archive: {type(error).__name__}"
            ) from None

    def _stored_as(self, picture: bytes) -> str:
        """Return the file name of a picture.

        A new picture is checked first, and then written if there is a folder for the files. Raises
        RowFaultError if the picture cannot be sent to a model.
        """
        digest = hashlib.sha256(picture).hexdigest()
        if digest not in self._file_names:
            try:
                media_type = picture_type(picture, "the picture")
            except UnusableMedium as fault:
                raise self._fault(str(fault)) from None
            extension = media_type.removeprefix("image/")
            self._file_names[digest] = f"{digest}.{extension}"
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / self._file_names[digest]).write_bytes(picture)
        return self._file_names[digest]


def _members_by_name(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return a dict from the names that a cell may use for a picture to the archive's members.

    All pictures may be in one top folder of any name, which the cells do not state. So a member has
    two names: with and without its top folder.
    """
    members = [member for member in archive.infolist() if not member.is_dir()]
    by_name = {}
    for member in members:
        if "/" in member.filename:
            by_name[member.filename.partition("/")[2]] = member
    # Complete names are added last, because they take precedence.
    for member in members:
        by_name[member.filename] = member
    return by_name


@contextmanager
def opened_pictures(column: str, archive: Path | None, folder: Path | None) -> Iterator[Pictures]:
    """Open the pictures of a published file.

    Args:
        column: the column of the pictures; "" if questions have no pictures.
        archive: the ZIP file with the pictures; None if the rows hold the pictures or have none.
        folder: the folder to which pictures are written; None: nothing is written.

    Raises:
        ValueError: the ZIP file cannot be opened.
    """
    if archive is None:
        yield Pictures(column, archive=None, folder=folder)
        return
    try:
        opened = zipfile.ZipFile(archive)
    except FileNotFoundError:
        raise ValueError(f"there is no {archive.name}, which holds its pictures") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{archive.name}, which holds its pictures, is not a usable zip file: {error}"
        ) from None
    with opened:
        yield Pictures(column, archive=opened, folder=folder)
