"""What an earlier collection of the same run found out, for one that is made again where data or logs are gone.

Whoever verifies a folder has HELM's files and the cache, but perhaps not the data, nor logs/, nor as fast a machine.
What was taken from those is taken from the stored result then, and told as a note.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from eval_factory.core.results import PACKAGED, Provenance
from eval_factory.core.time_limit import Clock
from eval_factory.data.pins import revisions_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.floors import LATE, MISSING_FLOORS

ELSEWHERE = ("hub:", PACKAGED)
"""What names of data begin with that lie outside of the output folder."""


@dataclass
class Remembered:
    """What the stored result says."""

    provenance: Provenance
    notes: Collection[str] = ()
    """`validity.notes`."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Id of an instance -> the source that it shares with others."""
    unread: int = 0
    """Data files that are not here, or are kept outside of the folder; `completed` counts them."""

    def clock(self) -> Clock:
        """With which floors come as far as they came then: whoever collects again may have more or less time."""
        late = any(note.startswith(MISSING_FLOORS) and LATE in note for note in self.notes)
        return itertools.count(0.0, 1e9).__next__ if late else lambda: 0.0

    def completed(self, plan: Plan, made: Provenance) -> Provenance:
        """With what was taken from data and logs that are not here any more. Raises HelmError."""
        then = self.provenance
        data, self.unread = with_unread_data(then.dataset_files, made.dataset_files)
        told = made.started_at is not None
        return replace(
            made,
            dataset_files=data,
            dataset_revisions=revisions_of(plan, data),
            started_at=made.started_at if told else then.started_at,
            ended_at=made.ended_at if told else then.ended_at,
        )


def clock_of(remembered: Remembered | None) -> Clock:
    """The real one of a first collection."""
    return time.thread_time if remembered is None else remembered.clock()


def with_unread_data(stored: Mapping[str, str], made: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The hashes made now, with the stored ones of data that are not here any more, and how many these are.

    Data sets of the Hub lie in a cache which other programs prepare anew; those of the package have its version.
    """
    unread = {name: digest for name, digest in stored.items() if name not in made or name.startswith(ELSEWHERE)}
    counted = sum(made.get(name) != digest for name, digest in unread.items())
    outside = {name: digest for name, digest in made.items() if name in stored or not name.startswith(ELSEWHERE)}
    return {**outside, **unread}, counted
