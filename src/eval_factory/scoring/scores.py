"""Values of instances -> scores: HELM's means to the last digit, intervals, bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from eval_factory.core.results import Score, Stats
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.statistics import PROPORTION, describe


def helm_mean(values: Mapping[InstanceKey, float]) -> float:
    """The mean as HELM computes it, to the last digit: per trial a running sum divided by its count, then the same
    over trials."""
    trials: dict[int, list[float]] = defaultdict(list)
    for (_, trial, _), value in values.items():
        trials[trial].append(value)
    means = [_running_mean(trial) for _, trial in sorted(trials.items())]
    return _running_mean(means)


def _running_mean(values: Sequence[float]) -> float:
    total: float = 0
    for value in values:  # not sum() or fsum(): the order of rounding is HELM's
        total += value
    return total / len(values)


def score_of(metric: MetricValues, missing: set[InstanceKey], *, failed_as_zero: bool) -> Score | None:
    """None where the metric is no mean of instances' values and some instance is missing, or none is left."""
    if missing and not metric.values:
        return None  # computed over all instances at once, the missing ones among them
    touched = missing & metric.values.keys()
    is_mean = bool(metric.values) and (metric.merged or helm_mean(metric.values) == metric.helm_mean)
    if not touched:
        value = metric.helm_mean if metric.helm_mean is not None else helm_mean(metric.values)
        if not is_mean:
            return metric.score(value, Stats(len(metric.values), value, None, None, None, None, None))
        return metric.score(value, describe(_by_instance(metric.values), value, metric.scale))
    if not is_mean:
        return None
    kept = counted(metric.values, touched, failed_as_zero=failed_as_zero)
    return mean_score(metric, kept) if kept else None


def counted(
    values: Mapping[InstanceKey, float], missing: set[InstanceKey], *, failed_as_zero: bool
) -> dict[InstanceKey, float]:
    """Without the missing instances, or with 0 for each."""
    if failed_as_zero:
        return {key: 0.0 if key in missing else value for key, value in values.items()}
    return {key: value for key, value in values.items() if key not in missing}


def mean_score(metric: MetricValues, values: Mapping[InstanceKey, float]) -> Score:
    value = helm_mean(values)
    return metric.score(value, describe(_by_instance(values), value, metric.scale))


def _by_instance(values: Mapping[InstanceKey, float]) -> list[float]:
    """One value per instance: the mean over its trials."""
    grouped: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for (instance, _, perturbation), value in values.items():
        grouped[(instance, perturbation)].append(value)
    return [_running_mean(group) for group in grouped.values()]


def bounds_of(metric: MetricValues, missing: set[InstanceKey]) -> tuple[float, float] | None:
    """The value if every missing instance were wrong, and if every one were right.

    Only for values of a known scale, or that all lie from 0 to 1.
    """
    if not metric.values:
        return None
    low, high = metric.scale or PROPORTION
    known = [value for key, value in metric.values.items() if key not in missing]
    if any(not low <= value <= high for value in known):
        return None
    worst = {key: low if key in missing else value for key, value in metric.values.items()}
    best = {key: high if key in missing else value for key, value in metric.values.items()}
    if not missing & metric.values.keys() and metric.helm_mean is not None:
        return metric.helm_mean, metric.helm_mean
    return helm_mean(worst), helm_mean(best)
