"""Builds the metric `exact_match.lenient`: 1 if the option that an answer states is right.

HELM's exact_match accepts an answer only if the answer consists of the label alone. The package
`reading` finds the stated option in longer answers, too (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eval_factory.scoring.scores import InstanceKey, MetricValues

EXACT_MATCH = "exact_match"  # the name of HELM's metric
LENIENT_SUFFIX = ".lenient"  # the suffix of the new metric's name


def lenient_metrics(
    metrics: Iterable[MetricValues], values: Mapping[InstanceKey, float]
) -> list[MetricValues]:
    """Return `exact_match.lenient` for each split in which instances have exact_match.

    Metrics of perturbed instances are left out.

    Args:
        metrics: HELM's metrics.
        values: a dict from each instance to 1 if the stated option is right, else to 0. Instances
            without an answer are absent. Their value in the new metric is 0, so that the bounds
            include these instances.
    """
    name = EXACT_MATCH + LENIENT_SUFFIX
    lenient = []
    for metric in metrics:
        if metric.name != EXACT_MATCH or metric.perturbation is not None or not metric.values:
            continue
        split_in_label = metric.label.removeprefix(EXACT_MATCH)
        lenient.append(
            MetricValues(
                label=name + split_in_label,
                name=name,
                helm_mean=None,
                scale=metric.scale,
                values={key: values.get(key, 0.0) for key in metric.values},
                split=metric.split,
            )
        )
    return lenient
