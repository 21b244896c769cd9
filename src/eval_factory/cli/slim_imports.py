"""What reads configurations, imported without what it has for others alone: a tenth of a dry run.

pydantic reads the metadata of every installed package for its plug-ins, and imports Python's `importlib.metadata` (with
`email`, `zipfile` and `csv`) for it, also where it is told that there are none. yaml compiles a large pattern for its
reader in Python; libyaml reads the files, where PyYAML was built with it.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

METADATA = "importlib.metadata"
_LOADER = "pydantic.plugin._loader"
"""The one module that imports it. Where another version of pydantic has none, all is imported as usual."""
_READER = "yaml.reader"
_ITS_OWN = "\U0010ffff"
"""Stands in this pattern alone: of the characters that a file may hold, up to the last one of Unicode."""


def import_slim() -> None:
    """pydantic and yaml, for a process that has no other threads yet."""
    import_pydantic()
    import_yaml()


def import_pydantic() -> None:
    """Does nothing where pydantic or the metadata are imported already."""
    if METADATA in sys.modules or "pydantic" in sys.modules:
        return
    later = ModuleType(METADATA)
    later.entry_points = _entry_points  # type: ignore[attr-defined]
    sys.modules[METADATA] = later
    try:
        import_module(_LOADER)
    except ImportError:
        pass
    finally:
        del sys.modules[METADATA]


def _entry_points(**wanted: Any) -> Any:
    """Python's own, imported when it is asked: by somebody who allows plug-ins all the same."""
    return import_module(METADATA).entry_points(**wanted)


def import_yaml() -> None:
    """Does nothing where yaml is imported already."""
    if "yaml" in sys.modules:
        return
    at_once = re.compile

    def compiled(pattern: Any, flags: int = 0) -> Any:
        later = isinstance(pattern, str) and _ITS_OWN in pattern
        return _Later(pattern) if later else at_once(pattern, flags)

    re.compile = compiled
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
