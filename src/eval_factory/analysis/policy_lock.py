"""A policy that was written down before the run: its hash stands in a file beside it, and a changed one is refused."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from eval_factory.analysis.gate_policy import Policy
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import ConfigError

_SHA256, _LOCKED = "sha256", "locked_at"


def lock_path(policy: Path) -> Path:
    """`policy.yml` -> `policy.yml.lock`, to be committed with it."""
    return policy.with_name(policy.name + ".lock")


def lock(policy: Policy, now: datetime) -> Path:
    """Write the lock; a lock of the same policy stays as it is, with its time.

    Raises:
        ConfigError: there is a lock of another policy.
    """
    path = lock_path(policy.path)
    if path.exists():
        check(policy)
        return path
    record = {_SHA256: policy.sha256, _LOCKED: now.astimezone(timezone.utc).isoformat(timespec="seconds")}
    write_atomic(path, json.dumps(record, indent=2) + "\n")
    return path


def check(policy: Policy) -> datetime | None:
    """When the policy was locked; None where it is not.

    Raises:
        ConfigError: it is not the one that was locked, or the lock cannot be read.
    """
    path = lock_path(policy.path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        sha256, locked_at = record[_SHA256], datetime.fromisoformat(record[_LOCKED])
        if locked_at.tzinfo is None:
            raise ValueError("a time without its zone")
        locked_at = locked_at.astimezone(timezone.utc)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: is no lock of a policy; remove it and lock the policy again") from None
    if sha256 != policy.sha256:
        raise ConfigError(
            f"{policy.path}: was changed after it was locked on {locked_at:%Y-%m-%d %H:%M} UTC; restore it, or remove"
            f" {path.name} and lock the new one before the next run"
        )
    return locked_at
