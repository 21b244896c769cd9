"""The batch scripts that a dry run shows: nothing is asked of Slurm and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eval_factory.config.suite import Suite
from eval_factory.executors.slurm_waves import arrays, job_name
from eval_factory.workflows.suite.checked_cells import CheckedCell
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.slurm_jobs import at_once, refuse_what_slurm_cannot, script_of, wanted
from eval_factory.workflows.suite.slurm_store import SlurmStore

USUAL_LARGEST_ARRAY = 1000
"""Slurm's own default; the command asks scontrol."""
UNKNOWN_ID = "ID"


def script_lines(suite: Suite, cells: Sequence[CheckedCell], env: Mapping[str, str]) -> Iterator[str]:
    """
    Raises:
        ConfigError: the suite says what jobs cannot keep.
    """
    refuse_what_slurm_cannot(suite, env)
    planned = [
        PlannedCell(number, one.cell, one.plan, suite.limit_groups[one.cell.target])
        for number, one in enumerate(cells)
        if one.plan is not None
    ]
    tasks, store = at_once(suite, planned), SlurmStore(suite.folder)
    found = arrays((wanted(one, suite, tasks[one.group]) for one in planned), USUAL_LARGEST_ARRAY)
    yield "\n# batch scripts, of a suite that begins from nothing; run_suite writes them and gives each to sbatch"
    for number, array in enumerate(found, 1):
        yield f"\n# {store.script(number)}: {', '.join(one.key.rpartition('/')[0] for one in array)}"
        yield script_of(array, job_name(UNKNOWN_ID, number), number, store).rstrip("\n")
