"""How a result looks to who has it in a program: as data frames, in a notebook, in a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pandas import DataFrame

    from eval_factory.core.results import TaskResult


class HasResult(Protocol):
    """A result and the output folder that it stands in."""

    @property
    def result(self) -> TaskResult: ...

    @property
    def folder(self) -> Path: ...

    def instances_frame(self) -> DataFrame: ...


class ResultViews:
    """For records with a `result` and a `folder`."""

    def to_frame(self: HasResult, *, instances: bool = False) -> DataFrame:
        """The scores, a row a metric (`docs/python.md` has the columns); with `instances`, as `instances_frame`.

        Raises:
            PrerequisiteError: pandas is not installed.
        """
        from eval_factory.report.data_frames import scores_frame

        return self.instances_frame() if instances else scores_frame(self.result)

    def instances_frame(self: HasResult) -> DataFrame:
        """The instances, a row each: what was asked and answered, tokens, seconds, errors, and a column a metric.

        Raises:
            PrerequisiteError: pandas is not installed, or the instances cannot be read.
        """
        from eval_factory.report.data_frames import instances_frame

        return instances_frame(self.result)

    def _repr_html_(self: HasResult) -> str:
        from eval_factory.report.notebook_display import result_html

        return result_html(self.result, self.folder)

    def __repr__(self: HasResult) -> str:
        from eval_factory.core.foreign_text import one_line
        from eval_factory.report.notebook_display import not_reportable
        from eval_factory.report.screen import headline

        said = [headline(self.result), *not_reportable(self.result)[:1], str(self.folder)]
        return f"<{type(self).__name__} {one_line('; '.join(said))}>"
