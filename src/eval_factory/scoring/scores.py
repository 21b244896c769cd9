"""Values of instances -> scores: HELM's means to the last digit, intervals, bounds."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval_factory.core.results import Score, Stats
from eval_factory.scoring.bootstrap import bca_of_ratio
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.statistics import PROPORTION, describe


def helm_mean(values: Mapping[InstanceKey, float]) -> float:
    """The mean as HELM computes it, to the last digit: per trial a running sum divided by its count, then the same
    over trials."""
    return _running_mean(trial_means(values))


def trial_means(values: Mapping[InstanceKey, float]) -> list[float]:
    """HELM's mean of each trial, in their order."""
    trials: dict[int, list[float]] = defaultdict(list)
    for (_, trial, _), value in values.items():
        trials[trial].append(value)
    return [_running_mean(trial) for _, trial in sorted(trials.items())]


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
            return metric.score(value, _stats_of_a_ratio(metric, value))
        return metric.score(value, _stats(metric, metric.values, value))
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
    return metric.score(value, _stats(metric, values, value))


def sample_of(metric: MetricValues, values: Mapping[InstanceKey, float]) -> tuple[list[float], list[str] | None]:
    """One value per instance, the mean over its trials; and of each the source that it shares with others."""
    grouped: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for (instance, _, perturbation), value in values.items():
        grouped[(instance, perturbation)].append(value)
    means = [_running_mean(group) for group in grouped.values()]
    return means, sources_of(metric, [instance for instance, _ in grouped])


def sources_of(metric: MetricValues, instances: Sequence[str]) -> list[str] | None:
    """An instance that was not sorted is a source of its own."""
    if metric.clusters is None:
        return None
    return [metric.clusters.get(instance, instance) for instance in instances]


def _stats(metric: MetricValues, values: Mapping[InstanceKey, float], value: float) -> Stats:
    sample, sources = sample_of(metric, values)
    lowest = None
    if metric.lowest is not None:
        lowest = list({(key[0], key[2]): metric.lowest[key] for key in values}.values())
    stats = describe(sample, value, metric.scale, sources, lowest)
    trials = trial_means(values)
    if len(trials) < 2:
        return stats
    return replace(stats, trials=len(trials), trial_stddev=statistics.stdev(trials))


def _stats_of_a_ratio(metric: MetricValues, value: float) -> Stats:
    """Of what is no mean of instances' values: a bootstrap interval where HELM's value is a ratio of their sums.

    What HELM computes over all instances at once, and keeps nothing of, has none.
    """
    plain = Stats(len(metric.values), value, None, None, None, None, None)
    counts = [metric.counts.get(key, 1) for key in metric.values]
    sums = [one * count for one, count in zip(metric.values.values(), counts, strict=True)]
    if not metric.counts or not sum(counts) or not math.isclose(sum(sums) / sum(counts), value, rel_tol=1e-9):
        return plain
    found = bca_of_ratio(sums, counts, sources_of(metric, [instance for instance, _, _ in metric.values]))
    return replace(plain, ci_low=found.low, ci_high=found.high, ci_method=found.method)


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
