"""Who holds an output folder, as it is written down beside the lock, and whether that process still runs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """Who holds a folder: the eval-factory that took the lock, and the program that it runs (None: none yet)."""

    pid: int
    host: str
    since: str
    program: int | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended; a process of another machine is not looked for."""
        return self.host == socket.gethostname() and not is_running(self.pid)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended; one that nobody has waited for yet has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    with suppress(OSError, IndexError):  # where there is no /proc, an ended one counts as running until it is reaped
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in ("Z", "X")
    return True
