"""yaml, imported without a pattern that its reader in Python has: to compile it is a twentieth of a dry run.

Files are read by libyaml, where PyYAML was built with it; the pattern is compiled when somebody uses the other reader.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

_READER = "yaml.reader"
_ITS_OWN = "\U0010ffff"
"""Stands in this pattern alone: of the characters that a file may hold, up to the last one of Unicode."""


def import_yaml() -> None:
    """For a process that has no other threads yet; does nothing where yaml is imported already."""
    if "yaml" in sys.modules:
        return
    at_once = re.compile

    def compiled(pattern: Any, *flags: Any) -> Any:
        later = isinstance(pattern, str) and _ITS_OWN in pattern
        return _Later(pattern) if later else at_once(pattern, *flags)

    re.compile = compiled  # type: ignore[assignment]
    try:
        import_module(_READER)
    finally:
        re.compile = at_once


class _Later:
    """A pattern, compiled when it is looked for."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def search(self, text: str) -> re.Match[str] | None:
        return re.search(self._pattern, text)
