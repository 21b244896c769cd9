"""What a run of a suite is asked, beside the suite, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import SuiteDir

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class SuiteOptions:
    """How to run, beside what to run."""

    fresh: bool = False
    """Forget the answers that the cells' folders keep."""
    debug: bool = False
    no_preflight: bool = False
    reuse: tuple[Path, ...] = ()
    """Folders, of suites or of runs, whose finished runs are taken over where they are the same."""
    overrides: tuple[str, ...] = ()
    """`path.to.key=value,...`, over everything else, as `--overrides`; of `eval_factory.run_suite` alone."""
    wait: bool = False
    """With executor slurm: until all jobs have ended, instead of until they are submitted."""


@dataclass(frozen=True)
class CellReport:
    """What became of one cell."""

    target: str
    evaluation: str
    status: RunStatus
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


@dataclass(frozen=True, repr=False)
class SuiteReport:
    """What became of a suite."""

    folder: SuiteDir
    cells: tuple[CellReport, ...]
    exit_code: int
    status: str
    """complete: every cell is, else partial."""
    summary: str
    """For the screen: counts, what is missing, the next step."""
    no_table: str | None = None
    """Why the table could not be written."""

    def to_frame(self, *, instances: bool = False) -> DataFrame:
        """A row a cell, with its main score; with `instances`, as `instances_frame`.

        Raises:
            PrerequisiteError: pandas is not installed, or a result cannot be read.
        """
        from eval_factory.workflows.suite import suite_views

        return self.instances_frame() if instances else suite_views.cells_frame(self)

    def instances_frame(self) -> DataFrame:
        """The instances of all cells that have a result, a row each.

        Raises:
            PrerequisiteError: pandas is not installed, or a result cannot be read.
        """
        from eval_factory.workflows.suite import suite_views

        return suite_views.suite_instances_frame(self)

    def _repr_html_(self) -> str:
        from eval_factory.workflows.suite import suite_views

        return suite_views.suite_html(self)

    def __repr__(self) -> str:
        from eval_factory.workflows.suite import suite_views

        return suite_views.in_a_line(self)
