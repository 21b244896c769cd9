"""SuiteDir.events: what happened to the cells of a suite, of one invocation after another, a JSON object a line."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from eval_factory.core.rundir import PRIVATE, SuiteDir
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor
from eval_factory.workflows.suite.suite_observer import SuiteObserver

SUITE_STARTED, SUITE_ENDED = "suite_started", "suite_ended"
CELL_STARTED, CELL_ENDED = "cell_started", "cell_ended"
ENDPOINT_PAUSED, ENDPOINT_BACK = "endpoint_paused", "endpoint_back"


class SuiteJournal:
    """Writes events, each with one `write` so that a reader sees whole lines, and tells them to whoever looks on."""

    def __init__(self, folder: SuiteDir, redactor: Redactor, observer: SuiteObserver) -> None:
        self._path, self._log = folder.events, folder.log
        self._redactor, self._observer = redactor, observer
        self._invocation = uuid.uuid4().hex
        self._end_half_a_line()

    def tell(self, event: str, **fields: Any) -> None:
        """Redacted; written before anybody is told."""
        told: Any = self._redactor.tree(fields)
        record = {"time": time.time(), "event": event, "invocation": self._invocation, **told}
        self._append(json_line(record))
        self._observer.on_event(record)

    def say(self, text: str) -> None:
        """A line that is no event, to who looks on and to the suite's log."""
        shown = self._redactor.text(text)
        self._observer.say(shown)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError), os.fdopen(_opened(self._log), "a", encoding="utf-8") as log:
            log.write(f"{stamp} {shown}\n")

    def tick(self) -> None:
        self._observer.tick()

    def _append(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the cells' own folders say what is finished
            descriptor = _opened(self._path)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)

    def _end_half_a_line(self) -> None:
        """What a full disk or a power cut left of a last line is not to swallow the next."""
        with contextlib.suppress(OSError):
            with self._path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            if not whole:
                self._append("")


def _opened(path: os.PathLike[str]) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)


def cell_fields(cell: Any) -> Mapping[str, str]:
    """How an event names a cell."""
    return {"target": cell.target, "evaluation": cell.evaluation}
