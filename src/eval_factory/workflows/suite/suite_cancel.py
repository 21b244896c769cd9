"""Ask a suite that runs to stop, as Ctrl-C in its own terminal does."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.slurm_status import cancel_jobs
from eval_factory.workflows.suite.suite_status import UNKNOWN, SuiteStatus, holder_now, status_of

POLL_S = 0.2
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
    _interrupt(holder.pid, folder)
    say(f"asked process {holder.pid} to stop: waiting for it ...")
    _wait(folder, holder.pid)
    return status_of(folder)


def _interrupt(pid: int, folder: SuiteDir) -> None:
    try:
        os.kill(pid, signal.SIGTERM if ignores_interrupts(pid) else signal.SIGINT)
    except ProcessLookupError:  # it has just ended
        pass
    except PermissionError:
        raise PrerequisiteError(f"{folder.root}: process {pid} is another user's: ask its owner to stop it") from None


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


def _wait(folder: SuiteDir, pid: int) -> None:
    started = time.monotonic()
    while (holder := holder_now(folder)) is not None and holder.pid == pid:
        if time.monotonic() - started > LONGEST_S:
            raise PrerequisiteError(
                f"{folder.root}: process {pid} was asked to stop and has not ended after {LONGEST_S:.0f} s;"
                f" see {folder.log}; to end it at once: kill -9 {pid} (the same command goes on afterwards)"
            )
        time.sleep(POLL_S)
