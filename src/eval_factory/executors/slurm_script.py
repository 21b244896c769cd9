"""The text of a batch script of Slurm: an array of tasks, each of which does one thing of a list. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARNED_S = 30
"""Seconds before the end of its time that a task is told (SIGTERM), so that it ends what it began."""


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
    yield "--nodes=1"
    yield "--ntasks=1"
    yield f"--cpus-per-task={asked['cpus']}"
    for name in ("account", "partition", "qos", "time", "mem", "gpus"):
        if asked[name] is not None:
            yield f"--{name}={asked[name]}"
    yield f"--output={_file_pattern(job.log)}/%a.log"
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--signal=B:TERM@{WARNED_S}"
    yield "--export=NONE"
    yield from asked["extra"]


def _file_pattern(path: Path) -> str:
    """As sbatch reads it: `%` begins a pattern, and quotes and backslashes are its own."""
    text = str(path).replace("%", "%%")
    return "".join(f"\\{character}" if character in " \"'\\#" else character for character in text)


def _command(job: BatchJob) -> str:
    words = [job.resources["python"], *job.argv]
    container = job.resources["container"]
    return " ".join([*([container] if container else []), shlex.join(words)])
