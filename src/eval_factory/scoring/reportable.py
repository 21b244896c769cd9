"""Whether a score may be reported: decided here, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection

from eval_factory.core.results import Instances, TaskResult


def is_reportable(main_metric: str, computed: Collection[str], instances: Instances, min_coverage: float) -> bool:
    """There is a main score, and enough instances have one.

    Args:
        computed: the metrics that have a score.
        min_coverage: the least share of instances, from 0 to 1 (`extra.min_coverage`).
    """
    return main_metric in computed and instances.coverage >= min_coverage


def why_not_reportable(result: TaskResult, min_coverage: float) -> str | None:
    """The message, and what to do; None where the scores may be reported."""
    if result.reportable:
        return None
    if result.main_metric not in result.scores and not result.something_to_ask:
        return "NOT REPORTABLE: HELM computed no main metric; validity.notes say why"
    advice = (
        "run the same command again to ask for what is missing"
        if result.something_to_ask
        else "nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
    )
    coverage = f"coverage {result.validity.instances.coverage:.4f}, min_coverage is {min_coverage:g}"
    return f"NOT REPORTABLE: {coverage}\n  {advice}"
