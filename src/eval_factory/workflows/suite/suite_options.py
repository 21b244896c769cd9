"""What a run of a suite is asked, beside the suite, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval_factory.analysis.suite_records import CellStatus
from eval_factory.core.suite_dir import SuiteDir


@dataclass(frozen=True)
class SuiteOptions:
    """How to run, beside what to run."""

    fresh: bool = False
    """Forget the answers that the cells' folders keep."""
    debug: bool = False
    no_preflight: bool = False
    reuse: tuple[Path, ...] = ()
    """Folders, of suites or of runs, whose finished runs are taken over where they are the same."""


@dataclass(frozen=True)
class CellReport:
    """What became of one cell."""

    target: str
    evaluation: str
    status: CellStatus
    folder: Path
    exit_code: int
    """As `run_eval` would have ended; 1 where the cell was not begun."""
    reason: str | None = None
    """Why it is not complete, or not reportable, on one line."""
    attempts: int = 0
    collected: bool = False
    """It was finished before."""
    reused_from: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"


@dataclass(frozen=True)
class SuiteReport:
    """What became of a suite."""

    folder: SuiteDir
    cells: tuple[CellReport, ...]
    exit_code: int
    status: str
    """complete: every cell is, else partial."""
    summary: str
    """For the screen: counts, what is missing, the next step."""
