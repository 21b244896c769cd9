"""Computes the SHA-256 of the files of a user's own data, once for each change of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from eval_factory.config.own_data import own_data_of
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.own_data import files_of

SLOW_SIZE = 1 << 30  # 1 GiB
"""The total size of changed files, in bytes, from which a message reports the reading."""


def hash_own_data(plan: Plan, say: Callable[[str], None]) -> dict[str, str]:
    """Return the SHA-256 of each file of the user's own data, by its name under `data_path`.

    Returns an empty dict for tasks without own data. A file is hashed again only if its path, size
    or times have changed since it was last hashed for this output folder. Every write changes the
    ctime, which programs cannot set.

    `say` shows a message to the user.
    """
    evaluation = plan.evaluation
    own_data = own_data_of(evaluation)
    files = files_of(own_data.layout, own_data.path, own_data.values) if own_data else {}
    known_records = _own_data_records(plan.rundir)
    records: dict[str, dict[str, Any]] = {}
    for name, path in files.items():
        status = path.stat()
        times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
        record = {"path": str(path.resolve()), "size": status.st_size, **times}
        # The hash is copied from the known record. If the path, the size or a time differs from the
        # known record, the hash is computed again below.
        records[name] = {**record, "sha256": known_records.get(name, {}).get("sha256")}
    changed = []
    for name, record in records.items():
        if record != known_records.get(name):
            changed.append(name)
    size = sum(records[name]["size"] for name in changed)
    if size >= SLOW_SIZE:
        say(
            f"reading {size / 1e9:.1f} GB of data_path to compute their checksums; "
            "this is done once for each change of a file"
        )
    for name in changed:
        records[name]["sha256"] = sha256_of(files[name])
    if records != known_records:
        # This is done before any file of a finished result is changed.
        plan.rundir.forget_checksums()
        write_atomic(plan.rundir.own_data, json.dumps(records, indent=2))
    return {name: record["sha256"] for name, record in records.items()}


def own_data_hashes_of(rundir: RunDir) -> dict[str, str]:
    """Return the SHA-256 of each file of the user's own data in the last run of this folder."""
    return {name: str(record["sha256"]) for name, record in _own_data_records(rundir).items()}


def _own_data_records(rundir: RunDir) -> Mapping[str, Mapping[str, str | int]]:
    """Read the records of own data that the last run of the folder has written.

    Returns an empty dict if there are none, or if they cannot be read.
    """
    try:
        records: Mapping[str, Mapping[str, str | int]] = parse_json(
            rundir.own_data.read_text(encoding="utf-8")
        )
        if not all("sha256" in record for record in records.values()):
            return {}
        return records
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
