"""What the screen shows while helm-run works: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from eval_factory.core.foreign_text import own_lines
from eval_factory.executors.progress import figures_text

_PLAIN_INTERVAL_S = 10.0
REFRESHES_PER_S = 4
NARROWEST_BAR = 8


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
            texts = [  # cut where a terminal is very narrow
                TextColumn(text, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
                for text in ("{task.description}", "{task.fields[figures]}")
            ]
            self._bar = Progress(
                texts[0], BarColumn(bar_width=None, table_column=Column(ratio=1)), texts[1],
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
            phase, total = event["phase"], event.get("total")
            self._phase_started, self._last_line = event["time"], time.monotonic()
            self.say(f"{phase} ..." if total is None else f"{phase}: {total} requests ...")
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(phase, total=total, figures="")
                self._bar.start()
        elif event["event"] == "progress":
            total, now, elapsed = event["total"], time.monotonic(), event["time"] - self._phase_started
            if self._bar is not None and self._task is not None:
                room = self._console.width - len(self._bar.tasks[0].description) - NARROWEST_BAR - 2
                figures = figures_text(event, elapsed, room)
                self._bar.update(self._task, completed=event["done"], total=total or None, figures=figures)
            elif (total and event["done"] >= total) or now - self._last_line >= _PLAIN_INTERVAL_S:
                self._last_line = now
                self.say(f"  {figures_text(event, elapsed)}")
        elif event["event"] == "answer":
            self.say(event["line"])
        elif event["event"] == "warning":
            self.say(f"warning: {event['message']}")
