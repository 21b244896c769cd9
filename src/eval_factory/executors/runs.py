"""Defines the interface of an executor, and the executor that runs on this machine.

An executor starts runs, reports their states, ends them and cleans up. The output folder of a run
holds all its results. Starting a run twice is therefore safe: the second start reuses the answers
of the first, fails because the folder is locked, or finds that the run is complete.

A local run is a process that reads its `ExecutorRun` from standard input. The process ends when its
parent process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import AliasChoices, Field, TypeAdapter

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.executors.process import start_with_input


@dataclass(frozen=True)
class ExecutorRun:
    """All that an executor needs to start a run."""

    name: str  # no two runs of an executor have the same name
    run_config: str  # the path of the run config, which names the output folder
    log: str  # the path of the file for the messages that `run_eval` would show on the screen
    record: str  # the path of the file in which the run records its end
    fresh: bool = False  # True to delete the answers and results in the output folder first
    debug: bool = False  # the option --debug of `run_eval`
    # the roles whose endpoints were probed and have answered; None: the run probes all endpoints
    probed: tuple[str, ...] | None = None
    # the limits that the requests of this run share with requests of other runs
    limits: SharedLimitsSettings | None = None
    served_at: str | None = None  # the addresses of the model's servers, separated by spaces
    # settings that only one kind of executor reads, such as `SlurmSettings`; files of earlier
    # versions call them `asks`
    settings: Annotated[
        Mapping[str, Any], Field(validation_alias=AliasChoices("settings", "asks"))
    ] = field(default_factory=dict)


RUN_JSON = TypeAdapter(ExecutorRun)
"""Reads and writes an `ExecutorRun` as JSON."""


@dataclass(frozen=True)
class Waiting:
    """The state of a run that has not started yet."""

    where: str = ""  # the job of the run, as a text for the user
    reason: str = ""  # why the run has not started yet; empty if not known
    # True if the run can never get its resources: it has to be cancelled and submitted differently
    never_starts: bool = False


@dataclass(frozen=True)
class Started:
    """The state of a run that has started."""

    where: str  # the process or the job of the run, as a text for the user
    pid: int | None = None  # the id of the process; None if it is on another machine


@dataclass(frozen=True)
class Ended:
    """The state of a run that has ended."""

    code: int  # the exit code; minus the signal's number if a signal killed the process


@dataclass(frozen=True)
class Lost:
    """The state of a run that is gone and has recorded no end."""


RunState = Waiting | Started | Ended | Lost


class Executor(Protocol):
    """The interface of an executor. Only one thread may use an instance."""

    def begin(self, runs: Sequence[ExecutorRun]) -> None:
        """Start these runs. A run that has ended may be started again.

        Raises:
            PrerequisiteError: not all runs could be started; `poll` reports those that were.
        """

    def poll(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """Return the state of every run that was started, by the name of the run.

        `seconds`: the time to wait before the states are read.

        Raises:
            PrerequisiteError: the states cannot be read now.
        """

    def end(self, names: Collection[str] | None = None) -> None:
        """End the runs with these names, or all runs, and return when they have ended.

        The answers that the runs have received stay in their folders.

        Raises:
            PrerequisiteError: the runs do not end.
        """

    def clean_up(self) -> None:
        """Clean up after the runs; their folders and logs stay.

        `LocalRuns` kills the processes of runs that have not ended. `SlurmRuns` deletes the keys of
        ended jobs; queued jobs continue.
        """


GRACE_S = 15.0
"""The time between SIGTERM and SIGKILL, in seconds.

An interrupted run first ends its helm-run, which takes a few seconds.
"""


class LocalRuns(contextlib.AbstractContextManager["LocalRuns"]):
    """The executor that runs processes on this machine."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """Create an executor without runs.

        Args:
            argv: the command that does one run; the id of this process is appended to it.
            env: the environment variables of the processes.
            log: the file for the output of a process before the process opens the run's own log.
        """
        self._argv = argv
        self._env = env
        self._log = log
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # the names of runs that were started after the last call of `poll`
        self._new: set[str] = set()

    def __exit__(self, *_: object) -> None:
        self.clean_up()

    def begin(self, runs: Sequence[ExecutorRun]) -> None:
        """Start a process for each run.

        Raises:
            PrerequisiteError: a process cannot be started; the runs before this one were started.
        """
        for run in runs:
            argv = [*self._argv, str(os.getpid())]
            try:
                self._processes[run.name] = start_with_input(
                    argv, self._env, RUN_JSON.dump_json(run).decode(), log=self._log
                )
            except OSError as error:  # the limit of processes, or too little memory
                raise PrerequisiteError(
                    f"{run.name}: no process can be started: {error.strerror or error}; "
                    "run the same command again on a machine with free resources: "
                    "the answers so far are reused"
                ) from error
            self._new.add(run.name)

    def poll(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """Return the state of every run.

        The first call after the start of a run reports the run as started, even if it has already
        ended.
        """
        # New runs are reported as started at once, so this call does not wait.
        if not self._new:
            time.sleep(seconds)
        states = {}
        for name, process in self._processes.items():
            states[name] = self._state(name, process)
        self._new.clear()
        return states

    def _state(self, name: str, process: subprocess.Popen[bytes]) -> RunState:
        """Return the state of a process: always `Started` at the first `poll` after its start."""
        code = None
        if name not in self._new:
            code = process.poll()
        if code is None:
            return Started(f"process {process.pid}", process.pid)
        return Ended(code)

    def clean_up(self) -> None:
        """Kill every run that has not ended."""
        self.end(grace_s=0.0)

    def end(self, names: Collection[str] | None = None, grace_s: float = GRACE_S) -> None:
        """Send SIGTERM to these runs, or to all runs; kill those that still run after `grace_s`."""
        processes = [
            process for name, process in self._processes.items() if names is None or name in names
        ]
        if grace_s:
            for process in processes:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in processes:
            process.kill()
            process.wait()
