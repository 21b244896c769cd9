"""A program that is begun before it is known what it is to do, so that its imports do not have to be waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval_factory.core.handed_over import HandedOver, limit_of_open_files
from eval_factory.executors.base import ProcessSpec

_BEGIN = "import sys; sys.path[0] = sys.argv.pop(1); from {module} import main; main(int(sys.argv.pop(1)))"
"""As a console script is found: what lies in the current folder is not imported."""


def started(argv: Sequence[str], env: Mapping[str, str], *, inherited: int) -> subprocess.Popen[str]:
    """A process in a group of its own, without standard input, whose output and errors come as one text.

    Args:
        inherited: a descriptor that it has too.

    Raises:
        OSError: it could not be started.
    """
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        pass_fds=(inherited,),
    )


class ProgramAhead:
    """One process, which becomes the program when it is told to, or is ended. Thread-safe for one user only."""

    def __init__(self, module: str, program: Sequence[str], env: Mapping[str, str]) -> None:
        """
        Args:
            module: its `main` imports what the program will need, and then waits on the descriptor that it is given.
            program: what command lines begin with that it may stand for.
            env: all that it sees until it is told; no key is in it.

        Raises:
            OSError: it could not be started.
        """
        self._program = list(program)
        self._own, theirs = socket.socketpair()
        self._process: subprocess.Popen[str] | None = None
        try:
            found_in, descriptor = str(Path(sys.executable).parent), theirs.fileno()
            argv = [sys.executable, "-c", _BEGIN.format(module=module), found_in, str(descriptor)]
            self._process = started(argv, env, inherited=descriptor)
        finally:
            theirs.close()
            if self._process is None:
                self._own.close()

    def become(self, spec: ProcessSpec) -> subprocess.Popen[str] | None:
        """The process, as `spec` has it; None where it cannot be: another program is asked for, or it has ended."""
        process, count = self._process, len(self._program)
        if process is None or list(spec.argv[:count]) != self._program:
            return None
        told = HandedOver(list(spec.argv[count:]), dict(spec.env), limit_of_open_files())
        try:
            told.send(self._own, spec.lock.descriptor)
        except OSError:
            return None
        self._process = None
        self._own.close()
        return process

    def end(self) -> None:
        """Nothing of it is left, unless it has become the program."""
        process, self._process = self._process, None
        if process is None:
            return
        self._own.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
