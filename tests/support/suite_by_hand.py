"""Folders of suites that no suite has run in: events, locks and results as a test needs them."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval_factory.core.rundir import RunDir, SuiteDir
from stored_results import right_or_wrong

CELLS = ("small/qa", "big/qa", "small/medec", "big/medec")


def started(cells: Sequence[str] = CELLS, *, time: float = 100.0, **fields: Any) -> dict[str, Any]:
    """Return the event `suite_started` of this process."""
    return {
        "time": time,
        "event": "suite_started",
        "invocation": "one",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "cells": [_named(cell) for cell in cells],
        "total": len(cells),
        **fields,
    }


def cell_started(
    cell: str, *, time: float = 110.0, attempt: int = 1, **fields: Any
) -> dict[str, Any]:
    return {
        "time": time,
        "event": "cell_started",
        "attempt": attempt,
        "pid": 5,
        **fields,
        **_named(cell),
    }


def cell_ended(
    cell: str, status: str = "complete", *, time: float = 120.0, **fields: Any
) -> dict[str, Any]:
    told = {
        "attempt": 1,
        "exit_code": 0,
        "reason": None,
        "collected": False,
        "reused_from": None,
        **fields,
    }
    return {"time": time, "event": "cell_ended", "status": status, **told, **_named(cell)}


def paused(
    group: str, *cells: str, reason: str = "connection refused", time: float = 130.0
) -> dict[str, Any]:
    return {
        "time": time,
        "event": "endpoint_paused",
        "group": group,
        "reason": reason,
        "cells": list(cells),
    }


def back(group: str, *, time: float = 140.0) -> dict[str, Any]:
    return {"time": time, "event": "endpoint_back", "group": group}


def ended(status: str = "complete", *, time: float = 150.0, exit_code: int = 0) -> dict[str, Any]:
    return {"time": time, "event": "suite_ended", "status": status, "exit_code": exit_code}


def suite_folder(root: Path, *events: Mapping[str, Any]) -> SuiteDir:
    """A suite of which this is told, and which nobody holds."""
    folder = SuiteDir(root)
    folder.state.mkdir(parents=True, exist_ok=True)
    folder.lock.touch()
    tell(folder.events, *events)
    return folder


def tell(path: Path, *events: Mapping[str, Any]) -> None:
    """More events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


@contextmanager
def held(folder: SuiteDir, **holder: Any) -> Iterator[int]:
    """The suite's lock, as the process that works on it has it: this one, or another with `pid` and `host`."""
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        written = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": "2026-01-01T00:00:00Z",
            **holder,
        }
        folder.lock.write_text(json.dumps(written))
        yield descriptor
    finally:
        os.close(descriptor)


def phase(name: str, *, time: float, total: int | None = None, **fields: Any) -> dict[str, Any]:
    """An event of a cell's helm-run."""
    return {"time": time, "run_id": "r", "event": "phase", "phase": name, "total": total, **fields}


def progress(done: int, *, time: float, total: int = 100, **fields: Any) -> dict[str, Any]:
    counts = {"cached": 0, "failed": 0, "prompt_tokens": 0, "completion_tokens": 0, **fields}
    return {
        "time": time,
        "run_id": "r",
        "event": "progress",
        "role": "model",
        "total": total,
        "done": done,
        **counts,
    }


def cell_events(folder: SuiteDir, cell: str, *events: Mapping[str, Any]) -> None:
    """Return what the helm-run of a cell tells."""
    tell(RunDir(folder.cell_folder(*cell.split("/"))).events, *events)


def cell_result(folder: SuiteDir, cell: str, values: str = "1110") -> None:
    """A result of a cell, with one instance for each digit."""
    right_or_wrong(folder.cell_folder(*cell.split("/")), values)


def _named(cell: str) -> dict[str, str]:
    target, evaluation = cell.split("/")
    return {"target": target, "evaluation": evaluation}
