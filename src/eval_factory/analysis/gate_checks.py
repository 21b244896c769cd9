"""Checks one limit of a gate that needs the candidate's result alone: score, coverage, judges.

A candidate is the model that a gate accepts or refuses. A check of a limit passes, fails, or is
inconclusive because the sample is too small. `gate_drops.py` checks the limits of a drop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eval_factory.analysis.gate_policy import Direction
from eval_factory.core import formats
from eval_factory.core.enums import Verdict
from eval_factory.core.results import Score, Validity


@dataclass(frozen=True)
class Check:
    """The check of one limit of one score."""

    # the limit's key in the policy; `result` if there is no number to compare with a limit
    limit: str
    outcome: Verdict
    message: str
    # `field=value`, or `field` if the result has no groups by this field; None means all instances
    group: str | None = None
    # the limit, in the unit of the number; for a drop, the largest permitted drop
    allowed: float | None = None
    # the measured number; for a drop, the difference of the scores (candidate - baseline)
    observed: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    can_fail: bool = True  # False if no possible score of the candidate breaks the limit


def check_of_coverage(coverage: float, min_coverage: float, group: str | None = None) -> Check:
    """Return the check of the smallest permitted coverage, of all instances or of a group."""
    outcome = Verdict.FAIL
    if coverage >= min_coverage:
        outcome = Verdict.PASS
    message = f"coverage is {formats.short(coverage)}; at least {min_coverage:g} is needed"
    return Check(
        "min_coverage", outcome, message, group=group, allowed=min_coverage, observed=coverage
    )


def check_of_judges(validity: Validity, min_alpha: float) -> Check:
    """Return the check of the lowest permitted agreement of judges.

    Judges that are not shown to agree more than by chance fail the check, whatever their alpha is.
    The check also fails if a judge gives every answer the same marks, or gives every criterion the
    same decision.
    """
    alpha = None
    weakness = ""
    if validity.jury is not None:
        alpha = validity.jury.krippendorff_alpha
        if validity.jury.is_shown_to_agree is False:
            weakness = "; the judges are not shown to agree more than by chance"
        if validity.jury.constant:
            weakness = f"; {', '.join(validity.jury.constant)} gives every answer the same marks"
    elif validity.rubric is not None:
        alpha = validity.rubric.krippendorff_alpha
        if validity.rubric.is_shown_to_agree is False:
            weakness = "; the judges are not shown to agree more than by chance"
        if validity.rubric.constant:
            weakness = (
                f"; {', '.join(validity.rubric.constant)} gives every criterion the same decision"
            )
    needed = f"at least {min_alpha:g} is needed{weakness}"
    if alpha is None:
        message = f"the agreement of judges is not defined; {needed}"
        return Check("min_judge_agreement", Verdict.FAIL, message)
    outcome = Verdict.FAIL
    if alpha >= min_alpha and not weakness:
        outcome = Verdict.PASS
    message = f"Krippendorff's alpha is {formats.coefficient(alpha)}; {needed}"
    return Check("min_judge_agreement", outcome, message, allowed=min_alpha, observed=alpha)


def check_without_number(why: str, group: str | None = None) -> Check:
    """Return the failed check of a benchmark or group without a number to compare with a limit."""
    return Check("result", Verdict.FAIL, why, group=group)


def check_of_min(
    score: Score, minimum: float, direction: Direction | None, group: str | None = None
) -> Check:
    """Return the check of the lowest permitted score, by the interval of the score.

    The check fails if a lower score is better, because `min` has no meaning then. Without an
    interval, a score below the minimum fails, and any other score is inconclusive.

    Args:
        score: the score.
        minimum: the lowest permitted score.
        direction: the better direction in the policy; None for the metric's own direction.
        group: the group, as `field=value`; None for all instances.
    """
    low = score.stats.ci_low
    high = score.stats.ci_high
    value = formats.short(score.value)
    outcome = Verdict.INCONCLUSIVE
    if direction is None:
        lower_is_better = score.higher_is_better is False  # None: the direction is unknown
    else:
        lower_is_better = direction == "lower_is_better"
    if lower_is_better:
        outcome = Verdict.FAIL
        message = (
            "a lower score is better here, so min has no meaning; "
            "limit a drop (max_drop), or give direction"
        )
    elif low is None or high is None:
        if score.value < minimum:
            outcome = Verdict.FAIL
        message = f"{value} without an interval; at least {minimum:g} is needed"
    else:
        words = "may be below or above"
        if low >= minimum:
            outcome = Verdict.PASS
            words = "is at least"
        elif high < minimum:
            outcome = Verdict.FAIL
            words = "is below"
        between = f"(95 % interval {formats.short(low)} to {formats.short(high)})"
        message = f"{value} {between} {words} {minimum:g}"
    lowest_possible = -math.inf if score.scale is None else score.scale[0]
    return Check(
        "min",
        outcome,
        message,
        group=group,
        allowed=minimum,
        observed=score.value,
        ci_low=low,
        ci_high=high,
        can_fail=minimum > lowest_possible,
    )
