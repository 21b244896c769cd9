"""Chooses the main metric of a result, and computes that metric's scores by group."""

from __future__ import annotations

from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.groups import scores_by_group
from eval_factory.scoring.jury import missing_instances
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.reasoned_answers import label_with_reasoning
from eval_factory.scoring.scores import MetricValues
from eval_factory.scoring.tally import notes_on_clusters
from eval_factory.tasks.errata import CORRECTED_SUFFIX


class MainMetric(Part):
    """The part of a result that chooses the main metric: the metric that the result is about."""

    def publish(self, draft: Draft) -> None:
        """Choose the main metric; store its label and its values.

        Also store which instances have no usable value of the main metric, and whether these
        instances count as 0. `draft.instances` gets the numbers of instances, such as requested,
        scored and failed.
        """
        labels = [metric.label for metric in draft.metrics]
        draft.main, draft.main_metric_notes = chosen_main_metric(
            draft.plan.evaluation.task.helm, labels
        )
        # If the answers contain reasoning, the label gets a suffix, and the draft gets a note.
        draft.main = label_with_reasoning(draft)
        draft.main_values = _metric_labelled(draft, draft.main)
        tally = draft.tally
        if draft.main_values is None:
            # HELM has no such metric: only failed requests and unscored rubric cases are known.
            draft.missing = tally.failed | tally.unscored_cases
            draft.missing_as_zero = draft.failed_as_zero
        else:
            draft.missing, draft.missing_as_zero = missing_instances(
                draft.main_values, draft.jury_metric, tally, failed_as_zero=draft.failed_as_zero
            )
        draft.instances = tally.counts(draft.missing)

    def conclude(self, draft: Draft) -> None:
        """Add the notes on the choice of the main metric.

        If the main metric has no score, these notes are urgent.
        """
        importance = Importance.NO_RESULT
        if draft.main in draft.scores:
            importance = Importance.DOUBTFUL
        draft.notes.add(importance, *draft.main_metric_notes)


class Grouping(Part):
    """The part of a result that scores groups of instances, such as those of a specialty."""

    def group(self, draft: Draft) -> None:
        """Add the main metric's scores by group, and notes on instances that share a source."""
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
            corrected_metric=_metric_labelled(draft, f"{draft.main}{CORRECTED_SUFFIX}"),
        )

    def note_groups(self, draft: Draft) -> None:
        """Add the notes on groups that are too small to be shown."""
        draft.notes.extend(draft.groups.notes())


def _metric_labelled(draft: Draft, label: str) -> MetricValues | None:
    """Return the metric with this label; None if the draft has no metric with this label."""
    for metric in draft.metrics:
        if metric.label == label:
            return metric
    return None
