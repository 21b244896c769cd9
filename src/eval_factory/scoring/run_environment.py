"""With what a run was made: the machine's kind, the installed packages, the framework's file, and when.

Nothing here names the machine, its user or a path.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from datetime import datetime, timezone
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from eval_factory.core.results import UTC_FORMAT
from eval_factory.core.rundir import sha256_of
from eval_factory.tasks.framework import framework_path

SEEDS = {"helm_sample": 0, "helm_examples": 0}
"""What HELM draws with: the instances of `limit_samples`, and the examples of the first trial (of trial n with n)."""

_SEPARATORS = re.compile(r"[-_.]+")
_NAME_AND_VERSION = ("name", "version")


def platform_of_this() -> dict[str, str]:
    """The kind of machine and interpreter; what cannot be found out is left out."""
    libc = " ".join(part for part in platform.libc_ver() if part)
    found = {
        "system": platform.system(),
        "distribution": _distribution(),
        "libc": libc,
        "machine": platform.machine(),
        "implementation": platform.python_implementation(),
    }
    return {name: value for name, value in found.items() if value}


def python_version() -> str:
    return platform.python_version()


def _distribution() -> str:
    """Of Linux; elsewhere the version of the system."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return "" if platform.system() == "Linux" else platform.release()


@lru_cache(maxsize=1)
def installed_packages() -> str:
    """Every distribution that is installed, `name==version`, one a line, sorted: what its lock file came to.

    The wheel holds no lock file, and an environment may differ from one; this is what is there.
    """
    named = (_name_and_version(found) for found in metadata.distributions())
    lines = {f"{_SEPARATORS.sub('-', name).lower()}=={version}" for name, version in named if name}
    return "".join(f"{line}\n" for line in sorted(lines))


def _name_and_version(found: metadata.Distribution) -> tuple[str | None, str | None]:
    """The first of each in the header. A description stands below it, and `found.metadata` parses that as mail too.

    A folder that a broken installation left has none.
    """
    fields: dict[str, str] = {}
    for line in (found.read_text("METADATA") or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon or len(fields) == len(_NAME_AND_VERSION):
            break
        if name.lower() in _NAME_AND_VERSION:
            fields.setdefault(name.lower(), value.strip())
    if len(fields) == len(_NAME_AND_VERSION):
        return fields["name"], fields["version"]
    return found.metadata["Name"], found.version  # an egg, or a header of another form


def lock_sha256() -> str:
    """Of `installed_packages`."""
    return hashlib.sha256(installed_packages().encode()).hexdigest()


def framework_sha256() -> str:
    return sha256_of(framework_path())


def began_and_ended(events: Path, run_id: str) -> tuple[str | None, str | None]:
    """When a helm-run told its first and its last event, in UTC (ISO 8601); None where it told none.

    Args:
        events: logs/events.jsonl, in which other runs stand too.
    """
    times = []
    try:
        with events.open(encoding="utf-8") as lines:
            for line in lines:
                if run_id in line and (told := _told(line)) is not None and told[0] == run_id:
                    times.append(told[1])
    except OSError:
        return None, None
    return (utc_of(min(times)), utc_of(max(times))) if times else (None, None)


def _told(line: str) -> tuple[str, float] | None:
    """Run and time of an event; None of a line that a kill cut off."""
    try:
        event = json.loads(line)
        return str(event["run_id"]), float(event["time"])
    except (ValueError, TypeError, KeyError):
        return None


def utc_of(seconds: float) -> str | None:
    """Of seconds since the epoch; None of a number that is no time."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime(UTC_FORMAT)
    except (OverflowError, OSError, ValueError):
        return None
