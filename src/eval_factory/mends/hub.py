"""Which Hugging Face data sets a helm-run loaded, at which revision: written down for the result's provenance."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.mends import lazy
from eval_factory.rundir import write_atomic

_loaded: dict[tuple[str, str], dict[str, str]] = {}
_pinned: dict[str, str] = {}
_lock = threading.Lock()


def pin(revisions: Mapping[str, str]) -> None:
    """Read these data sets at these revisions, where HELM names none."""
    _pinned.update(revisions)


def note_what_is_loaded() -> None:
    """From now on; `datasets` itself is imported when a scenario uses it."""
    lazy.when_imported("datasets", _watch)


def _watch() -> None:
    import datasets.load

    build = datasets.load.load_dataset_builder
    if getattr(build, "is_watched", False):
        return

    def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("revision") is None and str(path) in _pinned:
            kwargs["revision"] = _pinned[str(path)]
        builder = build(path, *args, **kwargs)
        folder = str(builder.cache_dir)
        entry = {"id": str(path), "config": str(builder.config.name), "revision": Path(folder).name, "folder": folder}
        with _lock:
            _loaded[(entry["id"], entry["config"])] = entry
        return builder

    noting.is_watched = True  # type: ignore[attr-defined]
    datasets.load.load_dataset_builder = noting


def write_down(file: Path) -> None:
    """The data sets loaded so far; nothing is written where there were none."""
    with _lock:
        entries = [_loaded[key] for key in sorted(_loaded)]
    if entries:
        write_atomic(file, json.dumps(entries, indent=2) + "\n")
