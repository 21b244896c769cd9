"""Lists the statuses of a run, with their words and colours.

A suite's screen, journal, table of results and report all read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval_factory.core.enums import RunStatus


@dataclass(frozen=True)
class StatusFacts:
    """The facts about a status."""

    style: str  # the style on the screen, in the terms of `rich`
    goes_on: bool = False  # True if the run has not ended, in a suite that is running
    has_result: bool = False  # True if the run's folder contains a result
    # for a run without a result: the reason, and the next action of the user
    usual_reason: str = ""
    next_step: str = ""


RUN_STATUSES: Mapping[RunStatus, StatusFacts] = {
    RunStatus.RUNNING: StatusFacts(
        style="",
        goes_on=True,
        usual_reason="it was running",
        next_step="run the suite again: it adopts the runs that have ended",
    ),
    RunStatus.FAILED: StatusFacts(
        style="red",
        usual_reason="it has no result",
        next_step=(
            "correct the cause that the reason names, then run the suite again: "
            "it starts the failed runs"
        ),
    ),
    RunStatus.PARTIAL: StatusFacts(style="yellow", has_result=True),
    # not yet started, or without a collected result, in a suite that is running
    RunStatus.WAITING: StatusFacts(
        style="dim",
        goes_on=True,
        usual_reason="it goes on",
        next_step="run the suite again: it adopts the runs that have ended",
    ),
    RunStatus.MISSING: StatusFacts(
        style="yellow",
        usual_reason="it was not started",
        next_step="run the suite again: it starts the missing runs",
    ),
    RunStatus.COMPLETE: StatusFacts(style="green", has_result=True),
}
"""The status of a run -> its facts. The order is a priority: a screen that cannot show all runs
shows those whose status comes first.
"""

GOING_ON = tuple(status for status, facts in RUN_STATUSES.items() if facts.goes_on)
NOT_GOING_ON = tuple(status for status, facts in RUN_STATUSES.items() if not facts.goes_on)
WITH_RESULT = tuple(status for status, facts in RUN_STATUSES.items() if facts.has_result)
"""The statuses of runs that have not ended, of all other runs, and of runs with a result."""
