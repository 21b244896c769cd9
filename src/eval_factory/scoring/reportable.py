"""Whether a score may be reported: decided here, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection

from eval_factory.core.results import Instances, TaskResult


def is_reportable(
    main_metric: str,
    computed: Collection[str],
    instances: Instances,
    min_coverage: float,
    reasons_against: Collection[str] = (),
) -> bool:
    """There is a main score, enough instances have one, and nothing else speaks against it.

    Args:
        computed: the metrics that have a score.
        min_coverage: the least share of instances, from 0 to 1 (`extra.min_coverage`).
        reasons_against: what else forbids to report the scores (`validity.not_reportable`).
    """
    return main_metric in computed and instances.coverage >= min_coverage and not reasons_against


def why_not_reportable(result: TaskResult, min_coverage: float) -> str | None:
    """The message, and what to do; None where the scores may be reported."""
    if result.reportable:
        return None
    reasons = [f"NOT REPORTABLE: {reason}" for reason in result.validity.not_reportable]
    coverage = result.validity.instances.coverage
    if result.main_metric not in result.scores and not result.something_to_ask:
        reasons.insert(0, "NOT REPORTABLE: HELM computed no main metric; validity.notes say why")
    elif coverage < min_coverage or not reasons:
        advice = (
            "run the same command again to ask for what is missing"
            if result.something_to_ask
            else "nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
        )
        reasons.insert(0, f"NOT REPORTABLE: coverage {coverage:.4f}, min_coverage is {min_coverage:g}\n  {advice}")
    return "\n".join(reasons)
