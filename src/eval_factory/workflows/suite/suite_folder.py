"""Finds and locks the folder of a suite, writes the suite's configuration files, and cancels a
running suite.
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
    SINGLE_RUN_FOLDER,
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
from eval_factory.executors.slurm_runs import SlurmRuns
from eval_factory.executors.slurm_waves import SlurmStore, task_of_each_run

_MAX_SHOWN_PATH = 1000  # the maximum length of a path in a message, in characters


def find_suite(path: Path) -> SuiteDir:
    """Return the suite in the folder `path`.

    `path` may also be the output folder of one run that was submitted to Slurm, because this run is
    treated as a suite with one cell.

    Raises:
        PrerequisiteError: `path` is not the folder of a suite. The message says what `path` is, and
            suggests a suite in a folder above `path`. Also raised if a file of the suite is a link
            that leads out of the folder.
    """
    # A suite is in the folder itself; that of a single run is in a subfolder. In both cases,
    # `chosen_folder` is the folder that the user chose for the output.
    for folder in (suite_dir(path), suite_dir(path / SINGLE_RUN_FOLDER)):
        if folder.was_started:
            refuse_foreign(folder.chosen_folder, folder.all_paths)
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
            hint = f"; did you mean {one_line(str(above), _MAX_SHOWN_PATH)}?"
            break
    raise PrerequisiteError(
        f"{one_line(str(path), _MAX_SHOWN_PATH)}: {kind}{hint}\n"
        "  expected: the output_dir of a suite, which 'eval-factory run_suite' has started"
    )


MAX_LOCK_WAIT_S = 1.0
"""The time that `locked` waits for the lock before it reports that the suite is in use, in seconds.

A process that only checks whether the suite runs (`find_lock_holder`) has the lock for an instant.
"""


@contextmanager
def locked(folder: SuiteDir) -> Iterator[None]:
    """Create the suite's folder, and lock it during the `with` block.

    The lock file names the process that has the lock. The operating system releases the lock if
    this process ends.

    Raises:
        ConfigError: the folder is the output folder of one run.
        BusyError: another process works on the suite.
        PrerequisiteError: the folder or the lock cannot be created.
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
        while not _try_to_lock(descriptor, folder):
            if time.monotonic() - started > MAX_LOCK_WAIT_S:
                holder = Holder.read_from(folder.lock) or "an unknown process"
                raise BusyError(
                    f"{folder.root} is in use by another run_suite: {holder}\n"
                    f"  show its state with 'eval-factory suite status {folder.root}', "
                    "or wait for its end"
                )
            time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Holder.this_process().as_json().encode(), 0)
        yield
    finally:
        os.close(descriptor)  # the lock ends with its descriptor


def _try_to_lock(descriptor: int, folder: SuiteDir) -> bool:
    """Try to lock the file; return True if this process now has the lock.

    Raises:
        PrerequisiteError: the file system supports no locks.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot lock {folder.lock}: {error.strerror or error}\n"
            "  its file system supports no locks: "
            "choose a folder on a local disk with suite.output_dir"
        ) from error


# the holder of a lock whose process has not written its id into the lock file yet
UNKNOWN_HOLDER = Holder(pid=0, host="", since="")


def find_lock_holder(folder: SuiteDir) -> Holder | None:
    """Return the process that works on the suite; None if no process does.

    Also returns None if the process that acquired the lock was killed on this machine, but one of
    its child processes still has the lock.
    """
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # A shared lock: several processes may check at the same time.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        holder = Holder.read_from(folder.lock) or UNKNOWN_HOLDER
    except OSError:  # the file system supports no locks: no process can have locked the file
        return None
    finally:
        os.close(descriptor)
    if holder.host == socket.gethostname():
        is_alive = is_running(holder.pid) and _may_have_lock(holder.pid, folder.lock)
        if not is_alive:
            return None
    return holder


def _may_have_lock(pid: int, lock: Path) -> bool:
    """Return True if the process has opened the lock file, so that it may have the lock.

    Also returns True if the open files of the process cannot be read. Without this check, `cancel`
    could stop an unrelated new process that has the id of an ended process.
    """
    try:
        return any(
            opened.exists() and opened.samefile(lock)
            for opened in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:
        return True


MAX_CANCEL_WAIT_S = 120.0
"""The maximum time that `cancel` waits for the end of the suite, in seconds.

