"""Measures and ends processes for benchmarks.

Linux only: it reads /proc, the PSS (in which memory that processes share is counted once), and the
greatest memory of a process (VmHWM).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOT_REPORTABLE = 1
"""The exit code of a run whose score is not reportable, for example because the endpoint states the
name of another model.
"""

RUN_LIMIT_S = 3600  # the time limit of a program
SAMPLE_S = 0.05  # the time between two measurements of memory


@dataclass
class Took:
    """Times in seconds."""

    wall_s: float = 0.0
    cpu_s: float = 0.0  # the CPU time of all child processes that have ended


@contextmanager
def timed() -> Iterator[Took]:
    """Measure the code within this context. The yielded times are set at the end of the context."""
    took = Took()
    before = os.times()
    started = time.monotonic()
    yield took
    took.wall_s = time.monotonic() - started
    after = os.times()
    took.cpu_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def tree_of(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants; parents come before children."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    tree = [pid]
    for parent in tree:  # The list grows during the loop.
        tree += children.get(parent, [])
    return tree


def megabytes(file: Path, name: str) -> float:
    """Return a value of a file below /proc, in MB; 0 if the process has ended.

    Args:
        file: the file; it states values in kB, as in `Pss:   1234 kB`.
        name: the name of the value.
    """
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0.0
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def held_mb(tree: list[int], name: str = "Pss") -> float:
    """Return the memory of processes together, in MB.

    `name` is the kind of memory: `Pss` for all memory, `Pss_Anon` without pages of files.
    """
    return sum(megabytes(Path(f"/proc/{pid}/smaps_rollup"), name) for pid in tree)


def run_watched(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], log: Path, *, memory: bool = True
) -> tuple[int, float]:
    """Run a program, and return its exit code and the greatest memory of its processes, in MB.

    The program is killed after an hour.

    Args:
        argv: the program with its arguments.
        folder: the working directory.
        env: further environment variables.
        log: the file for the program's output.
        memory: True to measure memory all the time, which takes a part of a processor's time.
    """
    deadline = time.monotonic() + RUN_LIMIT_S
    peak = 0.0
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, stdout=output, stderr=output, cwd=folder, env={**os.environ, **env}
        ) as process,
    ):
        while memory and process.poll() is None and time.monotonic() < deadline:
            peak = max(peak, held_mb(tree_of(process.pid)))
            time.sleep(SAMPLE_S)
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    return process.returncode, peak


def kill_everything(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all its descendants (SIGKILL).

    Parents are killed first, so that they cannot start further processes.
    """
    for pid in tree_of(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
