"""Who holds a folder, as it is written down in or beside the lock, and whether that process still runs."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """Who holds a folder: the eval-factory that took the lock, and the program that it runs (None: none yet)."""

    pid: int
    host: str
    since: str
    program: int | None = None

    @classmethod
    def this_process(cls) -> Holder:
        """From now on."""
        return cls(os.getpid(), this_host(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @classmethod
    def written_in(cls, file: Path) -> Holder | None:
        """Whom a file names; he may be gone. None where it names nobody, or nobody yet."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended; a process of another machine is not looked for."""
        return self.host == this_host() and not is_running(self.pid)


def this_host() -> str:
    """As `socket.gethostname` has it; to import that takes as long as much of what a dry run does."""
    return os.uname().nodename


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
