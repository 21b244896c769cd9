"""Files that a reader finds old or new and never in part: written beside, brought to the disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

PUBLIC = 0o644
MOST_THREADS = 8

_together: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_together", default=None)
"""(what was written, the name that it gets), in their order."""


@contextmanager
def atomic_file(path: Path, *, mode: int = PUBLIC) -> Iterator[TextIO]:
    """A file to write to, so that a reader sees the old file or the new one, never a part.

    The user's umask takes away from `mode`, as from every other file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    others = _together.get()
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            if others is None:
                os.fsync(file.fileno())
        if others is None:
            temporary.replace(path)
        else:
            others.append((temporary, path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, text: str | Iterable[str], *, mode: int = PUBLIC) -> None:
    """Write `text`, whole or in parts, as `atomic_file` does."""
    with atomic_file(path, mode=mode) as file:
        file.writelines([text] if isinstance(text, str) else text)


@contextmanager
def renamed_together() -> Iterator[None]:
    """Files that are written inside, in this thread, get their names at its end, in the order in which they came.

    All are on the disk before: it is waited for once, and not for each file. Where anything fails the old files stay.
    """
    written: list[tuple[Path, Path]] = []
    token = _together.set(written)
    try:
        yield
        _bring_to_the_disk([temporary for temporary, _ in written])
        for temporary, path in written:
            temporary.replace(path)
    finally:
        _together.reset(token)
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _bring_to_the_disk(files: list[Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    if files:
        with ThreadPoolExecutor(min(MOST_THREADS, len(files))) as pool:
            list(pool.map(_synchronize, files))


def _synchronize(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
