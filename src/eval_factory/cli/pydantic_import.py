"""pydantic, imported without what it needs for plug-ins alone: a twelfth of a dry run.

It reads the metadata of every installed package, and imports Python's `importlib.metadata` (with `email`, `zipfile` and
`csv`) for it, also where it is told that there are no plug-ins.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

METADATA = "importlib.metadata"
_LOADER = "pydantic.plugin._loader"
"""The one module that imports it. Where another version of pydantic has none, all is imported as usual."""


def import_pydantic() -> None:
    """For a process that has no other threads yet; does nothing where pydantic or the metadata are imported already."""
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
