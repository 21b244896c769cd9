"""The process that starts a model's server, and ends it when whoever asked for it is gone.

    python -m eval_factory.executors.server_guard

Standard input: a line of JSON says what to start, and its end says to end it; so it ends, too, with a process that
nobody could tell anything (SIGKILL). Standard output: lines of JSON, `pid` once it is started, `failed` where it
cannot be, `returncode` when it has ended. What the server says goes into its log, redacted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from eval_factory.core.foreign_text import LONGEST_LOG_LINE, printable
from eval_factory.core.redaction import Redactor
from eval_factory.core.rundir import PRIVATE

MODULE = "eval_factory.executors.server_guard"
POLL_S = 0.05
COPY_S = 2.0
"""For the last lines of a server that has ended."""


def copy_lines(source: IO[bytes], log: IO[str], redactor: Redactor) -> None:
    """Until nobody has the other end open. A full disk does not block the server."""
    for line in source:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        with contextlib.suppress(OSError):
            log.write(printable(redactor.text(text))[:LONGEST_LOG_LINE] + "\n")


def end_group(group: int, grace_s: float) -> None:
    """Ask every process of the group to end, then make those that are left."""
    deadline = time.monotonic() + grace_s
    if not _send(group, signal.SIGTERM):
        return
    while time.monotonic() < deadline:
        if not _send(group, 0):
            return
        time.sleep(POLL_S)
    _send(group, signal.SIGKILL)


def _send(group: int, number: int) -> bool:
    """Whether the group has a process."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _say(**fields: Any) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(1, (json.dumps(fields) + "\n").encode())


def guard(told: Mapping[str, Any], commands: IO[bytes]) -> None:
    """Start the server, and stay until it has ended, with all of its group."""
    descriptor = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1, errors="backslashreplace") as log:
        try:
            process = subprocess.Popen(
                told["argv"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            _say(failed=error.strerror or str(error))
            return
        _say(pid=process.pid)
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        copier = threading.Thread(target=copy_lines, args=(process.stdout, log, Redactor(told["secrets"])), daemon=True)
        copier.start()

        def end_when_told() -> None:
            while commands.read(1):
                pass
            end_group(process.pid, told["grace_s"])

        threading.Thread(target=end_when_told, daemon=True).start()
        code = process.wait()
        end_group(process.pid, told["grace_s"])  # what it has started is nothing without it
        copier.join(COPY_S)
    _say(returncode=code)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever asked for the server gets it too, and says what follows
    commands = sys.stdin.buffer
    told = json.loads(commands.readline())
    Path(told["log"]).parent.mkdir(parents=True, exist_ok=True)
    guard(told, commands)
    os._exit(0)


if __name__ == "__main__":
    main()
