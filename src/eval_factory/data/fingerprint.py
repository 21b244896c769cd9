"""The user's own files that a run reads: known again by their content, and recorded in the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from eval_factory.config.rules import own_data_of
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.own_data import files_of

TAKES_LONG = 1 << 30
"""Bytes to read, from which on it is said that they are read."""


def look_at_own_data(plan: Plan, say: Callable[[str], None]) -> dict[str, str]:
    """Name under `data_path` -> SHA-256 of each file that the run reads; empty for tasks without such."""
    evaluation = plan.evaluation
    own = own_data_of(evaluation.task, evaluation.run.config.params.extra)
    files = files_of(own.layout, own.path, own.values) if own else {}
    return fingerprints(plan.rundir, files, say)


def fingerprints(rundir: RunDir, files: Mapping[str, Path], say: Callable[[str], None]) -> dict[str, str]:
    """Name -> SHA-256 of each file; remembered in the output folder.

    Files are hashed again where their size, place or one of their times is another than when they were last hashed for
    this output folder: every write changes the time of the last change, which no program can set back.
    """
    known = _read(rundir)
    signs = {name: _signs(path) for name, path in files.items()}
    anew = [name for name in files if {**signs[name], "sha256": known.get(name, {}).get("sha256")} != known.get(name)]
    size = sum(files[name].stat().st_size for name in anew)
    if size >= TAKES_LONG:
        say(f"reading {size / 1e9:.1f} GB of data_path to know them again; this is done once for each change of a file")
    records = {
        name: {**signs[name], "sha256": sha256_of(path) if name in anew else known[name]["sha256"]}
        for name, path in files.items()
    }
    if records != known:
        write_atomic(rundir.own_data, json.dumps(records, indent=2))
    return hashes_of(rundir)


def files_under(path: Path) -> list[Path]:
    """The file itself, or all files of the folder; nothing where there is neither."""
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in found if file.is_file()]


def hashes_of(rundir: RunDir) -> dict[str, str]:
    """What the last run of this folder was told of its own data."""
    return {name: str(record["sha256"]) for name, record in _read(rundir).items()}


def _signs(path: Path) -> dict[str, str | int]:
    found = path.stat()
    return {
        "path": str(path.resolve()),
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
    }


def _read(rundir: RunDir) -> Mapping[str, Mapping[str, str | int]]:
    try:
        records = json.loads(rundir.own_data.read_text(encoding="utf-8"))
        return records if all("sha256" in record for record in records.values()) else {}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
