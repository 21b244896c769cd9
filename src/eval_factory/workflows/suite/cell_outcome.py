"""How a cell's run ended, and what follows from that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    BusyError,
    ConfigError,
    EndpointRefusedError,
    EndpointUnreachableError,
    HelmError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.nouns import RunStatus


@dataclass(frozen=True)
class CellEnd:
    returncode: int
    """The exit code; negative: the signal that killed it."""
    status: str | None = None
    """`complete` or `partial`, where there is a result."""
    not_reportable: str | None = None
    error_type: str | None = None
    error: str | None = None

    @property
    def has_result(self) -> bool:
        return self.status is not None


def end_of(returncode: int, record_file: Path) -> CellEnd:
    """The end of a process, with what it said of it; one that was killed said nothing."""
    try:
        record: dict[str, Any] = json.loads(record_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return CellEnd(returncode)
    error = record.get("error") or {}
    return CellEnd(
        returncode,
        status=record.get("status"),
        not_reportable=record.get("not_reportable"),
        error_type=error.get("type"),
        error=error.get("message"),
    )


COMPLETE = RunStatus.COMPLETE
PARTIAL = RunStatus.PARTIAL
FAILED = RunStatus.FAILED
MISSING = RunStatus.MISSING
WAITING = RunStatus.WAITING
"""Given to Slurm, where it goes on without this command."""
CRASHES_FORGIVEN = 1
"""helm-run failed, or a process was killed: once it may have been bad luck."""


class NextAction(Enum):
    REST = "nothing: the cell has ended"
    AGAIN = "the cell is begun again at once"
    ASK_AND_AGAIN = "the cell is begun again where its endpoint answers, and waits until it does"
    WAIT_FOR_FOLDER = "the cell is begun again when nobody else holds its folder"
    PAUSE_ENDPOINT = "the endpoint's cells wait until it is back"
    STOP_TARGET = "the target's cells are not begun"


@dataclass(frozen=True)
class Tried:
    attempts: int
    """That count, the one that has just ended among them."""
    max_attempts: int
    crashes: int = 0
    """Earlier ones that ended with a failure of HELM's, of ours or by a signal."""
    has_result: bool = False
    """A partial result of an earlier attempt stands in the folder."""


@dataclass(frozen=True)
class Outcome:
    then: NextAction
    status: RunStatus
    """What the cell is if nothing more is done."""
    reason: str | None = None
    exit_code: int = 0
    crashed: bool = False
    counts: bool = True
    """Whether it is one of the attempts that a cell has."""


def outcome_of(end: CellEnd, tried: Tried) -> Outcome:
    """
    Args:
        tried: with this attempt.
    """
    if end.has_result:
        return _of_result(end, tried)
    code, reason = end.returncode, _one_line(end)
    status = PARTIAL if tried.has_result else FAILED
    if code == NotReportableError.exit_code:
        return Outcome(NextAction.REST, PARTIAL if tried.has_result else MISSING, reason, code)  # at a limit of cost
    if code == BusyError.exit_code:
        return Outcome(NextAction.WAIT_FOR_FOLDER, status, reason, code, counts=False)
    if code == PrerequisiteError.exit_code:
        return _of_something_missing(end, status, reason)
    if code == InterruptedRunError.exit_code:
        return Outcome(NextAction.REST, PARTIAL if tried.has_result else MISSING, reason, code)
    if code == ConfigError.exit_code:
        return Outcome(NextAction.REST, status, reason, code)
    again = tried.crashes < CRASHES_FORGIVEN and tried.attempts < tried.max_attempts
    known = code if code in (HelmError.exit_code, DEFECT_EXIT_CODE) else HelmError.exit_code
    return Outcome(NextAction.AGAIN if again else NextAction.REST, status, reason, known, crashed=True)


def _of_result(end: CellEnd, tried: Tried) -> Outcome:
    """A result with gaps is asked for again; whether it is reportable, another attempt cannot change."""
    reason = None if end.not_reportable is None else end.not_reportable.split("\n")[0]
    code = 0 if end.not_reportable is None else NotReportableError.exit_code
    if end.status == COMPLETE:
        return Outcome(NextAction.REST, COMPLETE, reason, code)
    again = tried.attempts < tried.max_attempts
    gaps = reason or "some requests failed; the same command asks for them again"
    return Outcome(NextAction.ASK_AND_AGAIN if again else NextAction.REST, PARTIAL, gaps, NotReportableError.exit_code)


def _of_something_missing(end: CellEnd, status: RunStatus, reason: str) -> Outcome:
    code = PrerequisiteError.exit_code
    if end.error_type == EndpointUnreachableError.__name__:
        return Outcome(NextAction.PAUSE_ENDPOINT, status, reason, code, counts=False)
    if end.error_type == EndpointRefusedError.__name__:
        return Outcome(NextAction.STOP_TARGET, status, reason, code)
    return Outcome(NextAction.REST, status, reason, code)


def _one_line(end: CellEnd) -> str:
    if end.error:
        first, *others = end.error.split("\n")
        return f"{first} {others[0].strip()}" if first.endswith(":") and others else first
    if end.returncode < 0:
        return f"its process was killed by signal {-end.returncode}"
    return f"its process ended with {end.returncode}"


def worst_code(codes: list[int]) -> int:
    """The exit code of a suite: of the cell that went worst; 0 where every cell is complete and reportable.

    A defect (70) is worse than a failure of HELM's (4), that than something missing (3), that than a wrong
    configuration (2), that than a result that is partial or not reportable (1). 5 and 130 do not come to this.
    """
    return max(codes, default=0)
