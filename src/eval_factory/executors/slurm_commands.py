"""Slurm by its own commands: sbatch, squeue, scancel and scontrol. None of them is taken at more than its word."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.executors.process import Captured, run_captured

TIMEOUT_S = 60.0
SEEN_BY_SLURM = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SLURM_CONF",
    "SLURM_CLUSTERS", "SLURM_JWT",
)  # fmt: skip
"""No key; and no SBATCH_* or SQUEUE_*, which would stand over what a batch script says."""
_FIELDS = "%j|%F|%K|%T|%r"
_JOB_ID = re.compile(r"(\d+)(;.*)?")
_LARGEST_ARRAY = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.MULTILINE)
Run = Callable[[Sequence[str], Mapping[str, str], float], Captured]


class QueueUnknownError(PrerequisiteError):
    """Slurm does not say what is queued: nobody may take that for an empty queue."""


@dataclass(frozen=True)
class QueuedTask:
    """A task of an array that waits or runs."""

    job_name: str
    job_id: str
    """Of the array. Slurm may use it again after a crash: good for a message, and for `cancel` right now."""
    index: int
    state: str
    """As Slurm says it: PENDING, RUNNING, COMPLETING ..."""
    reason: str
    """Why it waits."""


class Slurm:
    """The Slurm that this machine's commands speak to."""

    def __init__(self, env: Mapping[str, str], run: Run = run_captured) -> None:
        self._env = {name: env[name] for name in SEEN_BY_SLURM if name in env}
        self._run = run

    def submit(self, script: Path, after: str | None = None) -> str:
        """Returns the job's id.

        Args:
            after: the id of a job; this one begins when no task of it is left, however they ended.

        Raises:
            PrerequisiteError: sbatch refuses it, or does not say; it may then be queued all the same.
        """
        dependency = [] if after is None else [f"--dependency=afterany:{after}"]
        done = self._do(["sbatch", "--parsable", *dependency, str(script)])
        found = _JOB_ID.fullmatch(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None
        if done.returncode or found is None:
            raise PrerequisiteError(
                f"sbatch does not take {script}: {_said(done)}\n"
                "  set suite.slurm right (account, partition, time, ...), then run the same command again"
            )
        return found[1]

    def queue(self) -> tuple[QueuedTask, ...]:
        """Every task of this user's arrays that waits or runs.

        Raises:
            QueueUnknownError: squeue fails, or says what cannot be read.
        """
        argv = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", f"--format={_FIELDS}"]
        done = self._do(argv)
        if done.returncode:
            raise QueueUnknownError(
                f"squeue does not say what is queued: {_said(done)}\n  run the same command again when Slurm answers"
            )
        return tuple(parse_queue(done.stdout))

    def cancel(self, name: str, tasks: Sequence[QueuedTask] = ()) -> None:
        """Every job of this name, or only these tasks of it.

        Raises:
            PrerequisiteError: scancel fails.
        """
        chosen = [f"{task.job_id}_{task.index}" for task in tasks]
        done = self._do(["scancel", f"--user={os.getuid()}", f"--name={name}", *chosen])
        if done.returncode and "Invalid job id" not in done.stderr:  # it has ended meanwhile
            raise PrerequisiteError(f"scancel does not cancel {name}: {_said(done)}\n  run it again")

    def largest_array(self) -> int:
        """How many tasks an array may have.

        Raises:
            PrerequisiteError: scontrol does not say.
        """
        done = self._do(["scontrol", "show", "config"])
        found = _LARGEST_ARRAY.search(done.stdout)
        if done.returncode or found is None:
            raise PrerequisiteError(
                f"scontrol does not say how Slurm is set up: {_said(done)}\n"
                "  is this a machine from which jobs are submitted?"
            )
        return max(1, int(found[1]) - 1)

    def _do(self, argv: Sequence[str]) -> Captured:
        try:
            return self._run(argv, self._env, TIMEOUT_S)
        except FileNotFoundError:
            raise PrerequisiteError(
                f"{argv[0]} is not there: executor slurm needs Slurm's commands\n"
                "  run it on a login node of a cluster, or choose --executor local"
            ) from None


def parse_queue(text: str) -> Iterable[QueuedTask]:
    """
    Raises:
        QueueUnknownError: a line is not as it was asked for.
    """
    for line in text.splitlines():
        name, *others = line.rsplit("|", 4)
        if len(others) != 4:
            raise QueueUnknownError(f"squeue says what cannot be read: {one_line(line, 200)}")
        job_id, index, state, reason = others
        if index.isdecimal():  # of no array: none of ours
            yield QueuedTask(name, job_id, int(index), state, reason)


def _said(done: Captured) -> str:
    lines = (done.stderr.strip() or done.stdout.strip() or f"it ended with {done.returncode}").splitlines()
    return one_line(lines[-1], 300)
