"""What the screen shows while helm-run works: a bar on a terminal, plain lines elsewhere. Read from events.jsonl."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from eval_factory.core.foreign_text import own_lines

PLAIN_INTERVAL_S = 10.0


class EventTail:
    """New whole lines of an events file, of one run."""

    def __init__(self, path: Path, run_id: str) -> None:
        self._path, self._run_id = path, run_id
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def new(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("run_id") == self._run_id:
                events.append(event)
        return events


class ProgressDisplay:
    """Shows phases, and within them instances done, rate, time left, failures and tokens."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._phase_started = 0.0
        self._last_line = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"),
                console=self._console, transient=True,
            )  # fmt: skip

    def __enter__(self) -> ProgressDisplay:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(own_lines(text), markup=False)

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] == "phase":
            if event.get("of", 1) > 1:
                self.say(f"[{event['number']}/{event['of']}] {event['run']}")
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
            self._task = self._bar.add_task(phase, total=total, figures="")

    def _advance(self, event: dict[str, Any]) -> None:
        figures = figures_text(event, event["time"] - self._phase_started)
        if self._bar is not None and self._task is not None:
            total = event["total"] or None
            self._bar.update(self._task, completed=event["done"], total=total, figures=figures)
            return
        finished = event["total"] and event["done"] >= event["total"]
        now = time.monotonic()
        if finished or now - self._last_line >= PLAIN_INTERVAL_S:
            self._last_line = now
            self.say(f"  {figures}")


def figures_text(event: dict[str, Any], elapsed_s: float) -> str:
    """`120/1000 done (80 from cache), 24.0/s, 37 s left, 2 failed, 5000+800 tokens`."""
    done, total, failed = event["done"], event["total"], event["failed"]
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{done}/{total} done" if total else f"{done} done"]
    if event["role"] != "model":
        parts[0] = f"judge {event['role']}: {parts[0]}"
    if event["cached"]:
        parts[0] += f" ({event['cached']} from cache)"
    parts.append(f"{rate:.1f}/s")
    if total and done < total and rate > 0:
        parts.append(f"{(total - done) / rate:.0f} s left")
    parts.append(f"{failed} failed")
    tokens = event["prompt_tokens"], event["completion_tokens"]
    if any(tokens):
        parts.append(f"{tokens[0]}+{tokens[1]} tokens")
    return ", ".join(parts)
