"""A suite's folder is worked on by one process at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.folder_lock import Holder
from eval_factory.core.rundir import RunDir, SuiteDir, open_lock

LOOKED_AT_S = 1.0
"""Somebody who only looks whether it is held holds it for an instant."""
POLL_S = 0.05


@contextmanager
def held(folder: SuiteDir) -> Iterator[None]:
    """Make the folder, and hold it. Who holds it stands in the lock's file; the lock ends with this process.

    Raises:
        ConfigError: it is the output folder of one run.
        BusyError: another process works on it.
        PrerequisiteError: it cannot be made or locked.
    """
    if RunDir(folder.root).marker.is_file():
        raise ConfigError(
            f"suite.output_dir: {folder.root} is the output folder of one run\n  choose another folder for the suite"
        )
    try:
        folder.state.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(folder.lock)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot write to the suite's folder {folder.root}: {error.strerror or error}\n"
            "  choose another with suite.output_dir"
        ) from error
    try:
        _take(descriptor, folder)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Holder.this_process().as_json().encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: SuiteDir) -> None:
    from filelock import lock_descriptor

    started = time.monotonic()
    while True:
        try:
            if lock_descriptor(descriptor, blocking=False):
                return
        except OSError as error:
            raise PrerequisiteError(
                f"cannot lock {folder.lock}: {error.strerror or error}\n"
                "  its file system gives no locks: choose a folder on a local disk with suite.output_dir"
            ) from error
        if time.monotonic() - started > LOOKED_AT_S:
            holder = Holder.written_in(folder.lock) or "an unknown process"
            raise BusyError(
                f"{folder.root} is in use by another run_suite: {holder}\n"
                f"  look at it with 'eval-factory suite status {folder.root}', or wait for its end"
            )
        time.sleep(POLL_S)
