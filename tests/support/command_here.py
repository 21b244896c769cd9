"""The command line in this process, as `eval-factory` runs it: with its one error boundary and its exit codes."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from dataclasses import dataclass
from unittest import mock

from eval_factory.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    cpu_s: float
    """Of this process: what else the machine does is not counted."""


def run_here(*arguments: str) -> Ended:
    """Run `eval-factory ARGUMENTS`. Its output is UTF-8 and strict, as a terminal's is."""
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        for errors in ("strict", "backslashreplace")
    ]
    before = signal.getsignal(signal.SIGTERM)
    started = time.process_time()
    try:
        with (
            mock.patch.object(sys, "argv", ["eval-factory", *arguments]),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
        ):
            main()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    finally:
        signal.signal(signal.SIGTERM, before)
    took = time.process_time() - started
    shown = []
    for stream in streams:
        stream.flush()
        shown.append(stream.buffer.getvalue().decode("utf-8"))
    return Ended(code, shown[0], shown[1], took)
