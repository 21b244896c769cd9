"""What is submitted to Slurm next: all that is planned, and neither done nor queued. Pure.

Tasks are known by the name of their job and their place in its list, never by a job's id, which Slurm may use twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    together: bool = False
    """One task does all of them."""


@dataclass(frozen=True)
class Wanted:
    """Something that is to be done."""

    key: str
    group: str
    """Things of one group are asked of one endpoint."""
    resources: str
    """Things with the same text go into one array."""
    at_once: int
    together: bool = False
    """All things of its group are done by one task: they ask one server, which the task starts."""


def job_name(suite_id: str, number: int) -> str:
    return f"ef-{suite_id}-w{number}"


def active(queue: Iterable[QueuedTask], waves: Iterable[Wave]) -> dict[str, QueuedTask]:
    """Key -> its task that waits or runs; of several the one that runs."""
    known = {wave.job_name: wave for wave in waves}
    found: dict[str, QueuedTask] = {}
    for task in queue:
        wave = known.get(task.job_name)
        for key in () if wave is None else _keys_of(wave, task.index):
            if key not in found or task.state == "RUNNING":
                found[key] = task
    return found


def _keys_of(wave: Wave, task: int) -> tuple[str, ...]:
    return wave.keys if wave.together else wave.keys[task : task + 1]


def hopeless(tasks: Mapping[str, QueuedTask]) -> dict[str, QueuedTask]:
    """Those that wait for what never comes."""
    return {key: task for key, task in tasks.items() if task.state == "PENDING" and can_never_start(task.reason)}


def arrays(wanted: Iterable[Wanted], largest: int) -> Iterator[Sequence[Wanted]]:
    """One array for each endpoint and resources, and more where Slurm takes no array so large.

    What is done together is an array of one task, however much it is.
    """
    together: dict[tuple[str, str], list[Wanted]] = {}
    for one in wanted:
        together.setdefault((one.group, one.resources), []).append(one)
    for same in together.values():
        size = len(same) if same[0].together else largest
        for start in range(0, len(same), size):
            yield same[start : start + size]
