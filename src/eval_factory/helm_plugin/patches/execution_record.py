"""How what a model answered was executed in this run, and what came in its way: written down for the result."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.rundir import write_atomic

ENDED, SHORTENED = "ended", "shortened"
"""Counts: answers that ended the process that executed them; queries that got less time than the others."""

_known: dict[str, Any] = {}
_files: list[Path] = []
_lock = threading.Lock()


def begin(run_specs: Iterable[str], by: Sequence[str], still_can: Sequence[str] = ()) -> None:
    """Of this helm-run, beside the run specs that were said before: nothing is written where nothing is executed."""
    with _lock:
        known = {*_known.get("run_specs", ()), *run_specs}
        _known.update(run_specs=sorted(known), by=list(by), still_can=list(still_can))


def write_down(file: Path) -> None:
    """Now, and again whenever something is counted; what an earlier run wrote there is no longer true."""
    with _lock:
        _files[:] = [file]
        if _known:
            _write()
        else:
            file.unlink(missing_ok=True)


def count(what: str) -> None:
    with _lock:
        _known[what] = _known.get(what, 0) + 1
        if _files:
            _write()


def _write() -> None:
    write_atomic(_files[0], json.dumps(_known, indent=2) + "\n")
