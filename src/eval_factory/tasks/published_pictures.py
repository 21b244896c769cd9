"""Published sets of questions about pictures: how a row names its pictures, and the converters of short answers.

A picture is known by its content: its file is named by the SHA-256, ends as its type says, and holds the published
bytes. One at a time is in memory.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval_factory.endpoint.media import MAX_FILE, UnusableMedium, picture_type
from eval_factory.tasks.choice_question import ChoiceQuestion, DataRow, RowFaultError, cell_text, groups_of, is_blank


class Pictures:
    """Of one published file; each is looked through once."""

    def __init__(self, column: str, archive: zipfile.ZipFile | None, folder: Path | None) -> None:
        """
        Args:
            column: a picture's name in the archive, a list of names, or an object with the picture's `bytes`; "" where
                the questions have no pictures.
            folder: where files are made; None: nothing is written.
        """
        self._column, self._archive, self._folder = column, archive, folder
        listed = [one for one in archive.infolist() if not one.is_dir()] if archive else []
        # the one folder around all may have any name
        self._members = {one.filename.partition("/")[2]: one for one in listed if "/" in one.filename}
        self._members |= {one.filename: one for one in listed}
        self._files: dict[str, str] = {}
        """Name in the archive, or SHA-256 -> file name."""

    def of(self, row: DataRow) -> tuple[str, ...]:
        """Their file names. Raises RowFaultError: one is not there, or is none that can be sent."""
        if not self._column:
            return ()
        cell = row.get(self._column)
        found = tuple(map(self._file_of, cell if isinstance(cell, list) else [cell]))
        if not found:
            raise self._fault("names no picture")
        return found

    def _fault(self, reason: str) -> RowFaultError:
        return RowFaultError(self._column, reason)

    def _file_of(self, cell: Any) -> str:
        if isinstance(cell, str) and self._archive is not None:
            if cell not in self._files:
                self._files[cell] = self._kept(self._member(cell))
            return self._files[cell]
        data = cell.get("bytes") if isinstance(cell, Mapping) else None
        if not isinstance(data, bytes):
            raise self._fault("holds no picture")
        return self._kept(data)

    def _member(self, name: str) -> bytes:
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise self._fault("leaves the folder of the pictures")
        archive, info = self._archive, self._members.get(name)
        if archive is None or info is None:
            raise self._fault("names a picture that is not in the archive")
        if info.file_size > MAX_FILE:
            raise self._fault(f"names a file of more than {MAX_FILE >> 20} MiB")
        try:
            return archive.read(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise self._fault(f"names a picture that the archive does not give: {type(error).__name__}") from None

    def _kept(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._files:
            try:
                kind = picture_type(data, "the picture")
            except UnusableMedium as fault:
                raise self._fault(str(fault)) from None
            self._files[digest] = f"{digest}.{kind.partition('/')[2]}"
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / self._files[digest]).write_bytes(data)
        return self._files[digest]


@contextmanager
def opened_pictures(column: str, archive: Path | None, folder: Path | None) -> Iterator[Pictures]:
    """`archive`: a zip file, None where rows hold pictures or have none. Raises ValueError: it cannot be opened."""
    if archive is None:
        yield Pictures(column, None, folder)
        return
    try:
        opened = zipfile.ZipFile(archive)
    except FileNotFoundError:
        raise ValueError(f"there is no {archive.name}, which holds its pictures") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{archive.name}, which holds its pictures, is no usable zip file: {error}") from None
    with opened:
        yield Pictures(column, opened, folder)


def slake_question(row: DataRow) -> ChoiceQuestion:
    """SLAKE (Liu et al. 2021, arXiv 2102.09542): a question in English or Chinese, and its short answer."""
    groups = groups_of(row, ("answer_type", "modality", "location", "q_lang"))
    image = "" if is_blank(row.get("img_id")) else str(row["img_id"])
    name = "" if is_blank(row.get("qid")) else str(row["qid"])
    answer = cell_text(row, "answer")
    return ChoiceQuestion(name, cell_text(row, "question"), (answer,), 0, groups, ("img_id", image) if image else None)


def path_vqa_question(row: DataRow) -> ChoiceQuestion:
    """PathVQA (He et al. 2020, arXiv 2003.10286), and VQA-RAD in the same form: a question and its short answer."""
    answer = cell_text(row, "answer")
    groups = {"answer_type": "closed" if answer.lower() in ("yes", "no") else "open"}
    return ChoiceQuestion("", cell_text(row, "question"), (answer,), 0, groups)
