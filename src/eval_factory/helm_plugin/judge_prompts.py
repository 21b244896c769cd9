"""Which prompts the judges of this helm-run were asked with: the templates' hashes, for the result's provenance.

They stand in a file of their own: the annotations of an answer that every judge rated are HELM's.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

from eval_factory.core.rundir import write_atomic

_lock = threading.Lock()
_known: dict[str, set[str]] = {}
"""Annotator -> the templates of its prompts."""
_files: list[Path] = []


def write_down(file: Path) -> None:
    """Now, and again whenever there is another one; what an earlier run wrote there is no longer true."""
    with _lock:
        _files[:] = [file]
        if _known:
            _write()
        else:
            file.unlink(missing_ok=True)


def note(annotator: str, template: str) -> None:
    """Judges were asked with this template, which holds neither a question nor an answer."""
    with _lock:
        known = _known.setdefault(annotator, set())
        if template not in known:
            known.add(template)
            if _files:
                _write()


def _write() -> None:
    hashes = {
        annotator: sorted(hashlib.sha256(template.encode()).hexdigest() for template in templates)
        for annotator, templates in _known.items()
    }
    write_atomic(_files[0], json.dumps(hashes, indent=2) + "\n")
