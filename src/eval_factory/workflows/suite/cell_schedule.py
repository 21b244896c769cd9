"""Which cell is begun next, so that every endpoint has something to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A cell that could be begun."""

    number: int
    """Its place in the suite."""
    group: str
    """The name of its endpoint's limits."""


def next_cell(waiting: Sequence[Waiting], running: Collection[str], paused: Collection[str]) -> Waiting | None:
    """The first cell of the endpoint that has the fewest cells running; None where every endpoint is paused.

    So the endpoints are busy at the same time, and while one cell of an endpoint loads its data or is scored, another
    asks.

    Args:
        running: the group of each cell that runs.
        paused: groups whose endpoint is gone.
    """
    busy = Counter(running)
    ready = [cell for cell in waiting if cell.group not in paused]
    return min(ready, key=lambda cell: (busy[cell.group], cell.number), default=None)
