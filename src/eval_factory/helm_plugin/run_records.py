"""What helm-run writes down of itself for the result's provenance, each in a file that always holds the latest."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic

EXECUTION_ENDED, SHORTENED = "ended", "shortened"
"""Counts: answers that ended the process that executed them; queries that got less time than the others."""


class RunRecord:
    """One such file; nothing is written as long as there is nothing to say."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.file: Path | None = None
        """Where it is; None until somebody says so."""
        self._lock = threading.Lock()

    def document(self) -> Mapping[str, Any]:
        return self.known

    def write_down(self, file: Path) -> None:
        """Now, and again whenever something changes; what an earlier run wrote there is no longer true."""
        with self._lock:
            self.file = file
            if self.known:
                self._changed()
            else:
                file.unlink(missing_ok=True)

    def _changed(self) -> None:
        if self.file is not None:
            write_atomic(self.file, json.dumps(self.document(), indent=2) + "\n")


class JudgePrompts(RunRecord):
    """Annotator -> hashes of the templates that its judges were asked with: an annotation holds HELM's fields alone."""

    def document(self) -> Mapping[str, Any]:
        return {
            annotator: sorted(hashlib.sha256(template.encode()).hexdigest() for template in templates)
            for annotator, templates in self.known.items()
        }

    def note(self, annotator: str, template: str) -> None:
        """`template` holds neither a question nor an answer."""
        with self._lock:
            known = self.known.setdefault(annotator, set())
            if template not in known:
                known.add(template)
                self._changed()


class CodeExecution(RunRecord):
    """How what a model answered was executed, and what came in its way."""

    def begin(self, run_specs: Iterable[str], by: Sequence[str]) -> None:
        """Of this helm-run, beside run specs that were noted before: nothing is written where nothing is executed."""
        with self._lock:
            self.known.update(run_specs=sorted({*self.known.get("run_specs", ()), *run_specs}), by=list(by))

    def count(self, what: str) -> None:
        with self._lock:
            self.known[what] = self.known.get(what, 0) + 1
            self._changed()


judge_prompts, code_execution = JudgePrompts(), CodeExecution()
