"""What Slurm has been given to do is not done on this machine at the same time: both would ask the same questions."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import OF_ONE_RUN, RunSuiteDir, SuiteDir
from eval_factory.executors.slurm_commands import QueuedTask, Slurm
from eval_factory.executors.slurm_waves import active
from eval_factory.workflows.suite.slurm_store import SlurmStore

MOST_NAMED = 3


def refuse_run_in_slurm(output: Path, env: Mapping[str, str], slurm: Slurm | None = None) -> None:
    """
    Args:
        output: of a run that is about to begin here: one that was submitted by itself, or as a cell of a suite.

    Raises:
        BusyError: Slurm has it.
        PrerequisiteError: Slurm may have it, and does not say.
    """
    root = output.absolute()
    slurm = slurm or Slurm(env)
    if len(root.parts) > 3:
        refuse_cells_in_slurm(SuiteDir(root.parent.parent), [f"{root.parent.name}/{root.name}"], slurm)
    alone = RunSuiteDir(root / OF_ONE_RUN)
    refuse_cells_in_slurm(alone, _in_slurm(alone, slurm), slurm)


def refuse_cells_in_slurm(folder: SuiteDir, cells: Collection[str], slurm: Slurm) -> None:
    """
    Args:
        cells: names of those that are about to begin here.

    Raises:
        BusyError: Slurm has one of them.
        PrerequisiteError: Slurm may have one of them, and does not say.
    """
    if not cells:
        return
    queued = _in_slurm(folder, slurm)
    found = [f"{queued[name].job_name} ({name}, {queued[name].state})" for name in cells if name in queued]
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        named = shlex.quote(str(folder.named))
        raise BusyError(
            f"{folder.named}: in Slurm already: {', '.join(found[:MOST_NAMED])}{more}\n"
            f"  wait for the end: eval-factory suite status {named}, then the same command with --executor slurm\n"
            f"  or end it, then run it here, which goes on with its answers: eval-factory suite cancel {named}"
        )


def _in_slurm(folder: SuiteDir, slurm: Slurm) -> dict[str, QueuedTask]:
    """Name of a cell -> a task of it; nobody is asked where no task can be there."""
    store = SlurmStore(folder)
    if not store.open_waves():
        return {}
    try:
        queued = active(slurm.queue(), store.waves())
    except PrerequisiteError as error:
        raise PrerequisiteError(
            f"{folder.named}: its jobs may be in Slurm, which does not say: {str(error).partition(chr(10))[0]}\n"
            "  run the same command again where Slurm answers; if all its jobs have ended, delete"
            f" {shlex.quote(str(store.environment(1).parent))}/w*.env first"
        ) from error
    return {key.rpartition("/")[0]: task for key, task in queued.items()}
