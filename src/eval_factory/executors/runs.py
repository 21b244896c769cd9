"""What every executor does, and no more: begin runs, say what has become of each, end them, clean up.

A run is its run config, its output folder and its environment, by a name. What the folder says of it is the truth: one
that is begun twice goes on with its answers, is refused by the folder's lock, or finds that it has finished.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from eval_factory.core.helm_run_settings import SharedLimitsSettings


@dataclass(frozen=True)
class RunSpec:
    name: str
    run_config: str
    """The file, which names the output folder."""
    log: str
    """The file for what `run_eval` would show on the screen."""
    record: str
    """The file for the record of the end."""
    fresh: bool = False
    debug: bool = False
    probed: tuple[str, ...] | None = None
    """Roles whose endpoints are known to answer; None: the run asks them itself."""
    limits: SharedLimitsSettings | None = None
    """What its requests share with those of others."""
    served_at: str | None = None
    """The addresses of its model's servers, with blanks between them, where somebody has started some."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """What only the executor that it is for reads."""

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RunSpec:
        """What `asdict` made of one, and JSON of that."""
        probed, limits = fields["probed"], fields["limits"]
        typed = {
            "probed": None if probed is None else tuple(probed),
            "limits": None if limits is None else SharedLimitsSettings(**limits),
        }
        return cls(**{**fields, **typed})


@dataclass(frozen=True)
class Waiting:
    where: str = ""
    reason: str = ""
    for_ever: bool = False
    """What it waits for never comes: it has to be ended, and begun in another way."""


@dataclass(frozen=True)
class Started:
    where: str
    pid: int | None = None
    """Of its process, where that is one of this machine."""


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
        """Begin these runs; one that has ended may be begun again.
        Raises PrerequisiteError: not all could be; `look` says which were."""

    def look(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """Name -> what has become of it, of every run that was begun.

        Args:
            seconds: how long to wait for something new.

        Raises:
            PrerequisiteError: nobody can say now.
        """

    def end(self, names: Collection[str] | None = None) -> None:
        """End these runs, or all, and return when they have ended: each may keep what it was answered.
        Raises PrerequisiteError: they do not end."""

    def clean_up(self) -> None:
        """Nothing is left of runs that have ended but their folders and logs: no process, no key."""
