"""Chooses the main metric of a result, and computes that metric's scores by group."""

from __future__ import annotations

from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.groups import scores_by_group
from eval_factory.scoring.jury import missing_judgements
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.reasoned_answers import main_label
from eval_factory.scoring.scores import MetricValues
from eval_factory.scoring.tally import notes_on_clusters
from eval_factory.tasks.errata import CORRECTED


class MainMetric(Part):
    """The choice of the main metric: the metric that a result is about."""

    def publish(self, draft: Draft) -> None:
        """Choose the main metric; store which instances lack a value of this metric."""
        labels = [metric.label for metric in draft.metrics]
        draft.main, draft.main_metric_notes = chosen_main_metric(
            draft.plan.evaluation.task.helm, labels
        )
        draft.main = main_label(draft)
        draft.main_values = _metric_labelled(draft, draft.main)
        tally = draft.tally
        draft.missing = tally.failed | tally.undecided
        draft.missing_as_zero = draft.failed_as_zero
        if draft.main_values is not None:
            draft.missing, draft.missing_as_zero = missing_judgements(
                draft.main_values, draft.jury_metric, tally, failed_as_zero=draft.failed_as_zero
            )
        draft.instances = tally.counts(draft.missing)

    def conclude(self, draft: Draft) -> None:
        """Add the notes on how the main metric was chosen."""
        importance = Importance.NO_RESULT
        if draft.main in draft.scores:
            importance = Importance.DOUBTFUL
        draft.notes.add(importance, *draft.main_metric_notes)


class Grouping(Part):
    """The scores of the main metric by group of instances, such as a specialty."""

    def group(self, draft: Draft) -> None:
        """Add the scores by group, and notes on instances that share a source."""
        rule = draft.plan.evaluation.task.helm.cluster
        main_score = draft.scores.get(draft.main)
        draft.notes.extend(notes_on_clusters(rule, draft.tally.clusters, main_score))
        if draft.main_values is None:
            return
        draft.groups = scores_by_group(
            draft.main_values,
            draft.tally.members,
            draft.missing,
            failed_as_zero=draft.missing_as_zero,
            corrected_metric=_metric_labelled(draft, f"{draft.main}{CORRECTED}"),
        )

    def note_groups(self, draft: Draft) -> None:
        """Add the notes on the groups."""
        draft.notes.extend(draft.groups.notes())


def _metric_labelled(draft: Draft, label: str) -> MetricValues | None:
    """Return the metric with this label; None if the draft has no metric with this label."""
    for metric in draft.metrics:
        if metric.label == label:
            return metric
    return None