The suite first ends the processes of its cells, which takes at most a few seconds each, and then
writes the table.
"""


def cancel(folder: SuiteDir, say: Callable[[str], object], slurm: Slurm | None = None) -> bool:
    """Cancel the suite's Slurm jobs, interrupt the process that works on the suite, and wait until
    the process has ended.

    Returns:
        True if a job was queued or running, or if a process was running.

    Raises:
        PrerequisiteError: the process runs on another machine, belongs to another user, or does not
            end. Also raised if Slurm does not report its queue, or if the jobs do not end.
    """
    slurm = slurm or Slurm(os.environ)
    store = SlurmStore(folder)
    had_jobs = False
    if store.exists():
        # a wave is one submitted array of jobs; a run in the queue is a task of its wave
        had_jobs = bool(task_of_each_run(slurm.queue(), store.waves()))
        SlurmRuns(folder, slurm, say=say).end()
    if (holder := find_lock_holder(folder)) is None:
        return had_jobs
    pid = holder.pid
    if holder == UNKNOWN_HOLDER:
        raise PrerequisiteError(
            f"{folder.root}: somebody has just started to work on the suite: try again in a moment"
        )
    if holder.host != socket.gethostname():
        if had_jobs:  # the process on the other machine only waits for the jobs, and ends with them
            return True
        raise PrerequisiteError(
            f"{folder.root}: the suite runs on {holder.host} (process {pid}), not on this machine:"
            f" run 'eval-factory suite cancel' there"
        )
    stop_signal = signal.SIGINT
    if ignores_interrupts(pid):
        stop_signal = signal.SIGTERM
    try:
        os.kill(pid, stop_signal)
    except ProcessLookupError:  # the process has just ended
        pass
    except PermissionError:
        raise PrerequisiteError(
            f"{folder.root}: process {pid} is another user's: ask its owner to stop it"
        ) from None
    say(f"asked process {pid} to stop: waiting for it ...")
    started = time.monotonic()
    while _works_on(pid, folder):
        if time.monotonic() - started > MAX_CANCEL_WAIT_S:
            raise PrerequisiteError(
                f"{folder.root}: process {pid} was asked to stop and has not ended "
                f"after {MAX_CANCEL_WAIT_S:.0f} s;"
                f" see {folder.log}; to end the process at once: kill -9 {pid} "
                "(run_suite can continue the suite afterwards)"
            )
        time.sleep(0.2)
    return True


def _works_on(pid: int, folder: SuiteDir) -> bool:
    """Return True if the process with this id works on the suite now."""
    holder = find_lock_holder(folder)
    return holder is not None and holder.pid == pid


def ignores_interrupts(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return True if the process ignores SIGINT. A process that a script starts with `&` does.

    Returns False if the status of the process cannot be read.
    """
    # /proc/PID/status has one line such as "SigIgn: 0000000000001006". The digits are a mask in
    # hexadecimal; its lowest bit is for signal 1 (proc_pid_status(5)). Without exactly one such
    # line, the assignment to `(digits,)` raises a ValueError.
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8").splitlines()
        (digits,) = (line.split()[1] for line in lines if line.startswith("SigIgn:"))
        ignored_signals = int(digits, 16)
        bit_of_sigint = 1 << (signal.SIGINT - 1)
        return bool(ignored_signals & bit_of_sigint)
    except (OSError, ValueError, IndexError):
        return False


def write_configs(suite: Suite) -> None:
    """Write the configuration of the suite, and the run config of each cell.

    The files may contain the names of environment variables with keys, but contain no key:
    `plan_cells` has refused configurations that contain a key.
    """
    cell_comment = (
        "# One cell of a suite. Run it by itself: eval-factory run_eval --run_config THIS_FILE\n"
    )
    for cell in suite.cells:
        file = suite.folder.cell_config(cell.target, cell.evaluation)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, cell_comment + to_yaml(cell.document))
    suite_comment = (
        "# The suite as it was run, with presets and extended files included. Run it again: "
        "eval-factory run_suite --run_config THIS_FILE\n"
        "# If the folder was moved, add --output_dir with its new path.\n"
    )
    write_atomic(suite.folder.config, suite_comment + to_yaml(suite.document))
