"""What a look at a user's files found, and how a file that cannot be read is spoken of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eval_factory.errors import ConfigError


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
    if text.startswith("\ufeff"):
        raise ConfigError(f"{path}: begins with a byte order mark, which would be asked too; save it as UTF-8 without")
    return text


def unreadable(path: Path, error: OSError, what: str, named_in: Path) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{path}: there is no such file; {named_in} names it as {what} (relative to its own folder)")
    return ConfigError(f"{path}: cannot be read: {error.strerror} ({named_in} names it as {what})")


def not_utf8(path: Path) -> ConfigError:
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
