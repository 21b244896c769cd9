"""Calls Slurm's commands, interprets the reasons why tasks wait, and writes batch scripts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.executors.process import CapturedProgram, run_captured

PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SLURM_CONF",
    "SLURM_CLUSTERS",
    "SLURM_JWT",
)
"""The environment variables that Slurm's commands get.

Keys are not among them, nor SBATCH_* and SQUEUE_*, which would override the batch script.
"""
COMMAND_LIMIT_S = 60.0  # the maximum duration of a command of Slurm, in seconds
MAX_ERROR_LENGTH = 300  # the maximum length of a command's error in a message, in characters
CommandRunner = Callable[[Sequence[str], Mapping[str, str], float], CapturedProgram]
"""The type of `run_captured`.

Its arguments are the command, the environment variables, and the time limit in seconds.
"""


class QueueUnknownError(PrerequisiteError):
    """Slurm does not report its queue. Callers must not treat this error as an empty queue."""


@dataclass(frozen=True)
class QueuedTask:
    """A task of a job array in Slurm's queue."""

    job_name: str
    job_id: str
    """The id of the array.

    After a crash, Slurm may assign the same id again. The id is therefore used only for messages
    and for an immediate `cancel`.
    """
    index: int  # the number of the task in the array
    state: str  # Slurm's name of the state: PENDING, RUNNING, COMPLETING ...
    reason: str  # Slurm's reason why the task waits


class Slurm:
    """The commands of Slurm, called as programs."""

    def __init__(self, env: Mapping[str, str], run: CommandRunner = run_captured) -> None:
        self._env = {name: env[name] for name in PASSED_VARIABLES if name in env}
        self._run = run

    def submit(self, script: Path, after: str | None = None) -> str:
        """Submit a batch script; return the id of the new job.

        `after`: the id of another job. The new job starts when all tasks of the other job have
        ended.

        Raises:
            PrerequisiteError: sbatch failed or printed no job id. The job may be queued
                nevertheless.
        """
        dependency = []
        if after is not None:
            dependency = [f"--dependency=afterany:{after}"]
        finished = self._call(["sbatch", "--parsable", *dependency, str(script)])
        lines = finished.stdout.strip().splitlines()
        last_line = lines[-1] if lines else ""
        match = re.fullmatch(r"(\d+)(;.*)?", last_line)  # "1234", or "1234;cluster"
        if finished.returncode or match is None:
            raise PrerequisiteError(
                f"sbatch does not accept {script}: {_error_line(finished)}\n"
                "  correct suite.slurm (account, partition, time, ...), "
                "then run the same command again"
            )
        return str(match[1])

    def queue(self) -> tuple[QueuedTask, ...]:
        """Return every waiting or running array task of this user.

        Raises:
            QueueUnknownError: squeue failed, or its output cannot be read.
        """
        argv = [
            "squeue",
            "--noheader",
            "--array",
            f"--user={os.getuid()}",
            "--format=%j|%F|%K|%T|%r",  # name, id, index, state and reason
        ]
        finished = self._call(argv)
        if finished.returncode:
            raise QueueUnknownError(
                f"squeue does not report the queue: {_error_line(finished)}\n"
                "  run the same command again when Slurm answers"
            )
        tasks = []
        for line in finished.stdout.splitlines():
            name, *columns = line.rsplit("|", 4)  # only the name of a job may contain "|"
            if len(columns) != 4:
                raise QueueUnknownError(
                    f"squeue printed a line that cannot be read: {one_line(line, MAX_ERROR_LENGTH)}"
                )
            job_id, index, state, reason = columns
            if index.isdecimal():  # jobs without array are not jobs of eval-factory
                tasks.append(QueuedTask(name, job_id, int(index), state, reason))
        return tuple(tasks)

    def cancel(self, name: str, tasks: Sequence[QueuedTask] = ()) -> None:
        """Cancel all jobs of this user with this name; if `tasks` is not empty, only these tasks.

        Raises:
            PrerequisiteError: scancel failed.
        """
        task_ids = [f"{task.job_id}_{task.index}" for task in tasks]
        finished = self._call(["scancel", f"--user={os.getuid()}", f"--name={name}", *task_ids])
        # scancel reports an invalid job id if the job has ended in the meantime.
        if finished.returncode and "Invalid job id" not in finished.stderr:
            raise PrerequisiteError(
                f"scancel does not cancel {name}: {_error_line(finished)}\n"
                "  run the same command again"
            )

    def max_array_size(self) -> int:
        """Return the maximum number of tasks in an array.

        Raises:
            PrerequisiteError: scontrol failed or does not report the number.
        """
        finished = self._call(["scontrol", "show", "config"])
        # a line such as "MaxArraySize            = 1001"
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", finished.stdout, re.MULTILINE)
        if finished.returncode or match is None:
            raise PrerequisiteError(
                f"scontrol does not report Slurm's configuration: {_error_line(finished)}\n"
                "  can jobs be submitted from this machine?"
            )
        # Tasks have the indices from 0 to MaxArraySize - 1 (slurm.conf(5)).
        # MaxArraySize is 0 if the cluster has no arrays; sbatch then reports this.
        return max(1, int(match[1]))

    def _call(self, argv: Sequence[str]) -> CapturedProgram:
        """Run a command of Slurm for at most `COMMAND_LIMIT_S`.

        Raises:
            PrerequisiteError: the command does not exist.
        """
        try:
            return self._run(argv, self._env, COMMAND_LIMIT_S)
        except FileNotFoundError:
            raise PrerequisiteError(
                f"{argv[0]} is not installed: executor slurm needs Slurm's commands\n"
                "  run the command on a login node of a cluster, or choose --executor local"
            ) from None


