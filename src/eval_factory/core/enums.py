"""Defines the words that several packages use in records, files and messages with one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# the role of the evaluated model among the endpoints of a run; other roles are names of judges
MODEL_ROLE = "model"


# the names of executors, which run a run or a suite
LOCAL = "local"
SLURM = "slurm"
EXECUTOR_NAMES = (LOCAL, SLURM)


class TextEnum(str, Enum):
    """An enumeration of texts: a member behaves like its text in comparisons, formats and files."""

    # Without these lines, Python 3.12 would format a member as `Word.NAME`.
    __str__ = str.__str__
    __repr__ = str.__repr__
    __format__ = str.__format__  # type: ignore[assignment]


class RunStatus(TextEnum):
    """The status of a run. Suites and results are complete or partial; runs of a suite may have any
    status.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    MISSING = "missing"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True)
class CellRecord:
    """A base class for records about one cell of a suite: one evaluation of one target."""

    target: str
    evaluation: str

    @property
    def name(self) -> str:
        """The name of the cell: `TARGET/EVALUATION`."""
        return f"{self.target}/{self.evaluation}"


class Verdict(TextEnum):
    """The verdict of a gate: a limit is met, is not met, or the sample is too small to decide."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Evidence(TextEnum):
    """The conclusion from a sample about a claim such as "not worse by more than a margin"."""

    SHOWN = "shown"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class AttemptState(TextEnum):
    """The state of an attempt to get an answer, in the journal of requests."""

    ANSWERED = "answered"
    CACHED = "cached"  # the answer was stored already, and no request was sent
    RETRIED = "retried"  # the attempt failed, and another attempt followed
    FAILED = "failed"  # the attempt failed, and was the last attempt
    # The endpoint rejected the request, which was sent again at once (without a field, or with a
    # new token); or the endpoint cannot answer any request.
    REFUSED = "refused"
    # The request was sent, but the process ended before the answer came.
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class AttemptFacts:
    """The facts about an attempt state: how usage and results count such attempts."""

    is_sent: bool = True  # True if a request was sent: limits and usage count the attempt
    is_timed: bool = True  # True if the time until an answer or error was measured
    has_answer: bool = False  # True if the result uses the answer


ATTEMPT_STATES: Mapping[AttemptState, AttemptFacts] = {
    AttemptState.ANSWERED: AttemptFacts(has_answer=True),
    AttemptState.CACHED: AttemptFacts(is_sent=False, is_timed=False, has_answer=True),
    AttemptState.RETRIED: AttemptFacts(),
    AttemptState.FAILED: AttemptFacts(),
    AttemptState.REFUSED: AttemptFacts(is_timed=False),
    AttemptState.INTERRUPTED: AttemptFacts(is_timed=False),
}
