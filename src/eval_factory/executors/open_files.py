"""How many files a run has open at once, and whether the system lets it."""

from __future__ import annotations

import threading
from types import ModuleType

from eval_factory.core.errors import PrerequisiteError

ALWAYS_OPEN = 64
"""What helm-run has open beside its requests: logs, data, pipes; 9 were counted, and libraries may have theirs."""
OPEN_PER_REQUEST = 3
"""A connection, and for a thread that waits for it (a judge's) cache.db with its write-ahead log."""

_ONE_AT_A_TIME = threading.Lock()
"""The limit is the process's: of two runs in two threads, none may take back what the other was given."""


def make_room(requests_at_once: int) -> None:
    """Raise this process's limit on open files to what the run needs; helm-run inherits it.

    Raises:
        PrerequisiteError: the system does not let it be so high.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    with _ONE_AT_A_TIME:
        _raise_limit(resource, requests_at_once)


def _raise_limit(resource: ModuleType, requests_at_once: int) -> None:
    needed = ALWAYS_OPEN + OPEN_PER_REQUEST * requests_at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError):  # over the hard limit, or over what macOS has beside it
        fit = (max(soft, 0 if hard == resource.RLIM_INFINITY else hard) - ALWAYS_OPEN) // OPEN_PER_REQUEST
        advice = f", or let at most {fit} requests go on at once (config.params.parallelism)" if fit > 0 else ""
        raise PrerequisiteError(
            f"{requests_at_once} requests at once (judges' included) need {needed} open files, and only"
            f" {soft} are allowed here\n  allow more (ulimit -n {needed}){advice}"
        ) from None