def _error_line(finished: CapturedProgram) -> str:
    """Return a line that says why a command failed.

    The line is the last line of standard error. If standard error is empty, it is the last line of
    standard output. If both are empty, the line states the exit code.
    """
    text = finished.stderr.strip() or finished.stdout.strip()
    text = text or f"the command ended with exit code {finished.returncode}"
    return one_line(text.splitlines()[-1], MAX_ERROR_LENGTH)


NEVER_ENDING_REASONS = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "JobHoldMaxRequeue",
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "ReservationDeleted",
        "launch_failed_requeued_held",
        "job_requeued_in_held_state",
    }
)
"""The reasons of tasks that Slurm can never start: the job has to be submitted differently."""
_JOB_LIMIT_REASON = re.compile(r"(QOS|Assoc)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+")
"""Matches reasons that name a limit for a single job, which the job exceeds.

Examples: QOSMaxCpuPerJobLimit, AssocMaxNodePerJobLimit, QOSMinGRES.
Limits for a user, an account or a group (`PerUser`, `Grp`) do not match: they end when other jobs
end.
"""
NO_REASON = frozenset({"", "None", "JobArrayTaskLimit"})
"""Reasons that are not shown: Slurm has no reason yet, or the suite's own `tasks_at_once` is
reached.
"""


def can_never_start(reason: str) -> bool:
    """Return True if a task with this reason never starts and has to be submitted differently.

    Returns False for tasks that an administrator or a user holds: they may be released later.
    """
    # Versions of Slurm print some reasons with spaces, others with underscores.
    name = reason_name(reason).replace(" ", "_")
    return name in NEVER_ENDING_REASONS or _JOB_LIMIT_REASON.fullmatch(name) is not None


def reason_name(reason: str) -> str:
    """Return the reason without parentheses and surrounding spaces."""
    return reason.strip().strip("()")


_NOT_FOR_CLEAN_UP = re.compile(
    "--(mem|cpus|cores|gpus|ntasks|sockets|threads|exclusive|time|begin|deadline|hold|mail)"
)
"""Matches the options of `slurm.extra` that the clean-up job leaves out: `--mem-per-cpu=4G`.

The clean-up job only deletes a file, after the jobs of the suite have ended.
"""


def batch_script(
    resources: Mapping[str, Any],
    argv: Sequence[str],
    *,
    name: str,
    tasks: int,
    at_once: int,
    log_folder: Path,
    servers: int = 1,
) -> str:
    """Return the batch script of a job array.

    Slurm starts lost tasks again. The tasks get no variable of the submitter's environment. `exec`
    replaces the script by the worker, so that Slurm's signals reach the worker.

    Args:
        resources: all keys of suite.slurm.
        argv: the arguments of Python in each task. A task finds its number in SLURM_ARRAY_TASK_ID,
            from 0.
        name: the name of the job.
        tasks: the number of tasks in the array.
        at_once: the maximum number of tasks that run at once.
        log_folder: the folder for the log files. Each task has its own file; restarts append to it.
        servers: the number of model servers of each task; 1 also if the tasks start no server. Each
            server gets the resources.
    """
    has_one_server = servers == 1
    array = f"0-{tasks - 1}%{min(at_once, tasks)}"  # "0-9%4": ten tasks, at most 4 at once
    options = [f"--job-name={name}", f"--array={array}"]
    options += ["--nodes=1", "--ntasks=1"] if has_one_server else [f"--ntasks={servers}"]
    options.append(f"--cpus-per-task={resources['cpus']}")
    options += [
        f"--{key}={resources[key]}"
        for key in ("account", "partition", "qos", "time")
        if resources[key] is not None
    ]
    memory = resources["mem"]
    gpus = resources["gpus"]
    if has_one_server:
        if memory is not None:
            options.append(f"--mem={memory}")
        if gpus is not None:
            options.append(f"--gpus={gpus}")
    else:
        if memory is not None:
            options.append(f"--mem-per-cpu={_memory_per_cpu(str(memory), resources['cpus'])}")
        if gpus is not None:
            options.append(f"--gpus-per-task={gpus}")
    log_files = _file_pattern(log_folder, "%a.log")  # Slurm replaces %a by the number of the task
    options += [f"--output={log_files}", "--open-mode=append", "--requeue"]
    # Slurm sends SIGTERM 30 seconds before the time limit, so that the worker can end its
    # processes.
    options += ["--signal=B:TERM@30", "--export=NONE", *resources["extra"]]
    command = []
    if resources["container"]:
        command.append(resources["container"])  # a command prefix
    command.append(shlex.join([resources["python"], *argv]))
    header = [f"#SBATCH {option}" for option in options]
    lines = ["#!/bin/bash", *header, "", *resources["prologue"], f"exec {' '.join(command)}"]
    return "\n".join(lines) + "\n"


