"""What an executor is: something that runs helm-run to its end, here or elsewhere, and tells what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from eval_factory.core.rundir import Lock, RunDir
from eval_factory.core.secrets import Redactor


@dataclass(frozen=True)
class Finished:
    """How a process ended: its exit code (negative: the signal) and its last lines, redacted and printable."""

    returncode: int
    tail: tuple[str, ...]


@dataclass(frozen=True)
class ProcessSpec:
    """A program to run in an output folder that this process holds."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """All that it gets to see."""
    rundir: RunDir
    lock: Lock
    """Inherited: nobody else may write to the folder for as long as the program lives."""
    run_id: str
    """Of the events that it writes."""
    redactor: Redactor


@dataclass(frozen=True)
class Execution:
    """What came of it."""

    finished: Finished
    wall_s: float
    events: tuple[Mapping[str, Any], ...]
    """All but those of progress, in their order."""


def ignore(_event: Mapping[str, Any]) -> None:
    """For those who wait for the end only."""


class Executor(Protocol):
    """Where helm-run runs."""

    def run(
        self, spec: ProcessSpec, screen: TextIO, on_event: Callable[[Mapping[str, Any]], None] = ignore
    ) -> Execution:
        """Run to the end and show progress on `screen`; `on_event` is told of everything but progress.

        Anything that interrupts the wait ends the program, and all that it started, first.

        Raises:
            PrerequisiteError: the program is not there.
        """
        ...
