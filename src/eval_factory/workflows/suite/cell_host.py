"""The suite's side of the process that its cells are run in: begin one, hear of its end, end them all."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import Self

from eval_factory.executors.process import start_listening
from eval_factory.workflows.suite.cell_outcome import CellSpec
from eval_factory.workflows.suite.cell_process import MODULE, WITHOUT_FORK

GRACE_S = 15.0
"""A cell that is interrupted ends its helm-run first, which has a few seconds for it."""
KILLED = -int(signal.SIGKILL)


@dataclass(frozen=True)
class Began:
    """The process of a cell is there."""

    number: int
    pid: int


@dataclass(frozen=True)
class EndedProcess:
    """It is gone. `returncode`: its exit code, or negative: the signal that killed it."""

    number: int
    returncode: int


class CellHost:
    """Processes of cells; one thread uses it."""

    def __init__(self, env: Mapping[str, str], log: Path, *, fork: bool = True) -> None:
        """`log`: where what the process itself says goes."""
        self._env, self._log = env, log
        self._argv = [sys.executable, "-m", MODULE, *([] if fork else [WITHOUT_FORK])]
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._pids: dict[int, int | None] = {}
        """Of each attempt that has not ended: its process, None where it has not said so yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End every cell at once that still runs."""
        for pid in self._known_pids():
            _send(pid, signal.SIGKILL)
        self._end_process()

    @property
    def running(self) -> int:
        return len(self._pids)

    def start(self) -> None:
        """Begin the process itself, if it is not there: it takes a second or two to import what cells need."""
        if self._process is None:
            self._process = start_listening(self._argv, self._env, log=self._log)
            self._rest = b""

    def begin(self, spec: CellSpec) -> None:
        """Its `Began`, and at last its `Ended`, come from `wait`."""
        self.start()
        self._pids[spec.number] = None
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it is gone: `wait` sees it
                self._process.stdin.write(spec.line().encode())
                self._process.stdin.flush()

    def wait(self, seconds: float) -> list[Began | EndedProcess]:
        """What has happened, as soon as something has, or nothing after so many seconds."""
        if self._process is None or self._process.stdout is None:
            time.sleep(seconds)
            return []
        source = self._process.stdout.fileno()
        if not select.select([source], [], [], seconds)[0]:
            return []
        data = os.read(source, 65536)
        if not data:
            return self._all_lost()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._heard(json.loads(line)) for line in lines]

    def interrupt(self) -> list[Began | EndedProcess]:
        """Have every cell stop as by Ctrl-C, then make it. What happened meanwhile."""
        told: set[int] = set()
        heard: list[Began | EndedProcess] = []
        deadline = time.monotonic() + GRACE_S
        while self._pids and time.monotonic() < deadline:
            for pid in self._known_pids():
                if pid not in told:
                    _send(pid, signal.SIGTERM)
                    told.add(pid)
            heard += self.wait(0.2)
        for pid in self._known_pids():
            _send(pid, signal.SIGKILL)
        return heard

    def _known_pids(self) -> list[int]:
        return [pid for pid in self._pids.values() if pid is not None]

    def _heard(self, told: Mapping[str, Any]) -> Began | EndedProcess:
        number = told["number"]
        if "pid" in told:
            self._pids[number] = told["pid"]
            return Began(number, told["pid"])
        self._pids.pop(number, None)
        return EndedProcess(number, told["returncode"])

    def _all_lost(self) -> list[Began | EndedProcess]:
        """The process is gone, and its cells end with it; the next cell gets a new one."""
        self._end_process()
        lost: list[Began | EndedProcess] = [EndedProcess(number, KILLED) for number in self._pids]
        self._pids.clear()
        return lost

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