MEMORY_SIZE = re.compile(r"(?P<number>\d+)(?:(?P<unit>[KMGT])B?)?", re.IGNORECASE | re.ASCII)
"""Matches a size of memory that Slurm accepts: `4G`, `4gb`, or `500`, a number of megabytes."""


def _memory_per_cpu(memory: str, cpus: int) -> str:
    """Return the memory of a server divided by its number of CPUs, rounded up, such as `4096K`.

    Slurm's `--mem` is the memory of a node, which may have several servers. The memory of a server
    is therefore requested for each of its CPUs.

    Raises:
        ValueError: `memory` does not match `MEMORY_SIZE`.
    """
    size = MEMORY_SIZE.fullmatch(memory)
    if size is None:
        raise ValueError(f"{memory!r} is not a size of memory")
    unit = (size["unit"] or "M").upper()
    kibibytes = int(size["number"]) * 1024 ** "KMGT".index(unit)
    rounded_up = -(-kibibytes // cpus)  # `//` rounds down; with a minus before and after it, up
    return f"{rounded_up}K"


def step_command(resources: Mapping[str, Any]) -> list[str]:
    """Return the srun command that starts a program as a step of the current job.

    The program's own arguments follow this command. The step gets the CPUs and GPUs of one model
    server, and shares the job's memory on its node. srun passes on input, output and signals.
    """
    gpus = []
    if resources["gpus"] is not None:
        gpus = [f"--gpus-per-task={resources['gpus']}"]
    cpus = f"--cpus-per-task={resources['cpus']}"
    return ["srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--exact", "--mem=0", cpus, *gpus]


def clean_up_script(
    job: str, resources: Mapping[str, Any], *, log_folder: Path, file_to_delete: Path
) -> str:
    """Return the batch script of a small job that deletes a file after the end of another job.

    Slurm starts the script when the other job has ended. Slurm also starts the script if it has
    forgotten the other job. The script therefore deletes the file only when squeue reports no task
    with the other job's name. If squeue does not answer, the file stays.

    Args:
        job: the name of the other job.
        resources: all keys of suite.slurm.
        log_folder: the folder for the log file.
        file_to_delete: this file is deleted after the end of the other job.
    """
    options = [f"--job-name={clean_up_name(job)}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"]
    options += ["--mem=100M", "--time=10"]  # a time in minutes
    options += [
        f"--{name}={resources[name]}"
        for name in ("account", "partition", "qos")
        if resources[name] is not None
    ]
    options += [
        f"--output={_file_pattern(log_folder, 'clean-up.log')}",
        "--open-mode=append",
        "--requeue",
        "--export=NONE",
    ]
    options += [option for option in resources["extra"] if not _NOT_FOR_CLEAN_UP.match(option)]
    commands = [
        # 50 pauses of 10 seconds end before the time limit of 10 minutes.
        "for ((i = 0; i < 50; i++)); do",
        f"  left=$(squeue --noheader --name={job} --format=%T) || left=unknown",
        f"  [[ -z $left ]] && exec rm -f -- {shlex.quote(str(file_to_delete))}",
        "  sleep 10",
        "done",
        "exit 1",
    ]
    header = [f"#SBATCH {option}" for option in options]
    return "\n".join(["#!/bin/bash", *header, "", *commands]) + "\n"


def clean_up_name(name: str) -> str:
    """Return the name of the clean-up job of the job `name`."""
    return f"{name}-clean-up"


def _file_pattern(folder: Path, name: str) -> str:
    """Return the path of a file with the escapes that sbatch requires.

    `%` begins a pattern. A path with spaces must be quoted, for a backslash escapes a quote but not
    a space (Slurm 22.05).
    """
    text = f"{str(folder).replace('%', '%%')}/{name}"
    if not any(character in " \"'\\#" for character in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
