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

# Modules that run cells are imported inside of methods, because a dry run does not need them.


class SuiteExecutor(Protocol):
    """The interface of an executor, which runs the cells of a suite.

    The `/` in a signature lets a class choose other names for parameters that it does not use.
    """

    def refuse_unsupported(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Check that this executor supports all settings of the suite.

        `env`: the environment variables, which may contain secrets.

        Raises:
            ConfigError: the executor does not support a setting.
        """

    def run(self, work: Work) -> None:
        """Run every cell that has no report yet, and report its end in `work`.

        Raises:
            ConfigError: this executor cannot run the suite, or one of its cells.
            BusyError: a cell still has a job in Slurm, or another process works in its folder.
            PrerequisiteError: Slurm, or something else that all cells need, cannot be used.
            KeyboardInterrupt, InterruptedRunError: the run was interrupted.
        """

    def location(self, suite: Suite, /) -> str:
        """Return a short text: where the cells run, or how many cells run at once."""

    def preview(
        self, suite: Suite, cells: Sequence[PlannedCell], env: Mapping[str, str], /
    ) -> Iterator[str]:
        """Yield the lines that a dry run shows after the lines about the cells.

        Raises:
            ConfigError: the executor does not support a setting of the suite.
        """


class LocalExecutor:
    """Runs cells on this machine, each in a process of its own."""

    def refuse_unsupported(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Accept every suite: this machine supports all settings."""

    def run(self, work: Work) -> None:
        """Run the cells.

        Raises:
            BusyError: a cell is queued or runs in Slurm; no cell was started.
            PrerequisiteError: a cell may be in Slurm, but Slurm does not report its queue.
            KeyboardInterrupt: the run was interrupted.
        """
        from eval_factory.executors.slurm import Slurm
        from eval_factory.executors.slurm_runs import refuse_cells_in_slurm
        from eval_factory.workflows.suite.local_suite import run_by_server, run_cells

        names = [planned.cell.name for planned in work.unreported]
        refuse_cells_in_slurm(work.suite.folder, names, Slurm(work.env))
        run_by_server(work, run_cells)

    def location(self, suite: Suite, /) -> str:
        """Return a text with the maximum number of cells that run at once."""
        return f"at most {counted(suite.max_processes, 'cell')} at once"

    def preview(self, *_: object) -> Iterator[str]:
        """Return no lines: this executor writes no batch scripts."""
        return iter(())


class SlurmExecutor:
    """Runs cells as Slurm jobs."""

    def refuse_unsupported(self, suite: Suite, env: Mapping[str, str]) -> None:
        """Raise ConfigError if Slurm jobs cannot follow a setting of the suite."""
        from eval_factory.workflows.suite.slurm_suite import refuse_unsupported_by_slurm

        refuse_unsupported_by_slurm(suite, env)

    def run(self, work: Work) -> None:
        """Submit the cells as jobs, and report the jobs that have ended."""
        from eval_factory.executors.slurm import Slurm
        from eval_factory.workflows.suite.slurm_suite import run_on_slurm

        run_on_slurm(work, Slurm(work.env))

    def location(self, _: Suite, /) -> str:
        """Return a text that names Slurm."""
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
