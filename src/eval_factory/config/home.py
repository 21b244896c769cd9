"""`~` at the beginning of a path, where no shell has replaced it: in a file, after `--option=`, in quotes."""

from __future__ import annotations

import os


def expanded(text: str) -> str:
    """The path with the home folder in place of `~` or `~user`.

    Raises:
        ValueError: nobody knows that home; a folder that is named so would be made otherwise.
    """
    path = os.path.expanduser(text)
    if path.startswith("~") and path == text:
        whose = text.partition("/")[0]
        known = "there is no home folder" if whose == "~" else f"there is no user {whose[1:]!r}"
        raise ValueError(f"{known} for {whose!r} to stand for; write ./{text} for a path that begins so")
    return path
