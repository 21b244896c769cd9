"""The text of a batch script of Slurm: an array of tasks, each of which does one thing of a list. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARNED_S = 30
"""Seconds before the end of its time that a task is told (SIGTERM), so that it ends what it began."""

CLEAN_UP_MEMORY, CLEAN_UP_MINUTES = "100M", 10
CLEAN_UP_LOOKS, CLEAN_UP_PAUSE_S = 50, 10
"""Within the job's own time."""
_OF_LARGE_JOBS = re.compile("--(mem|cpus|cores|gpus|ntasks|sockets|threads|exclusive|time|begin|deadline|hold|mail)")
"""What of `extra` a job that deletes a file does not ask for."""


@dataclass(frozen=True)
class BatchJob:
    """An array of tasks."""

    name: str
    tasks: int
    at_once: int
    """Tasks of it that run at once."""
    log: Path
    """A folder; each task has a file of its own in it, to which a further start of the task is added."""
    resources: Mapping[str, Any]
    """Every key of suite.slurm."""
    argv: Sequence[str]
    """What each task does, after Python's own name. Its number is SLURM_ARRAY_TASK_ID, from 0."""
    servers: int = 1
    """Of a model, that each task starts as steps; the resources are asked for each of them."""


def batch_script(job: BatchJob) -> str:
    """Whatever is lost starts again, nothing of the submitter's environment comes along, and the worker is the batch
    process itself, so that signals reach it.
    """
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(job)), "", *job.resources["prologue"]]
    return "\n".join([*lines, f"exec {_command(job)}"]) + "\n"


def _options(job: BatchJob) -> Iterator[str]:
    asked = job.resources
    yield f"--job-name={job.name}"
    yield f"--array=0-{job.tasks - 1}%{min(job.at_once, job.tasks)}"
    yield from ("--nodes=1", "--ntasks=1") if job.servers == 1 else (f"--ntasks={job.servers}",)
    yield f"--cpus-per-task={asked['cpus']}"
    for name in ("account", "partition", "qos", "time"):
        if asked[name] is not None:
            yield f"--{name}={asked[name]}"
    if asked["mem"] is not None:  # Slurm's own is of a node, which may have several servers
        each = asked["mem"] if job.servers == 1 else _part_of_memory(asked["mem"], asked["cpus"])
        yield f"--{'mem' if job.servers == 1 else 'mem-per-cpu'}={each}"
    if asked["gpus"] is not None:
        yield f"--{'gpus' if job.servers == 1 else 'gpus-per-task'}={asked['gpus']}"
    yield f"--output={_file_pattern(job.log, '%a.log')}"
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--signal=B:TERM@{WARNED_S}"
    yield "--export=NONE"
    yield from asked["extra"]


def _part_of_memory(text: str, parts: int) -> str:
    number, unit = (text[:-1], text[-1]) if text[-1].isalpha() else (text, "M")
    return f"{-(-int(number) * 1024 ** ('KMGT'.index(unit)) // parts)}K"


def step_words(asked: Mapping[str, Any]) -> list[str]:
    """What starts a program as a step of the job that this is in, with the resources of one of its servers.

    It shares the memory of the job on its node, and what goes into it, comes from it and ends it goes through srun.
    """
    gpus = [] if asked["gpus"] is None else [f"--gpus-per-task={asked['gpus']}"]
    cpus = f"--cpus-per-task={asked['cpus']}"
    return ["srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--exact", "--mem=0", cpus, *gpus]


def clean_up_script(job: BatchJob, file: Path) -> str:
    """A small job that deletes a file when no task of `job` is left, however the tasks ended.

    It is submitted to begin after them. Slurm takes a job that it has forgotten for one that has
    ended, so it looks for the tasks by their name before it deletes; where it cannot, it leaves the file alone.
    """
    asked = job.resources
    lines = [f"--job-name={clean_up_name(job.name)}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"]
    lines += [f"--mem={CLEAN_UP_MEMORY}", f"--time={CLEAN_UP_MINUTES}"]
    lines += [f"--{name}={asked[name]}" for name in ("account", "partition", "qos") if asked[name] is not None]
    lines += [f"--output={_file_pattern(job.log, 'clean-up.log')}", "--open-mode=append", "--requeue", "--export=NONE"]
    look = f"left=$(squeue --noheader --name={job.name} --format=%T) || left=unknown"
    return "\n".join(
        [
            "#!/bin/bash", *(f"#SBATCH {line}" for line in (*lines, *filter(_is_of_any_job, asked["extra"]))), "",
            f"for ((i = 0; i < {CLEAN_UP_LOOKS}; i++)); do",
            f"  {look}",
            f'  [[ -z $left ]] && exec rm -f -- {shlex.quote(str(file))}',
            f"  sleep {CLEAN_UP_PAUSE_S}",
            "done",
            "exit 1",
        ]
    ) + "\n"  # fmt: skip


def _is_of_any_job(option: str) -> bool:
    return _OF_LARGE_JOBS.match(option) is None


def clean_up_name(name: str) -> str:
    """Of the job that cleans up after the job of this name."""
    return f"{name}-clean-up"


def _file_pattern(folder: Path, name: str) -> str:
    """As sbatch reads it: `%` begins a pattern. A backslash helps before a quote, and not before a space (22.05)."""
    text = f"{str(folder).replace('%', '%%')}/{name}"
    if not any(character in " \"'\\#" for character in text):
        return text
    return '"' + "".join(f"\\{character}" if character in '"\\' else character for character in text) + '"'


def _command(job: BatchJob) -> str:
    words = [job.resources["python"], *job.argv]
    container = job.resources["container"]
    return " ".join([*([container] if container else []), shlex.join(words)])
