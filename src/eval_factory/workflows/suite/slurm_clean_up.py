"""The keys of a wave are deleted when none of its tasks is left, also where the tasks could not do it themselves.

A task that is killed, or cancelled before it began, deletes nothing. So a small job of Slurm's own begins when all have
ended; and whoever looks at the suite deletes what is left, for even that job may be cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import write_atomic
from eval_factory.executors.slurm_commands import QueuedTask, Slurm
from eval_factory.executors.slurm_script import BatchJob, clean_up_script
from eval_factory.executors.slurm_waves import Wave
from eval_factory.workflows.suite.slurm_store import SlurmStore

Say = Callable[[str], object]
JUST_WRITTEN_S = 300.0
"""Keys that are younger may be of tasks which sbatch is about to take."""


def clean_up_after(
    store: SlurmStore, wave: Wave, job: str, resources: Mapping[str, Any], slurm: Slurm, say: Say
) -> None:
    """Submit the job that deletes the keys of a wave. Where Slurm does not take it, it is said, and tried again.

    Args:
        job: the id of the wave's array, as Slurm has just said it.
    """
    script = store.clean_up_script(wave.number)
    array = BatchJob(wave.job_name, len(wave.keys), 1, store.logs(wave.number).absolute(), resources, ())
    write_atomic(script, clean_up_script(array, store.environment(wave.number).absolute()), mode=PRIVATE)
    try:
        slurm.submit(script, after=job)
    except PrerequisiteError as error:
        say(f"the keys of {wave.job_name} are deleted by its last task, or by the next command: {error}".split("\n")[0])
    else:
        store.clean_up_submitted(wave.number).touch()


def clean_up_after_all(
    store: SlurmStore, queued: Iterable[QueuedTask], resources: Mapping[str, Mapping[str, Any]], slurm: Slurm, say: Say
) -> None:
    """Of waves whose submitter was killed before he did: found by the names of their jobs.

    Args:
        resources: key -> what its task asks of Slurm.
    """
    jobs = {task.job_name: task.job_id for task in queued}
    for wave in store.waves():
        asked = next((resources[key] for key in wave.keys if key in resources), None)
        is_there = store.environment(wave.number).exists() and not store.clean_up_submitted(wave.number).exists()
        if wave.job_name in jobs and is_there and asked is not None:
            clean_up_after(store, wave, jobs[wave.job_name], asked, slurm, say)


def forget_keys(store: SlurmStore, queued: Iterable[QueuedTask], *, older_than_s: float = 0.0) -> None:
    """Of waves that have no task any more. Nothing is raised: the folder may be another user's.

    Args:
        older_than_s: of who does not hold the suite; somebody may be submitting.
    """
    names = {task.job_name for task in queued}
    for wave in store.waves():
        file = store.environment(wave.number)
        with suppress(OSError):
            if wave.job_name not in names and time.time() - file.stat().st_mtime >= older_than_s:
                file.unlink()
