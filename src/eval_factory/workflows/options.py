"""What a run is asked, beside its configuration, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.core.rundir import RunDir
from eval_factory.report.result_views import ResultViews

if TYPE_CHECKING:
    from eval_factory.core.helm_run_settings import SharedLimitsSettings
    from eval_factory.core.results import TaskResult


@dataclass(frozen=True)
class Options:
    """How to run, beside what to run."""

    fresh: bool = False
    debug: bool = False
    no_preflight: bool = False
    probed: frozenset[str] | None = None
    """Roles whose endpoints are known to answer: whoever says so asked them, and nobody is asked before the run."""
    limits: SharedLimitsSettings | None = None
    """What this run shares with others; None: it has its limits for itself."""
    on_launch: Callable[[Mapping[str, Any]], None] | None = None
    """Is told what will be run and where, once the folder is held and before anything is asked."""
    only_collect: bool = False
    """Ask nobody: the run is complete, or it ends with an error. Of who collects what was run elsewhere."""


@dataclass(frozen=True)
class DryRun:
    """What a run would do, found out without starting or writing anything."""

    text: str
    """The configuration, where its values are from, the command; redacted."""
    would_stop: tuple[str, ...]
    """What is wrong with the user's own data: a run would end with it."""


@dataclass(frozen=True)
class Submitted:
    """A run that goes on in Slurm when the command has returned."""

    folder: Path
    """Where its result will be."""
    summary: str
    """For the screen: its first line says what was done, the others what to do next."""


@dataclass(frozen=True, repr=False)
class Evaluated(ResultViews):
    """A result that was written."""

    result: TaskResult
    rundir: RunDir
    summary: str
    """For the screen; redacted."""
    not_reportable: str | None
    """Why no score of it may be reported, and what to do; None where they may."""

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.rundir.root
