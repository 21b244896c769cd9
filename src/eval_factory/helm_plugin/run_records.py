"""What helm-run writes down of itself for the result, in a file that always holds the latest.

Which prompts the judges of this helm-run were asked with: the templates' hashes, for the result's provenance.

They stand in a file of their own: the annotations of an answer that every judge rated are HELM's.

How what a model answered was executed in this run, and what came in its way: written down for the result.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic


class RecordFile:
    """One such file. Whoever changes what it holds does so with `lock` held, and calls `changed`."""

    def __init__(self, document: Callable[[], Mapping[str, Any]]) -> None:
        """
        Args:
            document: what the file is to hold; nothing is written as long as that is empty.
        """
        self.lock = threading.Lock()
        self.file: Path | None = None
        """Where it is; None until somebody says so."""
        self._document = document

    def write_down(self, file: Path) -> None:
        """Now, and again whenever something changes; what an earlier run wrote there is no longer true."""
        with self.lock:
            self.file = file
            if self._document():
                self.changed()
            else:
                file.unlink(missing_ok=True)

    def changed(self) -> None:
        if self.file is not None:
            write_atomic(self.file, json.dumps(self._document(), indent=2) + "\n")


_known: dict[str, set[str]] = {}
"""Annotator -> the templates of its prompts."""


def _hashes() -> dict[str, list[str]]:
    return {
        annotator: sorted(hashlib.sha256(template.encode()).hexdigest() for template in templates)
        for annotator, templates in _known.items()
    }


_record = RecordFile(_hashes)


def write_down(file: Path) -> None:
    _record.write_down(file)


def note(annotator: str, template: str) -> None:
    """Judges were asked with this template, which holds neither a question nor an answer."""
    with _record.lock:
        known = _known.setdefault(annotator, set())
        if template not in known:
            known.add(template)
            _record.changed()


ENDED, SHORTENED = "ended", "shortened"
"""Counts: answers that ended the process that executed them; queries that got less time than the others."""

_known_of_execution_record: dict[str, Any] = {}
_record_of_execution_record = RecordFile(lambda: _known_of_execution_record)


def begin(run_specs: Iterable[str], by: Sequence[str]) -> None:
    """Of this helm-run, beside the run specs that were said before: nothing is written where nothing is executed."""
    with _record_of_execution_record.lock:
        known = {*_known_of_execution_record.get("run_specs", ()), *run_specs}
        _known_of_execution_record.update(run_specs=sorted(known), by=list(by))


def count(what: str) -> None:
    with _record_of_execution_record.lock:
        _known_of_execution_record[what] = _known_of_execution_record.get(what, 0) + 1
        _record_of_execution_record.changed()
