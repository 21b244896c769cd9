"""`--fresh` on Slurm: the cells forget what they were answered, before anything is submitted."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence

from eval_factory.core.errors import BusyError
from eval_factory.executors.slurm_commands import Slurm
from eval_factory.executors.slurm_waves import active
from eval_factory.workflows.context import is_ours, start_over
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.slurm_jobs import key_of
from eval_factory.workflows.suite.slurm_store import SlurmStore, cell_key

MOST_NAMED = 3


def begin_anew(cells: Sequence[PlannedCell], store: SlurmStore, slurm: Slurm) -> None:
    """Delete attempts, answers and results of these cells; of none where one of them is in Slurm.

    Raises:
        BusyError: one of them waits or runs in Slurm, or somebody works in its folder.
        QueueUnknownError: Slurm does not say.
    """
    queued = {cell_key(key) for key in active(slurm.queue(), store.waves())}
    busy = [planned.cell.name for planned in cells if key_of(planned) in queued]
    if busy:
        folder = shlex.quote(str(store.suite.named))
        more = f" and {len(busy) - MOST_NAMED} more" if len(busy) > MOST_NAMED else ""
        raise BusyError(
            f"--fresh: in Slurm already: {', '.join(busy[:MOST_NAMED])}{more}\n"
            "  without --fresh the command takes them over; to begin anew, end them first:"
            f" eval-factory suite cancel {folder}"
        )
    for planned in cells:
        rundir = planned.plan.rundir
        if is_ours(rundir):
            with rundir.locked():
                start_over(rundir)
        cell = store.cell(key_of(planned))
        for one in (cell, *cell.parts()):
            shutil.rmtree(one.folder, ignore_errors=True)
