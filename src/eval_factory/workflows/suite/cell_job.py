"""What a cell's task in Slurm does, and where it works: told of a cell that has one, or had one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CellJob:
    """Of the last wave that the cell is in."""

    task: str | None
    """As Slurm speaks of it, with what it waits for; None where it is not queued any more."""
    attempts: int
    """How often the cell was begun in that wave."""
    log: Path
    """What Slurm and the task say of themselves."""
    work: Path | None
    """The folder of the last attempt, an output folder; None before there is one, and once it became the cell's."""

    def document(self) -> dict[str, Any]:
        """For programs."""
        work = None if self.work is None else str(self.work)
        return {"task": self.task, "attempts": self.attempts, "log": str(self.log), "work_folder": work}
