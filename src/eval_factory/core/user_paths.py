"""Paths as users give them: `~` where no shell has replaced it (in a file, after `--option=`), and names too long.

And the folder in which a user's programs cache.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""In bytes: what Linux takes of a part of a path, and of a whole one."""


def expanded(text: str) -> str:
    """The path with the home folder in place of `~` or `~user`.

    Raises:
        ValueError: nobody knows that home; a folder that is named so would be made otherwise. Or it is too long.
    """
    if len(os.fsencode(text)) > LONGEST_PATH or any(len(os.fsencode(p)) > LONGEST_NAME for p in text.split("/")):
        raise ValueError(f"is too long for a path ({LONGEST_NAME} bytes a name, {LONGEST_PATH} in all)")
    path = os.path.expanduser(text)
    if path.startswith("~") and path == text:
        whose = text.partition("/")[0]
        unknown = "there is no home folder" if whose == "~" else f"there is no user {whose[1:]!r}"
        raise ValueError(f"{unknown}; write ./{text} for a path that begins with {whose!r}")
    return path


def cache_folder(env: Mapping[str, str]) -> Path:
    """Of this program, by the XDG Base Directory Specification: a relative XDG_CACHE_HOME is none."""
    given = Path(env.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path(env.get("HOME") or Path.home()) / ".cache") / "eval-factory"
