"""Whether somebody holds a suite, for somebody who only looks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_is_held(path: Path) -> bool:
    """Whether any process holds the lock; it is tried for an instant, together with others who only look."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system that has no locks: nobody can hold one
        return False
    finally:
        os.close(descriptor)
    return False


def may_hold(pid: int, path: Path, proc: Path = Path("/proc")) -> bool:
    """Whether the process has the file open, as who holds its lock does; True where nobody can tell.

    The number of a process that ended may be another's by now, which nobody may stop.
    """
    try:
        lock = path.stat()
        descriptors = list((proc / str(pid) / "fd").iterdir())
    except OSError:
        return True
    return any(_is_same(descriptor, lock) for descriptor in descriptors)


def _is_same(descriptor: Path, lock: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), lock)
    except OSError:
        return False
