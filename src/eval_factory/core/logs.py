"""Writes eval-factory's log, and the events of helm-run in logs/events.jsonl.

Each event is a JSON object on one line. The progress display and the collector read the events.
Lines are only appended, each by a single `write` call. A reader therefore sees complete lines, but
the last line may be incomplete and without a newline.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor

# the names of events in logs/events.jsonl
PHASE = "phase"
PROGRESS = "progress"
RUN_DONE = "run_done"
RUN_FAILED = "run_failed"
FATAL = "fatal"
REFUSED = "refused"  # eval-factory cannot evaluate the run entry
WARNING = "warning"
MEASURED = "measured"  # the requests of a run were counted for an estimate, and not sent
# the run stopped asking, because its limit of cost, requests, tokens or time was reached
LIMIT_REACHED = "limit_reached"
BATCHES_AWAITED = "batches_awaited"  # the run waits for the answers of batches
BLOCKED = "blocked"  # an offline run tried to contact a host that is not an endpoint's

# the phases of a run
LOADING = "loading data"
ASKING = "asking the model"
JUDGING = "judging"
SCORING = "scoring"

UNREACHABLE = "unreachable"
REFUSED_BY_ENDPOINT = "refused"
"""The `kind` of an event `FATAL`: an endpoint does not answer, or rejects all requests. (The event
`REFUSED` has the same word, but is not about an endpoint.)
"""

_PROGRESS_INTERVAL_S = 0.5
_STOPS = "eval-factory stops"  # the start of helm-run's last line on standard error


class EventWriter:
    """Appends redacted events to a file; several threads may use one writer."""

    def __init__(self, path: Path, run_id: str, redactor: Redactor) -> None:
        """Open the file `path`, and make it if it does not exist."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=PRIVATE)
        self._redactor = redactor
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._run_id = run_id
        self._last_progress = 0.0

    def emit(self, event: str, **fields: Any) -> None:
        """Write an event with its redacted fields."""
        safe = self._redactor.redact_tree(fields)
        line = json_line({"time": time.time(), "run_id": self._run_id, "event": event, **safe})
        # If the disk is full, the event is lost: the run goes on and reports its own error.
        with self._lock, contextlib.suppress(OSError):
            self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def progress(self, *, final: bool = False, **fields: Any) -> None:
        """Write a progress event, but at most one in `_PROGRESS_INTERVAL_S`.

        Args:
            final: True if the event is always written.
            fields: the fields of the event.
        """
        now = time.monotonic()
        if final or now - self._last_progress >= _PROGRESS_INTERVAL_S:
            self._last_progress = now
            self.emit(PROGRESS, **fields)


def stop_line(message: str, env: Mapping[str, str]) -> str:
    """Return the line for standard error with the reason why helm-run ends.

    This line is needed if a full disk prevents the event. Other lines on standard error may quote
    text from an endpoint. The line contains the run's id, which no endpoint knows, so an endpoint
    cannot imitate it.

    Args:
        message: the reason.
        env: the environment of helm-run.
    """
    run = HelmRunSettings.from_environment(env).run_id
    if run is None:
        return f"{_STOPS}: {message}"
    return f"{_STOPS} [{run}]: {json.dumps(message, ensure_ascii=False)}"


def stop_message_in(returncode: int, tail: Iterable[str], run: str) -> str | None:
    """Return the message that `stop_line` wrote in the last lines of a failed helm-run.

    Returns None if there is no such line, or if helm-run did not fail.

    Args:
        returncode: the exit code of helm-run.
        tail: the last lines of its standard error, without line ends.
        run: the id of the run.
    """
    if returncode == 0:
        return None
    beginning = f"{_STOPS} [{run}]: "
    for line in tail:
        if line.startswith(beginning):
            try:
                return str(json.loads(line.removeprefix(beginning)))
            except ValueError:  # the line was cut
                return None
    return None


@contextmanager
def open_log(rundir: RunDir, redactor: Redactor, *, debug: bool) -> Iterator[logging.Logger]:
    """Open logs/eval-factory.log inside the context, and yield a logger that writes to it.

    Every line is redacted, and only the user can read the file. The logger is not shared with other
    runs (as a logger from `logging.getLogger` would be), because runs in several threads write to
    different folders.

    Args:
        rundir: the output folder of the run.
        redactor: redacts the lines.
        debug: True if debug messages are also logged, and all messages are shown on standard error.
    """
    logger = logging.Logger("eval_factory.run", logging.DEBUG if debug else logging.INFO)
    rundir.program_log.touch(mode=PRIVATE)
    file = logging.FileHandler(rundir.program_log, encoding="utf-8")
    handlers: list[logging.Handler] = [file]
    if debug:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(_RedactingFormatter(redactor))
        logger.addHandler(handler)
    try:
        yield logger
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _RedactingFormatter(logging.Formatter):
    """A formatter that redacts messages and indents all lines of a message after the first line.

    An indented line cannot be mistaken for a separate message.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        message = self._redactor.redact_text(super().format(record))
        first, *further = printable_lines(message).split("\n")
        indented = [line if line.startswith("  ") else f"  {line}" for line in further]
        return "\n".join([first, *indented])
