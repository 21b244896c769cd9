"""What every executor does: start runs, say what has become of each, end them, clean up; and that of this machine.

What a run's output folder says of it is the truth: one that is started twice goes on with its answers, is refused by
the folder's lock, or finds that it has finished.

Local runs are started by a process that has imported all that they need. It reads a `RunSpec` a line, and writes which
run has started (`name`, `pid`) and which has ended (`name`, `returncode`). It ends where its input does, with its runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter
from typing_extensions import Self

from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.executors.process import JsonProcess


@dataclass(frozen=True)
class RunSpec:
    name: str
    run_config: str  # the file, which names the output folder
    log: str  # the file for what `run_eval` would show on the screen
    record: str  # the file for the record of the end
    fresh: bool = False
    debug: bool = False
    probed: tuple[str, ...] | None = None  # roles whose endpoints are known to answer; None: the run asks them itself
    limits: SharedLimitsSettings | None = None  # what its requests share with those of others
    served_at: str | None = None  # the addresses of its model's servers, with blanks between them
    asks: Mapping[str, Any] = field(default_factory=dict)  # what only the executor that it is for reads


RUN_SPEC = TypeAdapter(RunSpec)
"""Reads its JSON, which `asdict` makes."""


@dataclass(frozen=True)
class Waiting:
    where: str = ""
    reason: str = ""
    for_ever: bool = False  # what it waits for never comes: it has to be ended, and started in another way


@dataclass(frozen=True)
class Started:
    where: str
    pid: int | None = None  # of its process, where that is one of this machine


@dataclass(frozen=True)
class Ended:
    """It is over; negative: the number of the signal that killed it."""

    code: int


@dataclass(frozen=True)
class Lost:
    """It is gone, and nobody knows how it ended."""


RunState = Waiting | Started | Ended | Lost


class Executor(Protocol):
    """Where runs are done. One thread uses it."""

    def begin(self, runs: Sequence[RunSpec]) -> None:
        """Start these runs; one that has ended may be started again.
        Raises PrerequisiteError: not all could be; `look` says which were."""

    def look(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """Name -> what has become of it, of every run that was started. `seconds`: to wait for something new.
        Raises PrerequisiteError: nobody can say now."""

    def end(self, names: Collection[str] | None = None) -> None:
        """End these runs, or all, and return when they have ended: each may keep what it was answered.
        Raises PrerequisiteError: they do not end."""

    def clean_up(self) -> None:
        """Nothing is left of runs that have ended but their folders and logs: no process, no key."""


GRACE_S = 15.0  # a run that is interrupted ends its helm-run first, which has a few seconds for it


class LocalRuns:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """`argv`: of the process that starts runs; `log`: for what it writes on standard error."""
        self._argv, self._env, self._log = argv, env, log
        self._process: JsonProcess | None = None
        self._events: deque[Mapping[str, Any]] = deque()
        """What was reported, and not yet taken."""
        self._states: dict[str, RunState] = {}
        self._pids: dict[str, int] = {}
        """Of the runs that are at work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End every run that is left, at once."""
        self._kill(self._pids)
        self.clean_up()

    def start(self) -> JsonProcess:
        """Start the process itself, if it is not there: it takes a second or two to import what runs need."""
        if self._process is None:
            self._process = JsonProcess(self._argv, self._env, log=self._log)
        return self._process

    def begin(self, runs: Sequence[RunSpec]) -> None:
        for run in runs:
            self._states[run.name] = Waiting()
            self.start().send(asdict(run))

    def look(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        self._take_events(seconds)
        return dict(self._states)

    def end(self, names: Collection[str] | None = None) -> None:
        """As by Ctrl-C, then by force."""
        chosen = set(self._states) if names is None else set(names)
        reported: set[int] = set()
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(
            isinstance(self._states.get(name), (Waiting, Started)) for name in chosen
        ):
            for name, pid in self._pids.items():
                if name in chosen and pid not in reported:
                    _send(pid, signal.SIGTERM)
                    reported.add(pid)
            self._take_events(0.2)
        self._kill(chosen)

    def clean_up(self) -> None:
        """The process that starts runs ends, and with it any run that is left."""
        process, self._process = self._process, None
        if process is not None:
            process.end(GRACE_S)

    def _kill(self, names: Collection[str]) -> None:
        for name, pid in self._pids.items():
            if name in names:
                _send(pid, signal.SIGKILL)

    def _take_events(self, seconds: float) -> None:
        """One event of each run: whoever looks sees that a run was started, however short it was."""
        if self._process is None and not self._events:
            time.sleep(seconds)
        elif self._process is not None and not self._events:
            self._events += self._process.received(seconds)
            if self._process.is_silent:  # it is gone, and its runs end with it; the next run gets a new one
                self.clean_up()
                self._pids.clear()
                lost = [name for name, state in self._states.items() if isinstance(state, (Waiting, Started))]
                self._states |= dict.fromkeys(lost, Lost())
        taken: set[str] = set()
        while self._events and (name := self._events[0]["name"]) not in taken:
            taken.add(name)
            event = self._events.popleft()
            if "pid" in event:
                self._pids[name] = event["pid"]
                self._states[name] = Started(f"process {event['pid']}", event["pid"])
            else:
                self._pids.pop(name, None)
                self._states[name] = Ended(event["returncode"])


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
