"""How often Python looks for garbage in cycles: seldom, where what is made lives to the end of the process."""

from __future__ import annotations

import atexit
import gc

THRESHOLD = 50_000
"""Objects made since the last look, Python's own value being 700."""

AT_BEGIN = 100_000
"""The same, of a program that begins: the dry run of a suite imports and reads less, and one look takes 10 ms."""


def collect_rarely(threshold: int = THRESHOLD) -> None:
    """And not at the end: Python would look through all objects twice, although the system takes their memory back."""
    gc.set_threshold(threshold, 20, 20)
    atexit.register(gc.freeze)
