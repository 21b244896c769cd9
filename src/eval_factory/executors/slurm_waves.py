"""What is submitted to Slurm next: all that is planned, and neither done nor queued. Pure.

Tasks are known by the name of their job and their place in its list, never by a job's id, which Slurm may use twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_factory.executors.slurm_commands import QueuedTask
from eval_factory.executors.slurm_reasons import can_never_start


@dataclass(frozen=True)
class Wave:
    """One array that was submitted, or was about to be."""

    number: int
    job_name: str
    keys: tuple[str, ...]
    """What each of its tasks does, by the task's number."""


@dataclass(frozen=True)
class Wanted:
    """Something that is to be done."""

    key: str
    group: str
    """Things of one group are asked of one endpoint."""
    resources: str
    """Things with the same text go into one array."""
    at_once: int


def job_name(suite_id: str, number: int) -> str:
    return f"ef-{suite_id}-w{number}"


def active(queue: Iterable[QueuedTask], waves: Iterable[Wave]) -> dict[str, QueuedTask]:
    """Key -> its task that waits or runs; of several the one that runs."""
    known = {wave.job_name: wave.keys for wave in waves}
    found: dict[str, QueuedTask] = {}
    for task in queue:
        keys = known.get(task.job_name, ())
        if task.index < len(keys) and (keys[task.index] not in found or task.state == "RUNNING"):
            found[keys[task.index]] = task
    return found


def hopeless(tasks: Mapping[str, QueuedTask]) -> dict[str, QueuedTask]:
    """Those that wait for what never comes."""
    return {key: task for key, task in tasks.items() if task.state == "PENDING" and can_never_start(task.reason)}


def missing(wanted: Iterable[Wanted], done: Collection[str], queued: Collection[str]) -> list[Wanted]:
    """What has to be submitted: the plan, without what is done and what waits or runs already."""
    return [one for one in wanted if one.key not in done and one.key not in queued]


def arrays(wanted: Iterable[Wanted], largest: int) -> Iterator[Sequence[Wanted]]:
    """One array for each endpoint and resources, and more where Slurm takes no array so large."""
    together: dict[tuple[str, str], list[Wanted]] = {}
    for one in wanted:
        together.setdefault((one.group, one.resources), []).append(one)
    for same in together.values():
        for start in range(0, len(same), largest):
            yield same[start : start + largest]
