"""More threads than requests may go on at once: while one reads its answer or keeps it, another asks.

How many requests are under way is for the client to say (`eval_factory.endpoint.admission`), not for the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

MANY = 16
"""From so many on a processor is what requests wait for: with fewer, each waits for the endpoint."""
SHARE = 4
"""One more thread for so many: at 128 of 50 ms each, a tenth more requests a second."""


def threads_for(places: int) -> int:
    """So many threads ask where so many requests may go on at once."""
    return places + places // SHARE if places >= MANY else places


class MoreThreads:
    """HELM's executor, with more threads while it asks; HELM takes their number for other work, too."""

    def __init__(self, inner: Any, places: Callable[[Any], int | None]) -> None:
        """`places`: how many requests the client of a scenario state lets go on at once; None: threads decide that."""
        self._inner, self._places = inner, places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, scenario_state: Any) -> Any:
        """Only where HELM has a thread for each place: whoever started helm-run with fewer wants fewer requests."""
        spec = self._inner.execution_spec
        if self._places(scenario_state) != spec.parallelism:
            return self._inner.execute(scenario_state)
        self._inner.execution_spec = replace(spec, parallelism=threads_for(spec.parallelism))
        try:
            return self._inner.execute(scenario_state)
        finally:
            self._inner.execution_spec = spec
