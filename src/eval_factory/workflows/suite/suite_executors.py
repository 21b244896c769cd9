"""Defines the executors of a suite: the local machine and Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from eval_factory.config.suite import Suite
from eval_factory.core.enums import LOCAL, SLURM
from eval_factory.core.formats import counted
from eval_factory.workflows.suite.planned_cells import PlannedCell

if TYPE_CHECKING:
    from eval_factory.workflows.suite.cell_loop import Work

# Modules that run cells are imported inside of methods, for a dry run needs none of them.


class SuiteExecutor(Protocol):
    """The interface of an executor, which runs the cells of a suite."""

    def refuse(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Check that this executor supports all settings of the suite.

        Raises:
            ConfigError: the executor does not support a setting.
        """

    def run(self, work: Work) -> None:
        """Run every unfinished cell.

        Raises:
            ConfigError: this executor cannot run the suite, or one of its cells.
            PrerequisiteError: something that all cells need is missing.
            KeyboardInterrupt, InterruptedRunError: the run was interrupted.
        """

    def location(self, suite: Suite, /) -> str:
        """Return a short text that says where the cells run, or how many cells run at once."""

    def preview(
        self, suite: Suite, cells: Sequence[PlannedCell], env: Mapping[str, str], /
    ) -> Iterator[str]:
        """Yield the lines that a dry run shows in addition to the cells.

        Raises:
            ConfigError: the executor does not support a setting of the suite.
        """


class LocalExecutor:
    """Runs cells on this machine, each in a process of its own."""

    def refuse(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Accept every suite: this machine supports all settings."""

    def run(self, work: Work) -> None:
        """Run the cells, unless a cell is queued or runs in Slurm."""
        from eval_factory.executors.slurm import Slurm
        from eval_factory.executors.slurm_runs import refuse_cells_in_slurm
        from eval_factory.workflows.suite.local_suite import run_by_server, run_cells

        names = [planned.cell.name for planned in work.left]
        refuse_cells_in_slurm(work.suite.folder, names, Slurm(work.env))
        run_by_server(work, run_cells)

    def location(self, suite: Suite, /) -> str:
        """Return the maximum number of cells that run at once, in words."""
        return f"at most {counted(suite.max_processes, 'cell')} at once"

    def preview(self, *_: object) -> Iterator[str]:
        """Return no lines."""
        return iter(())


class SlurmExecutor:
    """Runs cells as Slurm jobs."""

    def refuse(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Raise ConfigError if Slurm jobs cannot follow a setting of the suite."""
        from eval_factory.workflows.suite.slurm_suite import refuse_unsupported_by_slurm

        refuse_unsupported_by_slurm(suite, env)

    def run(self, work: Work) -> None:
        """Submit the cells as jobs, and report the jobs that have ended."""
        from eval_factory.executors.slurm import Slurm
        from eval_factory.workflows.suite.slurm_suite import run_on_slurm

        run_on_slurm(work, Slurm(work.env))

    def location(self, _: Suite, /) -> str:
        """Return that the cells run as Slurm jobs."""
        return "as jobs of Slurm"

    def preview(
        self, suite: Suite, cells: Sequence[PlannedCell], env: Mapping[str, str], /
    ) -> Iterator[str]:
        """Yield the lines of the batch scripts."""
        from eval_factory.workflows.suite.slurm_suite import script_lines

        yield from script_lines(suite, cells, env)


EXECUTORS: Mapping[str, SuiteExecutor] = MappingProxyType(
    {LOCAL: LocalExecutor(), SLURM: SlurmExecutor()}
)
