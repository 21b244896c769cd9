"""Reads the new events and answers of a running helm-run, and shows its progress.

A terminal shows a progress bar; other outputs get plain lines.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.core import formats
from eval_factory.core.enums import AttemptState
from eval_factory.core.foreign_text import one_line, printable_lines
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import openai_answers, openai_api, response_cache, thinking

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

READ_SIZE = 1 << 20
"""The maximum number of bytes that are read from a file at once."""
MAX_TEXT_LENGTH = 80
"""The maximum length of the beginning of an answer, in characters."""
MAX_LINE_LENGTH = 240
"""The maximum length of the line about an answer, in characters."""
MAX_ATTEMPTS_IN_MEMORY = 200
"""The maximum number of attempts that are read from the cache at once."""
_PLAIN_INTERVAL_S = 10.0  # the minimum time between two plain lines about progress, in seconds
REFRESHES_PER_S = 4  # the number of times a second that the progress bar is drawn
MIN_BAR_WIDTH = 8  # in characters


class LineTail:
    """A reader of the complete lines of a growing file."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self._offset = offset
        self.rest = b""
        """The last line, if its end was not written yet."""

    def read_new_lines(self) -> Iterator[bytes]:
        """Yield the lines that were completed since the last call."""
        while part := self._read():
            self._offset += len(part)
            *lines, self.rest = (self.rest + part).split(b"\n")
            yield from lines

    def _read(self) -> bytes:
        """Read the next bytes of the file; return no bytes if the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read(READ_SIZE)
        except OSError:
            return b""


class EventTail:
    """A reader of the new events of a run.

    With a run id, events that the file already has when the reader is created are skipped. Without
    a run id, all events of the file are read, from its beginning.
    """

    def __init__(self, path: Path, *, run_id: str | None) -> None:
        self._run_id = run_id
        offset = 0
        if run_id is not None and path.exists():
            offset = path.stat().st_size
        self._tail = LineTail(path, offset)

    def read_new_events(self) -> list[dict[str, Any]]:
        """Return the events that were written since the last call."""
        events = []
        for line in self._tail.read_new_lines():
            with suppress(ValueError):  # skip a line that a full disk or a kill has damaged
                event = json.loads(line)
                if isinstance(event, dict) and self._is_wanted(event):
                    events.append(event)
        return events

    def _is_wanted(self, event: Mapping[str, Any]) -> bool:
        """Return True if an event is of the reader's run, or if the reader reads all runs."""
        return self._run_id is None or event.get("run_id") == self._run_id


class AnswerTail:
    """A reader of the ended attempts of a run."""

    def __init__(self, cache_db: Path, run_id: str, redactor: Redactor, *, texts: bool) -> None:
        """Create a reader that has read nothing yet.

        `texts`: True to show the beginning of each answer too. Answers may contain texts of
        patients.
        """
        self._path = cache_db
        self._run_id = run_id
        self._redactor = redactor
        self._texts = texts
        self._last_id = 0
        self._ended = 0  # the number of requests whose last attempt has ended

    def read_new_events(self) -> Iterator[dict[str, Any]]:
        """Yield an event for each attempt since the last call, with the time at which it ended."""
        while rows := response_cache.attempts_after(
            self._path, self._last_id, self._run_id, MAX_ATTEMPTS_IN_MEMORY
        ):
            self._last_id = rows[-1]["id"]
            for row in rows:
                yield {
                    "event": "answer",
                    "time": row["started"] + row["latency_s"],
                    "line": self._line(row),
                }

    def _line(self, row: Mapping[str, Any]) -> str:
        """Return the line about an attempt.

        Examples are `#12 model: 1.3 s, 210 + 5 tokens, stop: "B"` and `gpt: retried after 0.2 s:
        HTTP 503: busy`. Only the last attempt of a request has a number.
        """
        outcome = row["outcome"]
        has_number = outcome in (AttemptState.ANSWERED, AttemptState.FAILED)
        label = row["role"]
        if has_number:
            self._ended += 1
            label = f"#{self._ended} {label}"
        seconds = f"{row['latency_s']:.1f} s"
        if outcome == AttemptState.ANSWERED:
            line = f"{label}: {seconds}, {self._about_answer(row)}"
        else:
            line = f"{label}: {outcome} after {seconds}: {row['error']}"
        return f"  {one_line(self._redactor.redact_text(line), MAX_LINE_LENGTH)}"

    def _about_answer(self, row: Mapping[str, Any]) -> str:
        """Return the token counts and the finish reason of an answer.

        If the reader shows texts (`texts`), the beginning of the answer follows.
        """
        counts = []
        for count in (row["prompt_tokens"], row["completion_tokens"]):
            counts.append("?" if count is None else str(count))
        reason, text = _reason_and_text(row["response"])
        facts = f"{' + '.join(counts)} tokens, {reason}"
        if not self._texts:
            return facts
        # Redacted before it is cut, because a secret that is cut would not be recognized.
        beginning = one_line(self._redactor.redact_text(text), MAX_TEXT_LENGTH)
        return f'{facts}: "{beginning}"'


