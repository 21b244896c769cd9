"""Defines what an evaluation returns: the result, its folder, and texts for the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import ResultViews


@dataclass(frozen=True, repr=False)
class Evaluated(ResultViews):
    """A result that an evaluation has written to its output folder."""

    result: TaskResult
    rundir: RunDir
    summary: str  # the text about the result for the screen; redacted
    # why the scores may not be reported, and the user's next action; None if they may be reported
    not_reportable: str | None

    @property
    def failure(self) -> str | None:
        """The text of `not_reportable`; None for a demo.

        A demo's scores are not reportable, but its command does not fail.
        """
        from eval_factory.scoring.reportable import failure_in

        return failure_in(self.not_reportable)

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.rundir.root
