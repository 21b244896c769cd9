"""How what a model answered was executed in this run, and what came in its way: written down for the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eval_factory.helm_plugin.record_file import RecordFile

ENDED, SHORTENED = "ended", "shortened"
"""Counts: answers that ended the process that executed them; queries that got less time than the others."""

_known: dict[str, Any] = {}
_record = RecordFile(lambda: _known)


def begin(run_specs: Iterable[str], by: Sequence[str]) -> None:
    """Of this helm-run, beside the run specs that were said before: nothing is written where nothing is executed."""
    with _record.lock:
        known = {*_known.get("run_specs", ()), *run_specs}
        _known.update(run_specs=sorted(known), by=list(by))


def write_down(file: Path) -> None:
    _record.write_down(file)


def count(what: str) -> None:
    with _record.lock:
        _known[what] = _known.get(what, 0) + 1
        _record.changed()
