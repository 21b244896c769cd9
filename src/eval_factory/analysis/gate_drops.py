"""Checks the limits of a drop from a gate's baseline to its candidate.

A candidate is the model that a gate accepts or refuses; a baseline is the earlier model with which
the candidate is compared. A drop is the amount by which the candidate's score is worse than the
baseline's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from eval_factory.analysis.comparison_records import Comparison
from eval_factory.analysis.gate_checks import Check
from eval_factory.analysis.gate_policy import Direction, Limits
from eval_factory.core import formats
from eval_factory.core.enums import Evidence, Verdict
from eval_factory.report.reader import StoredResult
from eval_factory.scoring.paired import PairedDifference, non_inferiority

# evidence of non-inferiority -> (the outcome, the words in front of the permitted drop)
_OUTCOMES = {
    Evidence.SHOWN: (Verdict.PASS, "not worse by more than"),
    Evidence.REFUTED: (Verdict.FAIL, "worse by more than"),
    Evidence.INCONCLUSIVE: (Verdict.INCONCLUSIVE, "may be worse by more than"),
}


@dataclass(frozen=True)
class Change:
    """The change from the baseline to the candidate."""

    baseline: StoredResult
    comparison: Comparison
    higher_is_better: bool
    # True if the same model gave the same answers, so that no drop is possible
    unchanged: bool
    scale: tuple[float, float] | None  # the scale of the scores

    @classmethod
    def between(
        cls,
        baseline: StoredResult,
        candidate: StoredResult,
        comparison: Comparison,
        *,
        direction: Direction | None,
        scale: tuple[float, float] | None,
    ) -> Change:
        """Return the change from a baseline to a candidate.

        Args:
            baseline: the earlier result.
            candidate: the new result.
            comparison: the comparison of both results.
            direction: the better direction in the policy; None for the metric's own direction.
            scale: the scale of the scores.
        """
        higher_is_better = comparison.higher_is_better
        if direction is not None:
            higher_is_better = direction == "higher_is_better"
        unchanged = (
            baseline.result.provenance.target == candidate.result.provenance.target
            and not comparison.paired.discordant  # all values are equal
            and _answers_of(baseline) == _answers_of(candidate)
        )
        return cls(
            baseline,
            comparison,
            higher_is_better=higher_is_better,
            unchanged=unchanged,
            scale=scale,
        )

    def checks_of_drops(
        self, difference: PairedDifference, limits: Limits, group: str | None = None
    ) -> Iterator[Check]:
        """Yield a check for each limit of a drop.

        The check tests by the paired interval whether the candidate is not inferior. The limit
        `max_relative_drop` treats the baseline's score as a fixed number. If no drop is possible
        (`unchanged`), the candidate passes every limit.

        Args:
            difference: the difference (candidate - baseline) over all instances or over a group.
            limits: the limits.
            group: the group, as `field=value`; None for all instances.
        """
        if limits.max_drop is not None:
            yield self._check_of_drop("max_drop", limits.max_drop, difference, group)
        share = limits.max_relative_drop  # of the baseline's score
        if share is None:
            return
        baseline = formats.short(difference.value_a)
        guard = limits.relative_guard_below
        # With a guard, the limit only applies to baselines whose score is below the guard.
        if guard is not None and difference.value_a >= guard:
            message = (
                f"this limit does not apply: the baseline's score {baseline} "
                f"is not below relative_guard_below, {guard:g}"
            )
            # No score of the candidate can break a limit that does not apply.
            yield Check("max_relative_drop", Verdict.PASS, message, group=group, can_fail=False)
            return
        allowed = share * abs(difference.value_a)
        share_words = f", {formats.short(allowed)} of the baseline's {baseline}"
        yield self._check_of_drop("max_relative_drop", allowed, difference, group, share_words)

    def _check_of_drop(
        self,
        limit: str,
        allowed: float,
        difference: PairedDifference,
        group: str | None,
        share_words: str = "",
    ) -> Check:
        """Return the check of a limit of a drop.

        Args:
            limit: the limit's key in the policy.
            allowed: the largest permitted drop, in the unit of the score.
            difference: the difference (candidate - baseline).
            group: the group, as `field=value`; None for all instances.
            share_words: the words that explain `allowed` as a share of the baseline's score.
        """
        evidence = non_inferiority(difference, allowed, higher_is_better=self.higher_is_better)
        outcome, words = _OUTCOMES[evidence]
        if self.unchanged:
            outcome = Verdict.PASS
            words = "the baseline's own answers, not worse by more than"
        observed = formats.short(difference.difference, sign="+")
        low = difference.ci_low
        high = difference.ci_high
        if low is not None and high is not None:
            between = f"{formats.short(low, sign='+')} to {formats.short(high, sign='+')}"
            observed += f" (95 % interval {between})"
        message = (
            f"{observed} on {difference.n} pairs: {words} {formats.short(allowed)}{share_words}"
        )
        if outcome == Verdict.INCONCLUSIVE and difference.mde is not None:
            detectable = formats.short(difference.mde)
            message += f"; a sample of this size shows differences of {detectable} and more"
        return Check(
            limit,
            outcome,
            message,
            group=group,
            allowed=allowed,
            observed=difference.difference,
            ci_low=low,
            ci_high=high,
            can_fail=allowed < self._largest_drop(difference.value_a),
        )

    def _largest_drop(self, baseline: float) -> float:
        """Return the largest possible drop from the baseline's score; infinite without a scale."""
        if self.scale is None:
            return math.inf
        low, high = self.scale
        if self.higher_is_better:
            return baseline - low
        return high - baseline


def _answers_of(stored: StoredResult) -> dict[tuple[object, ...], str | None]:
    """Return the answer to each instance, by (id, split, trial, perturbation)."""
    answers: dict[tuple[object, ...], str | None] = {}
    for record in stored.result.instances:
        key = (record.id, record.split, record.trial, record.perturbation)
        answers[key] = record.completion
    return answers
