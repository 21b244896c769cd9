"""What the ledger's lines come to: the baseline that holds, the looks since, what is begun and has not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from eval_factory.core.results import UTC_FORMAT
from eval_factory.monitor.course import Course, Rules
from eval_factory.monitor.measured import read_values
from eval_factory.monitor.panel import Limit

BASELINE, BEGUN, LOOK, NOT_MADE, NOTE, CHANGE = "baseline", "begun", "look", "not_made", "note", "change"
_Line = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    lines: Sequence[_Line]

    @property
    def baseline(self) -> _Line | None:
        """The one that holds."""
        return next((line for line in reversed(self.lines) if line["kind"] == BASELINE), None)

    @property
    def epoch(self) -> int:
        """A baseline and the looks after it; 0 before the first."""
        return 0 if self.baseline is None else int(self.baseline["epoch"])

    @property
    def looks(self) -> list[_Line]:
        """Those that were made since the baseline that holds."""
        return self.looks_after(self.baseline)

    def looks_after(self, baseline: _Line | None) -> list[_Line]:
        if baseline is None:
            return []
        found = []
        for line in self.lines[int(baseline["number"]) :]:
            if line["kind"] == BASELINE:
                break
            if line["kind"] == LOOK:
                found.append(line)
        return found

    @property
    def begun(self) -> _Line | None:
        """A look that has not ended."""
        ends = (BEGUN, LOOK, NOT_MADE)
        last = next((line for line in reversed(self.lines) if line["kind"] in ends), None)
        return last if last is not None and last["kind"] == BEGUN else None

    @property
    def next_look(self) -> int:
        return 1 + max((int(line["look"]) for line in self.lines if line["kind"] == BEGUN), default=0)

    @property
    def alarm(self) -> Mapping[str, Any] | None:
        looks = self.looks
        return looks[-1]["alarm"] if looks else None

    def course(self, baseline: _Line, folder: Path, *, tested: bool = True) -> Course:
        """Of what was measured; as it stands after the looks that were made, or before the first."""
        course = Course(
            Rules(baseline["alpha"], baseline["looks"], baseline["seed"], tuple(baseline["alarm_on"])),
            limits_of(baseline),
            [read_values(folder / one["folder"], one["values"]) for one in baseline["repeats"]],
        )
        for line in self.looks_after(baseline) if tested else []:
            course.look(line["look"], read_values(folder / line["folder"], line["values"]))
        return course


def limits_of(baseline: _Line) -> list[Limit]:
    return [
        Limit(one["name"], one["task"], one["metric"], one["max_drop"], one["field"], one["value"])
        for one in baseline["limits"]
    ]


def is_older(line: _Line, hours: float) -> bool:
    at = datetime.strptime(line["at"], UTC_FORMAT).replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - at > timedelta(hours=hours)
