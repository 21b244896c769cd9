"""How often Python looks for garbage in cycles: seldom, where what is made lives to the end of the process."""

from __future__ import annotations

import gc

THRESHOLD = 50_000
"""Objects made since the last look, Python's own value being 700."""


def collect_rarely() -> None:
    gc.set_threshold(THRESHOLD, 20, 20)


def leave_to_the_system() -> None:
    """For the end of a process: what is left goes with its memory, and is not gone through once more before."""
    gc.freeze()
