"""How often Python looks for garbage in cycles: seldom, where what is made lives to the end of the process."""

from __future__ import annotations

import atexit
import gc

THRESHOLD = 100_000
"""Objects made since the last look, Python's own value being 700. The dry run of a suite makes fewer, and one
look takes 10 ms."""


def keep_what_there_is() -> None:
    """Python looks no more at what was made so far: it lives to the end of the process."""
    gc.freeze()


def collect_rarely() -> None:
    """And not at the end: Python would look through all objects twice, although the system takes their memory back."""
    gc.set_threshold(THRESHOLD, 20, 20)
    atexit.register(gc.freeze)
