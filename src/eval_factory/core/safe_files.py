"""Writes files that are always complete, and reads files that other people may have made.

A file is written under a temporary name, synchronized to the disk, and then renamed: a reader sees
the old file or the new file, never a part. A folder with results may come from an untrusted person.
A link in it could lead to a private file of the reader, and a FIFO or device could block the reader
forever. Therefore only regular files inside the folder are read.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from eval_factory.core.errors import PrerequisiteError

_PUBLIC = 0o644

_together: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_together", default=None)
"""(temporary path, final path) of the files inside `rename_together`, in order; None outside."""


@contextmanager
def atomic_file(path: Path, *, mode: int = _PUBLIC) -> Iterator[TextIO]:
    """Yield a file to write to; a reader sees the old file or the new file, never a part.

    Args:
        path: the path of the file.
        mode: the permissions of the file, reduced by the user's umask as for every file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    together = _together.get()
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if together is None:
            temporary.replace(path)
        else:
            together.append((temporary, path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, text: str | Iterable[str], *, mode: int = _PUBLIC) -> None:
    """Write a text, or several pieces of text, as `atomic_file` does."""
    with atomic_file(path, mode=mode) as file:
        file.writelines([text] if isinstance(text, str) else text)


@contextmanager
def rename_together() -> Iterator[None]:
    """Rename all files that this thread writes inside the context only at the end of the context.

    All new files are complete on the disk before the first is renamed. They are renamed in the
    order in which they were written. If the context fails, all old files stay.
    """
    written: list[tuple[Path, Path]] = []
    token = _together.set(written)
    try:
        yield
        for temporary, path in written:
            temporary.replace(path)
    finally:
        _together.reset(token)
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


# limits of the sizes of files, in bytes
MAX_BYTES = 16 * 1024**3  # the limit of any file
MAX_BYTES_OF_TABLE = 4 * 1024**3  # the limit of a user's own table or JSON lines
MAX_BYTES_OF_TEXT = 256 * 1024**2  # the limit of a file that is read into memory at once
MAX_BYTES_OF_YAML = 256 * 1024**2  # the limit of a YAML file, which is read into memory at once
LEADS_OUT = "leads out of the folder {folder}"
NOT_REGULAR = "is not a regular file"
_TOO_LARGE = "is larger than any file that eval-factory writes"

# O_NONBLOCK: the opening of a FIFO must not wait for a writer
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def open_regular(path: Path, inside: Path | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: the path of the file.
        inside: the folder that must contain the file, also after links are followed; None: any
            folder.

    Raises:
        OSError: the file does not exist, is not a regular file, or is not in the folder; `strerror`
            states the reason.
    """
    if inside is not None and not is_within(path, inside):
        raise OSError(errno.EPERM, LEADS_OUT.format(folder=inside), str(path))
    if inside is None:
        descriptor = os.open(path, _FLAGS)
    else:
        # The real path contains no link: O_NOFOLLOW fails if a link was made after the check.
        descriptor = os.open(os.path.realpath(path), _FLAGS | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_text(
    path: Path,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    newline: str | None = None,
    max_size: int = MAX_BYTES,
) -> TextIO:
    """Open a regular file for reading text.

    Args:
        path: the path of the file.
        encoding: as in `open`.
        errors: as in `open`.
        newline: as in `open`.
        max_size: the maximum size of the file in bytes.

    Raises:
        OSError: the file does not exist, is not a regular file, or is too large; `strerror` states
            the reason.
    """
    file = _open_bounded(path, max_size)
    return io.TextIOWrapper(file, encoding=encoding, errors=errors, newline=newline)


def read_text(path: Path, *, encoding: str = "utf-8", max_size: int = MAX_BYTES_OF_TEXT) -> str:
    """Return the text of a regular file.

    Raises OSError as `open_text` does, and UnicodeDecodeError.
    """
    with open_text(path, encoding=encoding, max_size=max_size) as file:
        return file.read()


def read_bytes(path: Path, max_size: int = MAX_BYTES_OF_TEXT) -> bytes:
    """Return the content of a regular file. Raises OSError as `open_text` does."""
    with _open_bounded(path, max_size) as file:
        return file.read()


def _open_bounded(path: Path, max_size: int) -> BinaryIO:
    """Open a regular file for reading. Raises OSError if it has more than `max_size` bytes."""
    file = open_regular(path)
    if os.fstat(file.fileno()).st_size > max_size:
        file.close()
        raise OSError(errno.EFBIG, f"is larger than {max_size >> 20} MiB", str(path))
    return file


def is_within(path: Path, folder: Path) -> bool:
    """Return True if a path is the folder, or is inside it, after all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def foreign_files(folder: Path, paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield (path, reason) of each file that must not be read, among these paths and below them.

    A link is yielded only if it leads out of the folder, or to a file that must not be read. A
    broken link is not yielded.

    Args:
        folder: the folder that must contain all files.
        paths: files and folders in the folder.
    """
    real_folder = os.path.realpath(folder)
    seen = set[tuple[int, int]]()  # (device, inode) of each folder that was searched
    # (path, True if it may lead out of the folder); only a passed path or a link may lead out.
    # Reversed, because `pop` takes the last entry.
    pending = [(path, True) for path in reversed(list(paths))]
    while pending:
        path, may_lead_out = pending.pop()
        try:
            status = path.stat()
        except OSError:  # the path does not exist, or is a broken link
            continue
        if may_lead_out and not Path(os.path.realpath(path)).is_relative_to(real_folder):
            yield path, LEADS_OUT.format(folder=folder)
        elif stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) not in seen:  # links may form a circle
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(path) as entries:
                    pending += [(Path(entry.path), entry.is_symlink()) for entry in entries]
        elif not stat.S_ISREG(status.st_mode):
            yield path, NOT_REGULAR
        elif status.st_size > _max_size_of(path):
            yield path, _TOO_LARGE


def _max_size_of(path: Path) -> int:
    """Return the largest size of a file that eval-factory may have written, in bytes."""
    if path.suffix in (".yaml", ".yml"):
        return MAX_BYTES_OF_YAML
    return MAX_BYTES


def refuse_foreign(folder: Path, paths: Iterable[Path]) -> None:
    """Raise PrerequisiteError if `foreign_files` yields any file; the message lists all of them."""
    lines = [f"{path}: {why}, so it was not read" for path, why in foreign_files(folder, paths)]
    if lines:
        raise PrerequisiteError(
            "\n".join([*lines, "  put the file itself there, or restore the folder from a copy"])
        )


# the largest integer in JSON: Python refuses to convert much larger ones to text
MAX_INTEGER_BITS = 8_192


def parse_json(text: str | bytes) -> Any:
    """Return the value in a JSON text.

    Raises:
        ValueError: the text is not JSON, a number is infinite or NaN, or an object has a repeated
            key (JSON readers differ in which value they use).
    """
    return json.loads(
        text,
        parse_constant=_refuse_number,
        parse_float=finite_number,
        object_pairs_hook=_object_of_different_keys,
    )


def _object_of_different_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a mapping. Raises ValueError if a key is repeated."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("an object has a repeated key")
    return entries


def _refuse_number(text: str) -> Any:
    """Raise ValueError: the number is infinite or NaN."""
    raise ValueError(f"{text} is not a finite number")


def finite_number(text: str) -> float:
    """Return the number in a text. Raises ValueError if it is too large for a float."""
    value = float(text)
    if math.isinf(value):
        _refuse_number(text[:20])
    return value


_ESCAPED = (
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Matches characters that some readers treat as line breaks (U+0085, U+2028, U+2029), control and
format characters, and lone surrogates. The pattern is compiled at its first use, because the
compilation takes a millisecond.
"""


# made once, because making an encoder is slow
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_line(value: Any) -> str:
    """Return a value as JSON without line breaks.

    Numbers that JSON cannot represent (NaN, Infinity), and integers that are too large for readers,
    become null. Special characters are escaped; a reader gets the original text back.

    Raises RecursionError if the value is nested too deeply.
    """
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_readable(value))
    if text.isascii() and "\x7f" not in text:
        return text
    # The escape of a character is its JSON without the two quotes.
    return re.sub(_ESCAPED, lambda match: json.dumps(match[0])[1:-1], text)


def _readable(value: Any) -> Any:
    """Return a value with None for each number that JSON readers cannot read."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, int):
        if value.bit_length() <= MAX_INTEGER_BITS:
            return value
        return None
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    return value


# Linux's limits of a file name and of a path, in bytes
_MAX_NAME = 255
_MAX_PATH = 4095


def expand_home(text: str) -> str:
    """Return a path with `~` or `~user` replaced by the home folder.

    Raises ValueError if the home folder is not known (otherwise a folder with the name `~user`
    would be made), or if the path is too long.
    """
    longest_name = max(len(os.fsencode(name)) for name in text.split("/"))
    if len(os.fsencode(text)) > _MAX_PATH or longest_name > _MAX_NAME:
        raise ValueError(f"is too long for a path ({_MAX_NAME} bytes a name, {_MAX_PATH} in all)")
    path = os.path.expanduser(text)
    if path.startswith("~") and path == text:  # the home folder is not known
        whose = text.partition("/")[0]
        unknown = "there is no home folder" if whose == "~" else f"there is no user {whose[1:]!r}"
        raise ValueError(f"{unknown}; write ./{text} for a path that begins with {whose!r}")
    return path


def refuse_full_disk(folder: Path) -> None:
    """Raise PrerequisiteError if less than 1 MiB can be written to a folder.

    This is checked before the first request, because an answer that cannot be written would be paid
    for and lost.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise PrerequisiteError(
            f"cannot write {folder}: {error.strerror}\n"
            "  make room there, then run the same command again"
        ) from error
