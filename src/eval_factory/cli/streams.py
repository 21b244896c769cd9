"""The streams that a command writes to: any locale's, closed, or read by somebody who leaves (`| head`)."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO, cast

_STANDARD = (0, 1, 2)


class Lasting(io.TextIOBase):
    """A stream of a run, whose result stands in files: where nobody reads this one, the run goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(ValueError):  # closed
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError:
                silence(self._stream)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's: who writes to it looks which letters it can show."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return not self._stream.closed and self._stream.isatty()


def lasting(stream: TextIO) -> TextIO:
    return cast(TextIO, Lasting(stream))


def silence(stream: TextIO) -> None:
    """Let what is written from now on, and what is still in its buffer, go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def flush_or_silence(stream: TextIO) -> None:
    """Empty the buffer, so that nothing is left that the interpreter would fail to write when it ends."""
    try:
        stream.flush()
    except (OSError, ValueError):
        silence(stream)


def nobody_reads(stream: TextIO) -> bool:
    """Whether the reader of a pipe, or the terminal, is gone."""
    with contextlib.suppress(OSError, ValueError):
        watched = select.poll()
        watched.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in watched.poll(0))
    return False


def make_ready() -> None:
    """Begin again in UTF-8 where the locale has another encoding; open what is closed, so that writing cannot fail.

    Paths, run configs and HELM's files are UTF-8, and a path that is not can be printed and written by nobody.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if not _is_utf_8(sys.getfilesystemencoding()) and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - the same program
    os.environ["PYTHONUTF8"] = "1"  # of helm-run
    os.environ.pop("PYTHONIOENCODING", None)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper) and not _is_utf_8(stream.encoding):
            stream.reconfigure(errors="backslashreplace")


def _is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"
