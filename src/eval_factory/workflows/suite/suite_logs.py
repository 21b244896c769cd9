"""A running suite: the logs of its cells, and its end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.formats import first_of
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.executors.progress import LineTail
from eval_factory.workflows.suite.suite_journal import UNFINISHED
from eval_factory.workflows.suite.suite_status import (
    NOT_KNOWN,
    UNKNOWN,
    CellStatus,
    SuiteReader,
    SuiteStatus,
    cancel_jobs,
    holder_now,
    status_of,
)


def show_logs(reader: SuiteReader, wanted: str | None, write: Callable[[str], object], *, follow: bool) -> None:
    """Every line of the cell's logs.

    Args:
        wanted: may be None where there is one cell alone.
        follow: go on until the cell has ended, or the suite.

    Raises:
        ConfigError, PrerequisiteError: there is no such cell; it has no logs.
    """
    status = reader.look()
    cell = find_cell(status, wanted)
    tails: dict[Path, LineTail] = {}
    last: LineTail | None = None
    while True:
        # what Slurm says of its task, what a run by itself would show, the program's own log, and HELM's
        job, state, rundir = cell.job, cell.state, RunDir(cell.folder)
        paths = [status.folder.cell_log(state.target, state.evaluation), rundir.program_log, rundir.helm_log]
        if job is not None:
            begun = job.task is None or job.work is not None  # else the logs in its folder are of an earlier run
            paths = [job.log, *(paths if begun else paths[:1])]
        tails |= {path: LineTail(path) for path in paths if path not in tails}
        if not follow and not any(path.is_file() for path in tails):
            raise PrerequisiteError(
                f"{state.name}: has no logs yet: {state.status}"
                f"{f', {state.reason}' if state.reason else ''}; -f waits for them"
            )
        goes_on = follow and (state.status in UNFINISHED or state.reason == NOT_KNOWN)
        for tail in tails.values():
            lines = list(tail.lines())
            for line in lines if goes_on or not tail.rest else [*lines, tail.rest]:
                if tail is not last:
                    write(f"==> {tail.path} <==")
                    last = tail
                write(printable(line.decode("utf-8", errors="replace")))
        if not goes_on:
            return
        time.sleep(0.5)
        status = reader.look()
        cell = find_cell(status, state.name)


def find_cell(status: SuiteStatus, wanted: str | None) -> CellStatus:
    """The cell of that name, or the only one whose name has this in it.

    Raises:
        ConfigError: there is none, or more than one; the message names some.
    """
    names = {cell.state.name: cell for cell in status.cells}
    there = first_of(list(names), 10) or "none yet"
    if wanted is None and len(names) != 1:
        raise ConfigError(f"give the name of a cell, or a part of it; the suite has: {there}")
    wanted = wanted or ""
    if wanted in names:
        return names[wanted]
    found = [name for name in names if wanted in name]
    if len(found) == 1:
        return names[found[0]]
    shown = one_line(repr(wanted))
    if found:
        raise ConfigError(f"{shown} is part of {len(found)} cells: {first_of(found, 10)}; give more of the name")
    raise ConfigError(f"there is no cell {shown}; the suite has: {there}")


LONGEST_S = 120.0
"""A suite that is asked to stop ends its cells' processes, a few seconds each at most, and writes the table."""


def cancel(folder: SuiteDir, say: Callable[[str], object]) -> SuiteStatus | None:
    """End the suite's jobs in Slurm, interrupt the process that works on it, and wait for its end.

    Returns:
        Where the suite stands afterwards; None where nothing ran.

    Raises:
        PrerequisiteError: it runs on another machine, is another user's, or does not end.
    """
    had_jobs = cancel_jobs(folder, say)
    holder = holder_now(folder)
    if holder is None:
        return status_of(folder) if had_jobs else None
    if holder == UNKNOWN:
        raise PrerequisiteError(f"{folder.root}: somebody has just begun to work on the suite: try again in a moment")
    if holder.host != socket.gethostname() and had_jobs:
        return status_of(folder)  # it only waits for them, and sees that they were ended
    if holder.host != socket.gethostname():
        raise PrerequisiteError(
            f"{folder.root}: the suite runs on {holder.host} (process {holder.pid}), not on this machine:"
            f" run 'eval-factory suite cancel' there"
        )
    pid = holder.pid
    try:
        os.kill(pid, signal.SIGTERM if ignores_interrupts(pid) else signal.SIGINT)
    except ProcessLookupError:  # it has just ended
        pass
    except PermissionError:
        raise PrerequisiteError(f"{folder.root}: process {pid} is another user's: ask its owner to stop it") from None
    say(f"asked process {pid} to stop: waiting for it ...")
    started = time.monotonic()
    while (holder := holder_now(folder)) is not None and holder.pid == pid:
        if time.monotonic() - started > LONGEST_S:
            raise PrerequisiteError(
                f"{folder.root}: process {pid} was asked to stop and has not ended after {LONGEST_S:.0f} s;"
                f" see {folder.log}; to end it at once: kill -9 {pid} (the same command goes on afterwards)"
            )
        time.sleep(0.2)
    return status_of(folder)


def ignores_interrupts(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether SIGINT does nothing, as in what a script's shell starts with `&`; False where nobody can tell.

    SigIgn in /proc/PID/status is a mask in hexadecimal digits, a bit for each signal from 1 on (proc_pid_status(5)).
    """
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8").splitlines()
        (ignored,) = (line.split()[1] for line in lines if line.startswith("SigIgn:"))
        return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False