def _reason_and_text(response: str | None) -> tuple[str, str]:
    """Return the finish reason of a cached response, and the text of the answer without thinking.

    Thinking is the text between `<think>` and `</think>`.
    """
    try:
        body = openai_answers.parse_strictly(response or "")
        endpoint_type = openai_api.CHAT
        # Only completions have the key `text` here; chat answers have `message`.
        if "text" in body["choices"][0]:
            endpoint_type = "completions"
        choice = openai_answers.read_answer(body, endpoint_type)[0]
    except (openai_answers.UnusableAnswer, ValueError, LookupError, TypeError, RecursionError):
        return "not read", ""
    parts = thinking.split_thinking(choice.text, "<think>", "</think>")
    return str(choice.finish_reason), parts.answer


def progress_text(event: dict[str, Any], elapsed_s: float, max_length: float = math.inf) -> str:
    """Return the progress, such as `120/1000, 2 failed, 37 s left, 24.0/s, 5.8k tokens`.

    Args:
        event: a `progress` event.
        elapsed_s: the time since the start of the phase, in seconds.
        max_length: the maximum length of the text, in characters. The last parts are left out until
            the text fits; the first part is always shown.
    """
    done = event["done"]
    total = event["total"]
    rate = 0.0
    if elapsed_s > 0:
        rate = done / elapsed_s
    count = f"{done} done"
    if total:
        count = f"{done}/{total}"
    if event["role"] != "model":
        count = f"{event['role']} {count}"
    parts = [count, f"{event['failed']} failed"]
    if total and done < total and rate > 0:
        parts.append(f"{duration((total - done) / rate)} left")
    parts.append(formats.rate(rate))
    tokens = event["prompt_tokens"] + event["completion_tokens"]
    if tokens:
        parts.append(f"{short_number(tokens)} tokens")
    if event["cached"]:
        parts.append(f"{event['cached']} from cache")
    while len(parts) > 1 and len(", ".join(parts)) > max_length:
        parts.pop()
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration such as `37 s`, `4:05 min` or `2:05 h`."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    minutes, rest_seconds = divmod(whole_seconds, 60)
    if minutes < 60:
        return f"{minutes}:{rest_seconds:02} min"
    hours, rest_minutes = divmod(minutes, 60)
    return f"{hours}:{rest_minutes:02} h"


def short_number(count: int) -> str:
    """Return a number such as `812`, `5.8k` or `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_950:  # larger numbers would be shown as 1000.0k
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows the phases of a run, and the progress of each phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._phase_started = 0.0
        self._last_line_time = 0.0
        self._task: TaskID | None = None

    def __exit__(self, *_: object) -> None:
        if self._task is not None and self._bar is not None:
            self._bar.stop()

    @cached_property
    def _console(self) -> Console:
        """The console of `rich` for the stream."""
        # The import is slow. It is done here because helm-run already runs when the first line is
        # shown.
        from rich.console import Console

        return Console(
            file=self._stream,
            highlight=False,
            soft_wrap=True,
            # Without this argument, FORCE_COLOR would turn a log file into a terminal.
            force_terminal=self._stream.isatty(),
            # Without this argument, rich would write to a notebook's cell instead of the stream.
            force_jupyter=False,
        )

    @cached_property
    def _bar(self) -> Progress | None:
        """The progress bar; None if the stream is not an interactive terminal."""
        # A terminal with TERM=dumb is not interactive: it cannot overwrite a line.
        if not self._console.is_interactive:
            return None
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        def text_column(text: str) -> TextColumn:
            """Return a column whose text is cut if the terminal is very narrow."""
            column = Column(no_wrap=True, overflow="ellipsis")
            return TextColumn(text, markup=False, table_column=column)

        return Progress(
            text_column("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            text_column("{task.fields[text]}"),
            console=self._console,
            transient=True,
            expand=True,
            refresh_per_second=REFRESHES_PER_S,
        )

    def say(self, text: str) -> None:
        """Show lines of text above the bar."""
        self._console.print(printable_lines(text), markup=False)

    def show(self, event: dict[str, Any]) -> None:
        """Show an event of the run; unknown kinds of events are ignored."""
        kind = event["event"]
        if kind == "phase":
            self._show_phase(event)
        elif kind == "progress":
            self._show_progress(event)
        elif kind == "answer":
            self.say(event["line"])
        elif kind == "warning":
            self.say(f"warning: {event['message']}")

    def _show_phase(self, event: dict[str, Any]) -> None:
        """Show the name of a new phase, and start its bar."""
        phase = event["phase"]
        total = event.get("total")
        self._phase_started = event["time"]
        self._last_line_time = time.monotonic()
        if total is None:
            self.say(f"{phase} ...")
        else:
            self.say(f"{phase}: {total} requests ...")
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(phase, total=total, text="")
            self._bar.start()

    def _show_progress(self, event: dict[str, Any]) -> None:
        """Update the bar.

        Without a bar, show a line every `_PLAIN_INTERVAL_S` seconds and at the end of the phase.
        """
        done = event["done"]
        total = event["total"]
        now = time.monotonic()
        elapsed = event["time"] - self._phase_started
        if self._bar is not None and self._task is not None:
            # The last 2 are the blanks between the three columns of the bar.
            phase_width = len(self._bar.tasks[0].description)
            max_length = self._console.width - phase_width - MIN_BAR_WIDTH - 2
            text = progress_text(event, elapsed, max_length)
            # For rich, a total of None means an unknown total.
            self._bar.update(self._task, completed=done, total=total or None, text=text)
            return
        is_last = total and done >= total
        if is_last or now - self._last_line_time >= _PLAIN_INTERVAL_S:
            self._last_line_time = now
            self.say(f"  {progress_text(event, elapsed)}")
