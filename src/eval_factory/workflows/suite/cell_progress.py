"""How far the helm-run of a cell is, from the events that it writes into the cell's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.rundir import RunDir
from eval_factory.executors.progress import EventTail, short_figures

STARTING = "starting"
"""Before helm-run tells anything: it is imported, the endpoint is asked one question."""

_COUNTS = ("total", "done", "cached", "failed", "prompt_tokens", "completion_tokens")
_MUCH_ROOM = 1000


@dataclass(frozen=True)
class CellProgress:
    """The last phase that was told, and what is done in it."""

    phase: str = STARTING
    phase_since: float | None = None
    """Epoch seconds."""
    counts: Mapping[str, Any] | None = None
    """The last `progress` event of the phase."""
    run: tuple[int, int] = (1, 1)
    """The number of the run, and of how many, where a cell is several of HELM's runs."""

    def figures(self, room: int = _MUCH_ROOM) -> str:
        """`120/1000, 2 failed, 37 s left, 24.0/s`: as many of these as there are columns for."""
        if self.counts is None:
            return ""
        return short_figures(dict(self.counts), self.elapsed_s, room)

    @property
    def elapsed_s(self) -> float:
        """From the beginning of the phase to the last count."""
        if self.counts is None or self.phase_since is None:
            return 0.0
        return max(0.0, float(self.counts["time"]) - self.phase_since)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return float(self.counts["done"]) / self.elapsed_s if self.counts is not None and self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """None where nobody knows."""
        if self.counts is None or not self.counts["total"] or not self.rate:
            return None
        return max(0.0, float(self.counts["total"] - self.counts["done"]) / self.rate)

    def document(self) -> dict[str, Any]:
        """For programs."""
        told = None if self.counts is None else {name: self.counts[name] for name in ("role", *_COUNTS)}
        number, of = self.run
        return {
            "phase": self.phase, "phase_since": self.phase_since, "run": number, "runs": of,
            "counts": told, "requests_per_s": round(self.rate, 3),
            "left_s": None if self.left_s is None else round(self.left_s, 1),
        }  # fmt: skip


class CellFollower:
    """Reads on in a cell's events; those of earlier attempts are left out."""

    def __init__(self, folder: Path, since: float) -> None:
        """`since`: when the cell was started, in epoch seconds."""
        self._tail = EventTail(RunDir(folder).events, None)
        self._since = since
        self.progress = CellProgress()

    def look(self) -> CellProgress:
        """Where the cell is now."""
        for event in self._tail.new():
            if is_number(event.get("time")) and event["time"] >= self._since:
                self.progress = after(self.progress, event)
        return self.progress


def after(progress: CellProgress, event: Mapping[str, Any]) -> CellProgress:
    """One more event; those that say nothing of the progress change nothing."""
    kind = event.get("event")
    if kind == event_names.PHASE:
        number, of = event.get("number"), event.get("of")
        run = (number, of) if isinstance(number, int) and isinstance(of, int) else progress.run
        return CellProgress(str(event.get("phase")), event["time"], None, run)
    if kind == event_names.PROGRESS and all(is_number(event.get(name)) for name in _COUNTS):
        counts = {**event, "role": str(event.get("role"))}
        return CellProgress(progress.phase, progress.phase_since, counts, progress.run)
    return progress


def is_number(value: Any) -> bool:
    """Whether it is one that can be counted with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
