"""The folder of a suite: found, held by one process, seen and stopped by others, its configs
written.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eval_factory.config.suite import Suite
from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import (
    OF_ONE_RUN,
    Holder,
    RunDir,
    SuiteDir,
    is_running,
    keep_from_git,
    open_lock,
    suite_dir,
)
from eval_factory.core.safe_files import refuse_foreign, write_atomic
from eval_factory.data.bundle import MANIFEST
from eval_factory.executors.slurm import Slurm
from eval_factory.executors.slurm_runs import SlurmRuns, SlurmStore, active


def find_suite(path: Path) -> SuiteDir:
    """Return the suite in the folder `path`; for a run that Slurm does, the suite that it is.
    Raises PrerequisiteError: it is not a suite's folder (the message says what it is, and which may
    be meant), or a file of it lies elsewhere.
    """
    for folder in (suite_dir(path), suite_dir(path / OF_ONE_RUN)):
        if folder.was_started:
            refuse_foreign(folder.named, folder.own)
            return folder
    kind = "is not the folder of a suite"
    if not os.path.lexists(path):
        kind = "there is no such folder"
    elif not path.is_dir():
        kind = "is a file"
    elif RunDir(path).marker.is_file():
        kind = "is the output folder of one run, not of a suite"
    elif (path / MANIFEST).is_file():
        kind = "is a data bundle ('eval-factory data verify' checks one), not a suite"
    hint = ""
    for above in Path(os.path.abspath(path)).parents:
        if SuiteDir(above).was_started:
            hint = f"; did you mean {one_line(str(above), 1000)}?"
            break
    raise PrerequisiteError(
        f"{one_line(str(path), 1000)}: {kind}{hint}\n"
        "  expected: the output_dir of a suite, which 'eval-factory run_suite' has started"
    )


MAX_LOOK_S = 1.0  # somebody who only looks whether it is held holds it for an instant


@contextmanager
def locked(folder: SuiteDir) -> Iterator[None]:
    """Make the folder, and hold it. Who holds it stands in the lock's file; the lock ends with this
    process. Raises ConfigError: it is a run's output folder; BusyError: another process works on
    it; PrerequisiteError: no folder, no lock can be made.
    """
    if RunDir(folder.root).marker.is_file():
        raise ConfigError(
            f"suite.output_dir: {folder.root} is the output folder of one run\n"
            "  choose another folder for the suite"
        )
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        keep_from_git(folder.root, is_ours=folder.state.exists())
        folder.state.mkdir(exist_ok=True)
        descriptor = open_lock(folder.lock)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot write to the suite's folder {folder.root}: {error.strerror or error}\n"
            "  choose another with suite.output_dir"
        ) from error
    started = time.monotonic()
    try:
        while not _taken(descriptor, folder):
            if time.monotonic() - started > MAX_LOOK_S:
                holder = Holder.written_in(folder.lock) or "an unknown process"
                raise BusyError(
                    f"{folder.root} is in use by another run_suite: {holder}\n"
                    f"  look at it with 'eval-factory suite status {folder.root}', "
                    "or wait for its end"
                )
            time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Holder.this_process().as_json().encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int, folder: SuiteDir) -> bool:
    from filelock import lock_descriptor

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot lock {folder.lock}: {error.strerror or error}\n"
            "  its file system gives no locks: "
            "choose a folder on a local disk with suite.output_dir"
        ) from error


# somebody who holds the lock and has not said who he is yet
UNKNOWN = Holder(pid=0, host="", since="")


def holder_now(folder: SuiteDir) -> Holder | None:
    """Return the process that works on the suite; None if none does. Who only looks keeps out
    nobody who only looks.

    A lock that is held, but not by the process that took it, is what that process left when it was
    killed.
    """
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        holder = Holder.written_in(folder.lock) or UNKNOWN
    except OSError:  # a file system that has no locks: nobody can hold one
        return None
    finally:
        os.close(descriptor)
    is_here = holder.host == socket.gethostname()
    if is_here and not (is_running(holder.pid) and _may_hold(holder.pid, folder.lock)):
        return None
    return holder


def _may_hold(pid: int, lock: Path) -> bool:
    """Return True if the process has the file open, as who holds its lock does; True if nobody
    can tell.

    The number of a process that ended may be another's by now, which nobody may stop.
    """
    try:
        return any(
            opened.exists() and opened.samefile(lock)
            for opened in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:
        return True


MAX_END_S = 120.0
"""A suite that is asked to stop ends its cells' processes, a few seconds each at most, and
writes the table.
"""


def cancel(folder: SuiteDir, say: Callable[[str], object], slurm: Slurm | None = None) -> bool:
    """End the suite's jobs in Slurm, interrupt the process that works on it, and wait for its end.
    Returns whether anything ran. Raises PrerequisiteError: it runs on another machine, is another
    user's, or does not end; or Slurm does not say what is queued, or the jobs do not end.
    """
    slurm = slurm or Slurm(os.environ)
    store = SlurmStore(folder)
    had_jobs = False
    if store.is_there():
        had_jobs = bool(active(slurm.queue(), store.waves()))
        SlurmRuns(folder, slurm, say=say).end()
    if (holder := holder_now(folder)) is None:
        return had_jobs
    pid = holder.pid
    if holder == UNKNOWN:
        raise PrerequisiteError(
            f"{folder.root}: somebody has just started to work on the suite: try again in a moment"
        )
    if holder.host != socket.gethostname():
        if had_jobs:  # it only waits for them, and sees that they were ended
            return True
        raise PrerequisiteError(
            f"{folder.root}: the suite runs on {holder.host} (process {pid}), not on this machine:"
            f" run 'eval-factory suite cancel' there"
        )
    try:
        os.kill(pid, signal.SIGTERM if ignores_interrupts(pid) else signal.SIGINT)
    except ProcessLookupError:  # it has just ended
        pass
    except PermissionError:
        raise PrerequisiteError(
            f"{folder.root}: process {pid} is another user's: ask its owner to stop it"
        ) from None
    say(f"asked process {pid} to stop: waiting for it ...")
    started = time.monotonic()
    while (holder := holder_now(folder)) is not None and holder.pid == pid:
        if time.monotonic() - started > MAX_END_S:
            raise PrerequisiteError(
                f"{folder.root}: process {pid} was asked to stop and has not ended "
                f"after {MAX_END_S:.0f} s;"
                f" see {folder.log}; to end it at once: kill -9 {pid} "
                "(the same command goes on afterwards)"
            )
        time.sleep(0.2)
    return True


def ignores_interrupts(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return True if SIGINT does nothing, as in what a script's shell starts with `&`; False if
    nobody can tell.

    SigIgn in /proc/PID/status is a mask in hexadecimal digits, a bit for each signal from 1 on
    (proc_pid_status(5)).
    """
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8").splitlines()
        (ignored,) = (line.split()[1] for line in lines if line.startswith("SigIgn:"))
        return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False


def write_configs(suite: Suite) -> None:
    """Write them again. They name the variables of keys; a configuration that holds a key itself
    is refused before.
    """
    of_a_cell = (
        "# One cell of a suite. Run it by itself: eval-factory run_eval --run_config THIS_FILE\n"
    )
    for cell in suite.cells:
        file = suite.folder.cell_config(cell.target, cell.evaluation)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, of_a_cell + to_yaml(cell.document))
    of_the_suite = (
        "# The suite as it was run, presets and extended files put in. Run it again: "
        "eval-factory run_suite"
        " --run_config THIS_FILE\n"
        "# Where the folder was moved to another place, add --output_dir and that place.\n"
    )
    write_atomic(suite.folder.config, of_the_suite + to_yaml(suite.document))
