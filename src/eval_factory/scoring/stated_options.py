"""Computes the metric `exact_match.lenient`: 1 if the option that an answer states is right.

HELM's exact_match accepts an answer only if it consists of the label alone. The package `reading`
finds the stated option in other forms, too (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eval_factory.scoring.scores import InstanceKey, MetricValues

LENIENT = ".lenient"
METRIC = "exact_match"


def lenient_metrics(
    metrics: Iterable[MetricValues], values: Mapping[InstanceKey, float]
) -> list[MetricValues]:
    """Return `exact_match.lenient` for each split in which HELM computed exact_match.

    Metrics of perturbed instances are left out.

    Args:
        metrics: HELM's metrics.
        values: instance -> 1 if the stated option is right, else 0. An instance without an answer
            is absent; its value is 0, so that the bounds include the instance.
    """
    return [
        MetricValues(
            METRIC + LENIENT + metric.label.removeprefix(METRIC),
            METRIC + LENIENT,
            None,
            scale=metric.scale,
            values={key: values.get(key, 0.0) for key in metric.values},
            split=metric.split,
        )
        for metric in metrics
        if metric.name == METRIC and metric.perturbation is None and metric.values
    ]
