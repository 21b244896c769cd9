"""A jury's metric: its scale, the marks of answers that no judge was asked about, HELM's own value beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eval_factory.core.results import Score, Stats
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.errata import CORRECTED


def is_judged(metric: MetricValues, jury_metric: str | None) -> bool:
    return metric.name.removesuffix(CORRECTED) == jury_metric


def of_the_jury(metric: MetricValues, tally: Tally) -> MetricValues:
    """With the lowest mark for each answer that says nothing: no judge is asked, and HELM gives a default."""
    form = tally.ratings.form
    marks = dict.fromkeys(tally.silent & metric.values.keys(), form.lowest)
    if all(metric.values[key] == mark for key, mark in marks.items()):
        return replace(metric, scale=form.scale)
    return replace(metric, scale=form.scale, values=metric.values | marks, helm_mean=None, merged=True)


def helms_own(metrics: Sequence[MetricValues], jury_metric: str | None, tally: Tally) -> dict[str, Score]:
    """What HELM makes of its default for answers without a judgement, where there are such."""
    found = {}
    for metric in metrics:
        if metric.name == jury_metric and metric.helm_mean is not None and tally.failed | tally.unjudged | tally.silent:
            whole = Stats(len(metric.values), metric.helm_mean, None, None, None, None, None)
            found[f"{metric.label}.helm"] = metric.score(metric.helm_mean, whole)
    return found


def missing_of(
    metric: MetricValues, jury_metric: str | None, tally: Tally, *, failed_as_zero: bool
) -> tuple[set[InstanceKey], bool]:
    """(instances without a value that counts, whether they count as 0: it is no mark of a jury's)."""
    judged = is_judged(metric, jury_metric)
    missing = tally.failed | (tally.unjudged if judged else tally.undecided)
    of_parts = {key for key, parts in metric.parts.items() if not missing.isdisjoint(parts)}
    return missing | of_parts, failed_as_zero and not judged
