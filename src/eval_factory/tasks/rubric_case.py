"""Defines the cases of rubric benchmarks, and computes their scores.

A case is a conversation, and criteria for the model's answer. Judges decide whether the answer
meets each criterion. The scores are computed as in HealthBench (Arora et al. 2025, arXiv
2505.08775; MIT licence) and HealthBench Professional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM_ROLE = "system"
USER_ROLE = "user"
ASSISTANT_ROLE = "assistant"
MESSAGE_ROLES = (
    SYSTEM_ROLE,
    "developer",
    USER_ROLE,
    ASSISTANT_ROLE,
)  # the roles that a message may have

ALL_CASES = "all"  # the value of the parameter `subset` for all cases of HealthBench
RUBRIC_METRIC = "rubric_score"  # the metric of a custom rubric benchmark
RUBRIC_RUN_SPEC = "eval_factory_rubric"  # eval-factory's run spec for rubric benchmarks
HEALTHBENCH_METRIC = "healthbench_score"
PROFESSIONAL_METRIC = "healthbench_professional_score"
DIAGNOSIS_METRIC = "diagnosis_score"  # MedCaseReasoning: the share of right diagnoses

UNCLIPPED_SUFFIX = ".unclipped"
"""The end of the name of a rubric score that may be below 0. The published score is clipped at 0.
"""

LENGTH_ADJUSTED_SUFFIX = ".length_adjusted"
"""The end of the name of HealthBench Professional's score after the adjustment for the length of
the answers (see `length_adjusted`); not clipped at 0.
"""

JUDGE_CORRECTED_SUFFIX = ".judge_corrected"
"""The end of the name of a rubric score that is corrected for the judge's errors. The error rates
are in the judge's passport, which reports how well the judge agrees with physicians.
"""

UNADJUSTED_LENGTH = 2_000
"""The length of an answer, in characters, for which the adjustment for the length is 0."""

_ADJUSTMENT = 0.0147  # the part of a score that each `_ADJUSTED_LENGTH` more characters cost
_ADJUSTED_LENGTH = 500

RUBRICS_KEY = "rubrics"
TAGS_KEY = "tags"
_CLUSTER_KEY = "cluster"
CANARY_KEY = "canary"
ANSWER_KEY = "answer"
SAMPLE_KEY = "sample"
"""These six constants are keys of an instance's extra data, in which HELM stores the parts of a
case.
"""


@dataclass(frozen=True)
class Criterion:
    """A statement about an answer, and the points of an answer for which the statement is true.

    The points are negative if the statement describes a fault.
    """

    text: str
    points: float
    tags: tuple[str, ...] = ()  # the labels of the criterion in the benchmark's file

    def as_dict(self) -> dict[str, Any]:
        """Return the criterion in the form of HealthBench's files."""
        return {"criterion": self.text, "points": self.points, "tags": list(self.tags)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Criterion:
        """Return the criterion of a mapping that `as_dict` returned."""
        return cls(record["criterion"], record["points"], tuple(record["tags"]))


@dataclass(frozen=True)
class RubricCase:
    """A conversation, and the criteria for the model's answer to it."""

    id: str
    # messages with `role` and `content`; the last message is the user's
    messages: tuple[Mapping[str, str], ...]
    criteria: tuple[Criterion, ...]
    reference: str | None = None  # a good answer, which is shown to the judges
    cluster: str | None = None  # the source that several cases share
    tags: tuple[str, ...] = ()  # the labels of the case itself, not of its criteria
    canary: str | None = None  # a string that marks test data, so that no model is trained on them
    answer: str | None = None  # an existing answer to judge: the model is then not asked
    sample: int | None = None
    """A number that makes judges decide again about an equal case: requests that differ only in
    this number are separate samples.
    """

    def extra_data(self) -> dict[str, Any]:
        """Return the instance's extra data, without the optional fields that are None."""
        optional_fields = {
            _CLUSTER_KEY: self.cluster,
            CANARY_KEY: self.canary,
            ANSWER_KEY: self.answer,
            SAMPLE_KEY: self.sample,
        }
        stored = {}
        for name, value in optional_fields.items():
            if value is not None:
                stored[name] = value
        return {
            RUBRICS_KEY: [criterion.as_dict() for criterion in self.criteria],
            TAGS_KEY: list(self.tags),
            **stored,
        }


def conversation_text(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the messages as one text.

    A single message of the user is returned unchanged; otherwise each message begins with its role.
    """
    if len(messages) == 1 and messages[0]["role"] == USER_ROLE:
        return messages[0]["content"]
    turns = []
    for turn in messages:
        turns.append(f"{turn['role']}: {turn['content']}")
    return "\n\n".join(turns)


def positive_points(criteria: Iterable[Criterion]) -> float:
    """Return the sum of all positive points, which is the highest number of points of a case."""
    return sum(criterion.points for criterion in criteria if criterion.points > 0)


def case_score(criteria: Sequence[Criterion], met: Sequence[float | None]) -> float | None:
    """Return the score of a case (Arora et al. 2025, arXiv 2505.08775).

    The sum of the points of all met criteria is divided by the sum of all positive points. The
    score is at most 1, and below 0 if negative points prevail. Returns None if no judge decided
    about a criterion, or if no criterion has positive points.

    Args:
        criteria: the criteria of the case.
        met: for each criterion the share of its points, as `share_by_majority` returns it; None if
            no judge decided.
    """
    maximum = positive_points(criteria)
    shares = [share for share in met if share is not None]
    if maximum <= 0 or len(shares) < len(met):
        return None
    points = 0.0
    for criterion, share in zip(criteria, shares, strict=True):
        points += criterion.points * share
    return points / maximum


def length_adjusted(score: float, length: int) -> float:
    """Return the score of a case after the adjustment for the length of the answer.

    HealthBench Professional subtracts 0.0147 for each 500 characters above 2,000, and adds 0.0147
    for each 500 characters below (R. Soskin Hicks et al. 2026, arXiv 2604.27470, section 4.1). The
    adjustment is linear, as in simple-evals.

    Args:
        score: the score of the case, at most 1.
        length: the length of the answer in characters.
    """
    return score - _ADJUSTMENT * (length - UNADJUSTED_LENGTH) / _ADJUSTED_LENGTH


def case_bounds(
    criteria: Sequence[Criterion], ranges: Sequence[tuple[float, float]]
) -> tuple[float, float] | None:
    """Return the lowest and the highest possible score of a case.

    Returns None if no criterion has positive points.

    Args:
        criteria: the criteria of the case.
        ranges: for each criterion the lowest and the highest possible share of its points, as
            `range_by_majority` returns them.
    """
    maximum = positive_points(criteria)
    if maximum <= 0:
        return None
    bounds = []
    for criterion, shares in zip(criteria, ranges, strict=True):
        # Sorted, because with negative points the highest share gives the lowest result.
        bounds.append(sorted(criterion.points * share for share in shares))
    lowest = sum(low for low, _ in bounds)
    highest = sum(high for _, high in bounds)
    return lowest / maximum, highest / maximum


def share_by_majority(decisions: Iterable[bool | None]) -> float | None:
    """Return the share of a criterion's points by the decision of the majority of the judges.

    The share is 1 (met), 0 (not met) or 0.5 (a tie). Returns None if no judge decided.

    Args:
        decisions: the decision of each judge. None (no decision) is not counted.
    """
    decided = [decision for decision in decisions if decision is not None]
    if decided:
        return _majority(sum(decided), len(decided))
    return None


def range_by_majority(decisions: Sequence[bool | None]) -> tuple[float, float]:
    """Return the lowest and the highest share that the judges may reach when all have decided.

    Lowest: each judge without a decision would decide no. Highest: each would decide yes. Without
    judges, the result is (0, 1).

    Args:
        decisions: the decision of each judge; None for a judge without a decision.
    """
    if not decisions:
        return 0.0, 1.0
    yes = sum(decision is True for decision in decisions)
    missing = sum(decision is None for decision in decisions)
    return _majority(yes, len(decisions)), _majority(yes + missing, len(decisions))


def _majority(yes: int, total: int) -> float:
    """Return the share by the majority of `total` judges: 1, 0, or 0.5 for a tie."""
    if 2 * yes == total:
        return 0.5
    return float(2 * yes > total)
