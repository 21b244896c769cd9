"""What the screen shows while helm-run works: a bar on a terminal, plain lines elsewhere. Read from events.jsonl."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from eval_factory.core import formats
from eval_factory.core.foreign_text import own_lines
from eval_factory.executors.process import Execution, ProcessSpec, run_logged

_PLAIN_INTERVAL_S = 10.0
REFRESHES_PER_S = 4
NARROWEST_BAR = 8
READ_BYTES = 1 << 20
"""Of a file at once."""


class LineTail:
    """Whole lines of a file that grows."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self._offset = path, offset
        self.rest = b""
        """A last line that nobody has ended."""

    def lines(self) -> Iterator[bytes]:
        """Those that were written since the last look."""
        while part := self._read():
            self._offset += len(part)
            *lines, self.rest = (self.rest + part).split(b"\n")
            yield from lines

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read(READ_BYTES)
        except OSError:
            return b""


class EventTail:
    """New events of a file, of one run; where that is None, every event, from the file's first."""

    def __init__(self, path: Path, run_id: str | None) -> None:
        self._run_id = run_id
        self._tail = LineTail(path, path.stat().st_size if run_id is not None and path.exists() else 0)

    def new(self) -> list[dict[str, Any]]:
        events = []
        for line in self._tail.lines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and self._run_id in (None, event.get("run_id")):
                    events.append(event)
        return events


class ProgressDisplay:
    """Shows phases, and within them instances done, rate, time left, failures and tokens."""

    def __init__(self, stream: TextIO) -> None:
        is_terminal = stream.isatty()  # whatever FORCE_COLOR and the like say: a log is to have lines
        # in a notebook rich would show everything in the cell, wherever `stream` leads
        self._console = Console(
            file=stream, highlight=False, soft_wrap=True, force_terminal=is_terminal, force_jupyter=False
        )
        self._phase_started = 0.0
        self._last_line = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_interactive:  # not where TERM is dumb: it cannot go back in a line
            self._bar = Progress(
                PhaseColumn(), BarOfKnownLength(bar_width=None, table_column=Column(ratio=1)),
                FiguresColumn(self._console),
                console=self._console, transient=True, expand=True, refresh_per_second=REFRESHES_PER_S,
            )  # fmt: skip

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(own_lines(text), markup=False)

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] == "phase":
            self._start_phase(event["phase"], event.get("total"), event["time"])
        elif event["event"] == "progress":
            self._advance(event)
        elif event["event"] == "warning":
            self.say(f"warning: {event['message']}")

    def _start_phase(self, phase: str, total: int | None, started: float) -> None:
        self._phase_started = started
        self._last_line = time.monotonic()
        self.say(f"{phase} ..." if total is None else f"{phase}: {total} requests ...")
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(phase, total=total, event=None)
            self._bar.start()

    def _advance(self, event: dict[str, Any]) -> None:
        elapsed = event["time"] - self._phase_started
        if self._bar is not None and self._task is not None:
            total = event["total"] or None
            self._bar.update(self._task, completed=event["done"], total=total, event=(event, elapsed))
            return
        finished = event["total"] and event["done"] >= event["total"]
        now = time.monotonic()
        if finished or now - self._last_line >= _PLAIN_INTERVAL_S:
            self._last_line = now
            self.say(f"  {figures_text(event, elapsed)}")


class PhaseColumn(ProgressColumn):
    """What is going on; cut where a terminal is very narrow."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis"))

    def render(self, task: Task) -> Text:
        return Text(task.description)


class BarOfKnownLength(BarColumn):
    """No bar where nobody knows how much there is to do."""

    def render(self, task: Task) -> Any:
        return Text() if task.total is None else super().render(task)


class FiguresColumn(ProgressColumn):
    """As many figures as there is room for beside the phase and a short bar; else how long it takes."""

    def __init__(self, console: Console) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", justify="right"))
        self._console = console

    def render(self, task: Task) -> Text:
        if task.fields["event"] is None:
            return Text(duration(task.elapsed or 0.0))
        event, elapsed = task.fields["event"]
        return Text(figures_text(event, elapsed, self._console.width - len(task.description) - NARROWEST_BAR - 2))


def figures_text(event: dict[str, Any], elapsed_s: float, room: float = math.inf) -> str:
    """`120/1000, 2 failed, 37 s left, 24.0/s, 5.8k tokens`: the first of these that there is room for, in columns."""
    done, total = event["done"], event["total"]
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{done}/{total}" if total else f"{done} done"]
    if event["role"] != "model":
        parts[0] = f"{event['role']} {parts[0]}"
    parts.append(f"{event['failed']} failed")
    if total and done < total and rate > 0:
        parts.append(f"{duration((total - done) / rate)} left")
    parts.append(formats.rate(rate))
    tokens = event["prompt_tokens"] + event["completion_tokens"]
    if tokens:
        parts.append(f"{short_number(tokens)} tokens")
    if event["cached"]:
        parts.append(f"{event['cached']} from cache")
    while len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`37 s`, `4:05 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def short_number(count: int) -> str:
    """`812`, `5.8k`, `1.2M`."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def run_shown(spec: ProcessSpec, screen: TextIO) -> Execution:
    """Run a program to its end, and show its progress on `screen`. As `run_logged`."""
    tail = EventTail(spec.rundir.events, spec.run_id)
    events: list[Mapping[str, Any]] = []
    started = time.monotonic()
    with ProgressDisplay(screen) as display:

        def tick() -> None:
            for event in tail.new():
                if event["event"] != "progress":
                    events.append(event)
                display.show(event)

        finished = run_logged(spec, log=spec.rundir.helm_log, on_tick=tick)
    return Execution(finished, time.monotonic() - started, tuple(events))
