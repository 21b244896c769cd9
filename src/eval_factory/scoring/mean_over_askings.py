"""Computes the score of questions that were asked several times.

The value of a question is the mean over its askings: repetitions of the same request, or orders of
its answer choices.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from eval_factory.scoring.confidence import Unit
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION, Bounds
from eval_factory.scoring.rubric import clipped
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    score_of,
    with_missing_counted,
)


def same_metric(main: MetricValues, metrics: Sequence[MetricValues]) -> list[MetricValues]:
    """Return the metrics with the main metric's name and split, whatever their perturbation."""
    same = []
    for metric in metrics:
        if metric.name == main.name and metric.split == main.split:
            same.append(metric)
    return same


def add_mean_over(
    draft: Draft, metrics: Sequence[MetricValues], suffix: str
) -> MetricValues | None:
    """Add the score of the questions' means over their askings, with its bounds.

    Args:
        draft: the result that gets the score and the bounds.
        metrics: one metric for each asking; the first is the main metric.
        suffix: the end of the new score's name.

    Returns:
        The metric with the mean of each question. None if no question has a value; nothing is
        added then.
    """
    main = metrics[0]
    values: dict[InstanceKey, float] = {}
    for metric in metrics:
        values |= metric.values
    counted = with_missing_counted(values, draft.missing, failed_as_zero=draft.missing_as_zero)
    mean = _means_of_questions(main, counted, suffix)
    if not mean.values:
        return None
    score = score_of(mean, set(), failed_as_zero=draft.missing_as_zero)
    if score is None:
        return None
    if draft.run.rubric:
        score = clipped(score)
    draft.scores[mean.label] = score
    bounds = _bounds_of_mean(main, values, draft.missing, suffix)
    if bounds is not None:
        draft.bounds[mean.label] = bounds
    return mean


def _bounds_of_mean(
    main: MetricValues,
    values: Mapping[InstanceKey, float],
    missing: Collection[InstanceKey],
    suffix: str,
) -> Bounds | None:
    """Return the score if every missing value were the lowest, and the highest, possible value."""
    lowest, highest = main.scale or PROPORTION
    missing_values = missing & values.keys()
    worst = {**values, **dict.fromkeys(missing_values, lowest)}
    best = {**values, **dict.fromkeys(missing_values, highest)}
    low = bounds_of(_means_of_questions(main, worst, suffix), set())
    high = bounds_of(_means_of_questions(main, best, suffix), set())
    if low is None or high is None:
        return None
    return low[0], high[1]


def _means_of_questions(
    main: MetricValues, values: Mapping[InstanceKey, float], suffix: str
) -> MetricValues:
    """Return a metric whose values are the means of each question's values."""
    by_question: dict[Unit, list[float]] = defaultdict(list)
    for (question, trial, _), value in values.items():
        by_question[question, trial].append(value)
    means: dict[InstanceKey, float] = {}
    for (question, trial), values_of_question in by_question.items():
        means[question, trial, None] = statistics.fmean(values_of_question)
    name = main.name + suffix
    label = name + main.label.removeprefix(main.name)
    return replace(main, label=label, name=name, helm_mean=None, values=means, counts={})
