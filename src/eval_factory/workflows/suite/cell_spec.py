"""What a cell's process is told, and what it says when it ends: JSON both ways."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import SharedLimitsSettings


@dataclass(frozen=True)
class CellSpec:
    """One attempt of one cell."""

    number: int
    """By which the suite knows the attempt again."""
    run_config: str
    log: str
    """Where what `run_eval` would show on the screen goes."""
    record: str
    """Where the record of the end goes."""
    fresh: bool = False
    debug: bool = False
    probed: tuple[str, ...] | None = None
    """Roles whose endpoints answered the suite's own probe; None: the run asks them itself."""
    limits: SharedLimitsSettings | None = None
    """What the cell's requests share with those of others."""
    served_at: str | None = None
    """The addresses of its model's servers, with blanks between them, where the suite has started some."""

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str | bytes) -> CellSpec:
        fields = json.loads(line)
        probed, limits = fields.pop("probed"), fields.pop("limits")
        return cls(
            **fields,
            probed=None if probed is None else tuple(probed),
            limits=None if limits is None else SharedLimitsSettings(**limits),
        )


@dataclass(frozen=True)
class CellEnd:
    """How the process of a cell ended."""

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
