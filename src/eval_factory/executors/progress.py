"""A helm-run that goes on: its events as they come, and the figures that are made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval_factory.core import formats

READ_BYTES = 1 << 20  # of a file at once


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
