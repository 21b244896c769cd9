"""Computes the scores of all metrics, and the bounds of these scores.

The lower bound is the score with the lowest possible value for every missing value. The upper bound
is the score with the highest possible value for every missing value.
"""

from __future__ import annotations

from eval_factory.helm import output
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import Bounds
from eval_factory.scoring.jury import (
    ALL_JUDGES_SUFFIX,
    bounds_over_judgements,
    missing_instances,
    score_where_all_judges_rated,
)
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    is_judged,
    score_of,
)


class UnscorableAnswers(Part):
    """The part of a result that adds placeholder values for the answers that HELM cannot score.

    These answers count as missing, or as 0 if `extra.on_failure` is `zero`.
    """

    def complete(self, draft: Draft) -> None:
        """Add the placeholder value 0 of each of these answers to HELM's metrics.

        If an answer cannot be scored, HELM scores an empty answer instead. If a metric fails on the
        empty answer, too, the metric has no value of the instance. Only such a metric gets the
        placeholder.
        """
        for key, (_, split) in draft.tally.unscorable.items():
            for metric in draft.metrics:
                if _lacks(metric, key, split, draft.main_split):
                    metric.values[key] = 0.0
                    metric.helm_mean = None  # HELM's mean does not include the placeholder


def _lacks(
    metric: MetricValues, key: InstanceKey, split: str | None, main_split: str | None
) -> bool:
    """Return True if the metric is of the instance's split and lacks a value of the instance.

    Return False for perturbed instances, and for metrics without any values.
    """
    _, _, perturbation = key
    if not metric.values or key in metric.values or perturbation is not None:
        return False
    # Labels are compared, because the label of a metric of perturbed instances differs, too.
    name = output.MetricName(name=metric.name, split=split)
    return metric.label == output.score_label(name, main_split)


class MetricScores(Part):
    """The part of a result that computes the scores of all metrics."""

    def score(self, draft: Draft) -> None:
        """Add the scores of all metrics with their bounds, and notes on the task and the split."""
        task = draft.plan.evaluation.task
        draft.notes.add(Importance.BACKGROUND, *task.about.notes)
        if task.helm.main_split not in (None, draft.main_split):
            draft.notes.add(
                Importance.DOUBTFUL,
                f"these scores are of the questions of the split {draft.main_split}: no instance "
                f"of the main split {task.helm.main_split} was asked",
            )
        # The scores over only the instances that every judge rated.
        scores_of_all_judges = {}
        for metric in draft.metrics:
            _add_score(metric, draft)
            if metric.label in draft.scores and is_judged(metric, draft.jury_metric):
                score = score_where_all_judges_rated(
                    metric, draft.tally.ratings, draft.tally.judges
                )
                if score is not None:
                    scores_of_all_judges[metric.label + ALL_JUDGES_SUFFIX] = score
        # These scores are listed before the further scores that other parts added.
        draft.further_scores = scores_of_all_judges | draft.further_scores


def _add_score(metric: MetricValues, draft: Draft) -> None:
    """Add the metric's score with its bounds; if there is no score, add a note with the cause."""
    tally = draft.tally
    metric.clusters = tally.clusters or None  # None if the task declares no sources
    metric.looks = draft.looks  # the planned looks of `stop_when`, which widen the interval
    # Missing instances of a jury's metric never count as 0.
    missing, missing_as_zero = missing_instances(
        metric, draft.jury_metric, tally, failed_as_zero=draft.failed_as_zero
    )
    score = score_of(metric, missing, failed_as_zero=missing_as_zero)
    if score is None:
        cause = "it cannot be computed without the failed instances"
        if is_judged(metric, draft.jury_metric) and not tally.failed:
            cause = "no judge scored any answer"
        draft.notes.add(Importance.INCOMPLETE, f"{metric.label} is absent: {cause}")
        return
    draft.scores[metric.label] = score
    bounds = _bounds_of(metric, missing, draft)
    if bounds is not None:
        draft.bounds[metric.label] = bounds


def _bounds_of(metric: MetricValues, missing: set[InstanceKey], draft: Draft) -> Bounds | None:
    """Return the metric's lower and upper bound; None if a value lies outside its scale."""
    if is_judged(metric, draft.jury_metric):
        return bounds_over_judgements(metric, draft.tally.ratings, draft.tally.judges)
    return bounds_of(metric, missing)
