"""Files that somebody else may have made: regular ones alone, and of a folder those that lie in it.

A folder with results, or a suite, comes from anybody. A link in it could show a reader a file of the reader's own, and
a FIFO or a device could keep the reader waiting for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from eval_factory.core.errors import PrerequisiteError

MAX_BYTES = 16 * 1024**3
MAX_BYTES_OF_YAML = 256 * 1024**2
"""A document is read in one piece."""
LEADS_OUT = "leads out of the folder {folder}"
NOT_REGULAR = "is no regular file"
TOO_LARGE = "is larger than any file that eval-factory writes"

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # to open a FIFO must not wait for its writer


def open_regular(path: Path, inside: Path | None = None) -> BinaryIO:
    """A regular file, open for reading; nothing is read of anything else.

    Args:
        inside: the folder that it has to lie in, wherever links lead; anywhere if not given.

    Raises:
        OSError: there is none, it is something else, or it lies elsewhere; `strerror` says which.
    """
    if inside is not None and not is_within(path, inside):
        raise OSError(errno.EPERM, LEADS_OUT.format(folder=inside), str(path))
    descriptor = os.open(path, _FLAGS) if inside is None else os.open(os.path.realpath(path), _FLAGS | os.O_NOFOLLOW)
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


def is_within(path: Path, folder: Path) -> bool:
    """Whether a path leads to the folder, or into it, when all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def foreign_files(folder: Path, paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """What is not to be read, and why, of these paths in the folder and of all below them.

    A link to a file or folder in the folder is none of it; neither is one that leads nowhere.
    """
    base, seen = os.path.realpath(folder), set[tuple[int, int]]()
    left = [(path, True) for path in reversed(list(paths))]
    while left:
        path, may_lead_out = left.pop()
        try:
            found = path.stat()
        except OSError:  # not there
            continue
        if may_lead_out and not Path(os.path.realpath(path)).is_relative_to(base):
            yield path, LEADS_OUT.format(folder=folder)
        elif stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) not in seen:  # links may lead in a circle
                seen.add((found.st_dev, found.st_ino))
                with os.scandir(path) as entries:
                    left += [(Path(entry.path), entry.is_symlink()) for entry in entries]
        elif not stat.S_ISREG(found.st_mode):
            yield path, NOT_REGULAR
        elif found.st_size > (MAX_BYTES_OF_YAML if path.suffix in (".yaml", ".yml") else MAX_BYTES):
            yield path, TOO_LARGE


def refuse_foreign(folder: Path, paths: Iterable[Path]) -> None:
    """
    Raises:
        PrerequisiteError: a path is one of `foreign_files`; with all of them.
    """
    found = [f"{path}: {why}, so it was not read" for path, why in foreign_files(folder, paths)]
    if found:
        raise PrerequisiteError("\n".join([*found, "  put the file itself there, or have the folder from a copy"]))
