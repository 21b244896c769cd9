"""The problems that were found in a user's files, and the messages about a file that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval_factory.core.errors import ConfigError

_SHEET = "text; save it as 'CSV UTF-8' (a prompt: as plain text in UTF-8)"
_UTF_16 = ("is UTF-16", "UTF-8; save it as UTF-8 (or: iconv -f utf-16 -t utf-8)")
_KINDS = {
    b"PK\x03\x04": ("is an Excel or Word file or another ZIP archive", _SHEET),
    b"\xd0\xcf\x11\xe0": ("is an Excel or Word file", _SHEET),
    b"PAR1": ("is a Parquet file", _SHEET),
    b"\x1f\x8b": ("is compressed by gzip", "text; unpack it first"),
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}
"""First bytes -> what such a file is, and what it is to be instead."""


MOST_PROBLEMS_SHOWN = 10
"""Of one file."""


def shortened(problems: Sequence[str], where: str = "", inside: str = "it") -> list[str]:
    """The first of them, and how many more there are.

    Args:
        where: what that line begins with, such as the file where the others name it.
    """
    more = len(problems) - MOST_PROBLEMS_SHOWN
    return [*problems[:MOST_PROBLEMS_SHOWN], *([f"{where}{more} more mistakes in {inside}"] if more > 0 else [])]


@dataclass
class Findings:
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_text(path: Path, what: str, named_in: Path) -> str:
    """Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(path, error, what, named_in) from None
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ConfigError(f"{path}: line {line}: holds a NUL character (a byte that is 0)")
    if text.startswith("\ufeff"):
        raise ConfigError(
            f"{path}: begins with a byte order mark, which would become part of the prompt; save as UTF-8 without one"
        )
    return text


def unreadable(path: Path, error: OSError, what: str, named_in: Path) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{path}: there is no such file; {named_in} names it as {what} (relative to its own folder)")
    return ConfigError(f"{path}: cannot be read: {error.strerror} ({named_in} names it as {what})")


def other_kind(path: Path) -> str | None:
    """What a file is that is no text in UTF-8, told by its first bytes, in words that end with what to do instead."""
    with path.open("rb") as file:
        beginning = file.read(8)
    return next((f"{kind}, not {then}" for magic, (kind, then) in _KINDS.items() if beginning.startswith(magic)), None)


def not_utf8(path: Path) -> ConfigError:
    kind = other_kind(path)
    if kind:
        return ConfigError(f"{path}: {kind}")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return ConfigError(
                    f"{path}: line {number}: is not UTF-8; save the file as UTF-8"
                    " (of a latin-1 file: iconv -f latin1 -t utf-8)"
                )
    return ConfigError(f"{path}: is not UTF-8")
