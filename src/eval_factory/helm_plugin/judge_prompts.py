"""Which prompts the judges of this helm-run were asked with: the templates' hashes, for the result's provenance.

They stand in a file of their own: the annotations of an answer that every judge rated are HELM's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from eval_factory.helm_plugin.record_file import RecordFile

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
