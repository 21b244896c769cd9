"""Computes the score of questions that were asked several times.

The value of a question is the mean over its askings. An asking is one repetition of the same
request, or one order of the answer choices.
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


def metrics_with_name_and_split_of(
    main: MetricValues, metrics: Sequence[MetricValues]
) -> list[MetricValues]:
    """Return the metrics with the main metric's name and split, in every perturbation."""
    matching = []
    for metric in metrics:
        if metric.name == main.name and metric.split == main.split:
            matching.append(metric)
    return matching


def add_mean_over_askings(
    draft: Draft, metrics: Sequence[MetricValues], suffix: str
) -> MetricValues | None:
    """Add the score of the questions' means over their askings, with its bounds.

    If the mean of a question lies outside the metric's scale, the bounds are left out.

    Args:
        draft: the result that gets the score and the bounds.
        metrics: one metric for each asking; the first is the main metric.
        suffix: the text that the new score's name appends to the name of the main metric.

    Returns:
        The metric with the mean of each question. If no question has a value, nothing is added and
        None is returned.
    """
    main = metrics[0]
    values: dict[InstanceKey, float] = {}
    for metric in metrics:
        values |= metric.values  # no key is in two metrics, because each asking has its own keys
    counted = with_missing_counted(values, draft.missing, failed_as_zero=draft.missing_as_zero)
    mean = _means_of_questions(main, counted, suffix)
    if not mean.values:
        return None
    # No value is missing here: missing values were left out or set to 0 above (`counted`).
    score = score_of(mean, missing=set(), failed_as_zero=draft.missing_as_zero)
    if score is None:
        return None
    if draft.run.rubric:
        # A published rubric score lies between 0 and 1, although a case's value may be below 0.
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
    """Return the lowest and the highest score of the means that the missing values allow.

    In the lowest score, every missing value is the lowest possible value; in the highest score, the
    highest possible value. Return None if the mean of a question lies outside the metric's scale.

    Args:
        main: the main metric.
        values: instance -> value. A missing instance may have a value, which is not used.
        missing: the instances without a usable value.
        suffix: the text that is appended to the name of the metric.
    """
    lowest, highest = main.scale or PROPORTION
    replaced = missing & values.keys()
    worst = {**values, **dict.fromkeys(replaced, lowest)}
    best = {**values, **dict.fromkeys(replaced, highest)}
    # No value is missing from `worst` and `best`. The two bounds of each are therefore equal.
    bounds_of_worst = bounds_of(_means_of_questions(main, worst, suffix), missing=set())
    bounds_of_best = bounds_of(_means_of_questions(main, best, suffix), missing=set())
    if bounds_of_worst is None or bounds_of_best is None:
        return None
    return bounds_of_worst[0], bounds_of_best[1]


def _means_of_questions(
    main: MetricValues, values: Mapping[InstanceKey, float], suffix: str
) -> MetricValues:
    """Return a metric whose values are the means of each question's values in each trial.

    A trial of HELM is not an asking: trials differ in the examples of the prompt.
    """
    by_unit: dict[Unit, list[float]] = defaultdict(list)  # a unit: (question, trial)
    for (question, trial, _), value in values.items():
        by_unit[question, trial].append(value)
    means: dict[InstanceKey, float] = {}
    for (question, trial), values_of_unit in by_unit.items():
        # None: the mean over the askings belongs to no perturbation.
        means[question, trial, None] = statistics.fmean(values_of_unit)
    name = main.name + suffix
    # The label is the name, followed by the split if it is not the main split.
    split_in_label = main.label.removeprefix(main.name)
    label = name + split_in_label
    return replace(main, label=label, name=name, helm_mean=None, values=means, counts={})
