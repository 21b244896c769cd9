"""Computes scores with intervals and bounds from the values that HELM stores for each instance.

The means agree with HELM's means to the last digit.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.results import Score, Stats
from eval_factory.helm import output
from eval_factory.helm.metric_facts import is_score, metric_facts_of
from eval_factory.scoring.intervals import PROPORTION, Bounds, bca_interval_of_ratio, describe
from eval_factory.tasks.errata import CORRECTED_SUFFIX

InstanceKey = tuple[str, int, str | None]  # (instance id, trial, perturbation)
_WORST = ".worst"
"""The suffix of the perturbation of a worst-case metric.

In such a metric, the value of an instance is the lowest value of its original and perturbed forms.
"""
ORIGINAL_SUFFIX = ".original"
"""The suffix of the perturbation of a metric with the values before the perturbation."""


@dataclass
class MetricValues:
    """The values of one metric in one split and perturbation."""

    label: str  # the unique label, such as `f1@test`; see `output.score_label`
    name: str  # the name of the metric alone, such as `f1`
    # None if HELM has no mean over all instances, or if the values are not HELM's own
    helm_mean: float | None
    # the lowest and the highest possible value, if these are known
    scale: Bounds | None = None
    values: dict[InstanceKey, float] = field(default_factory=dict)
    split: str | None = None
    perturbation: str | None = None
    # the number of observations in the value of an instance, if it is not 1
    counts: dict[InstanceKey, int] = field(default_factory=dict)
    forms: Mapping[InstanceKey, Sequence[InstanceKey]] = field(default_factory=dict)
    """Key of a derived value -> the forms of the instance, original and perturbed, that it counts.

    The derived value is the lowest value of these forms. Empty unless `is_derived`.
    """
    # id of an instance -> its source (such as a patient's note); None if the task declares none
    clusters: Mapping[str, str] | None = None
    # the number of looks (interim analyses of the growing sample), for `intervals.describe`; it may
    # be a fraction, because scoring/sequential.py expresses another alpha than 5 % by more or fewer
    # looks
    looks: float = 1
    # the lowest possible value of each instance, if these differ, as for a rubric
    lowest: Mapping[InstanceKey, float] | None = None

    def make_score(self, value: float, stats: Stats) -> Score:
        """Return a score of this metric with this value and these statistics."""
        facts = metric_facts_of(self.name, self.scale)
        return Score(
            value,
            stats,
            metric=self.name,
            split=self.split,
            perturbation=self.perturbation,
            higher_is_better=facts.higher_is_better,
            scale=self.scale or facts.scale,
            unit=facts.unit,
        )


def is_judged(metric: MetricValues, jury_metric: str | None) -> bool:
    """Return True if the metric is the jury's metric, or the corrected form of that metric."""
    return metric.name.removesuffix(CORRECTED_SUFFIX) == jury_metric


def metric_values_of(run: output.HelmRun, main_split: str | None) -> list[MetricValues]:
    """Return each metric of HELM's run with the values of the instances, in HELM's order.

    Args:
        run: HELM's run.
        main_split: the split whose metrics have labels without a split.
    """
    by_label: dict[str, MetricValues] = {}
    for stat in run.stats:
        if stat.mean is None or not is_score(stat.name.name):
            continue
        label = output.score_label(stat.name, main_split)
        if label in by_label:
            # Several of HELM's statistics have this label: each is the mean of some instances.
            by_label[label].helm_mean = None
        else:
            perturbation = output.perturbation_label(stat.name)
            split = stat.name.split
            name = stat.name.name
            by_label[label] = MetricValues(
                label, name, stat.mean, split=split, perturbation=perturbation
            )
    applied = _add_values(by_label, run, main_split)
    # HELM also writes worst cases of families that were not applied. These repeat the plain scores,
    # so they are left out.
    metrics = []
    for metric in by_label.values():
        if metric.perturbation is None or _family_of(metric) in applied:
            metrics.append(metric)
    for metric in metrics:
        _add_derived_values(metric, metrics, applied)
    return metrics


def is_derived(metric: MetricValues) -> bool:
    """Return True if the values are computed from those of other metrics.

    This applies to metrics of worst cases, and to metrics of instances before a perturbation.
    """
    return metric.perturbation is not None and metric.perturbation.endswith(
        (_WORST, ORIGINAL_SUFFIX)
    )


def _family_of(metric: MetricValues) -> str:
    """Return the family of perturbations, such as robustness, of a derived metric.

    A single perturbation is its own family.
    """
    return str(metric.perturbation).removesuffix(_WORST).removesuffix(ORIGINAL_SUFFIX)


def _add_derived_values(
    metric: MetricValues, metrics: Sequence[MetricValues], applied: Mapping[str, set[str]]
) -> None:
    """Add the values of instances to a derived metric; leave other metrics unchanged.

    HELM stores only the means of derived metrics. The values are computed as in
    `compute_worst_case_metrics` (helm/benchmark/metrics/metric.py). In a worst-case metric, the
    value is the lowest value of the instance's original and perturbed forms. In a metric of
    instances before a perturbation, the value is that of the original form. Instances that no
    perturbation changed count for the families robustness and fairness only. No values are added if
    HELM stored a mean of several observations for an instance.

    Args:
        metric: the metric that gets the values.
        metrics: all metrics of the run.
        applied: a dict from family of perturbations to the names of its applied perturbations.
    """
    if not is_derived(metric):
        return
    family = _family_of(metric)
    only_original = str(metric.perturbation).endswith(ORIGINAL_SUFFIX)
    perturbations = {None, *applied[family]}  # None: the original instances
    values: dict[InstanceKey, float] = {}
    for plain in metrics:
        has_same_name = plain.name == metric.name and plain.split == metric.split
        if has_same_name and plain.perturbation in perturbations:
            # HELM takes the lowest of an instance's observations, but no file contains these.
            if plain.counts:
                values = {}
                break
            values |= plain.values
    # A single perturbation is its own family. Then only the instances that it changed count.
    is_single = family in perturbations
    counted = set()  # (instance id, trial)
    for instance, trial, perturbation in values:
        if perturbation is not None or not is_single:
            counted.add((instance, trial))
    forms: dict[InstanceKey, list[InstanceKey]] = {}
    for key in values:
        instance, trial, perturbation = key
        is_used = perturbation is None or not only_original
        if is_used and (instance, trial) in counted:
            forms.setdefault((instance, trial, metric.perturbation), []).append(key)
    metric.forms = forms
    metric.values = {}
    for key, forms_of_instance in forms.items():
        metric.values[key] = min(values[form] for form in forms_of_instance)


def _add_values(
    metrics: Mapping[str, MetricValues], run: output.HelmRun, main_split: str | None
) -> dict[str, set[str]]:
    """Add the values of the instances to the metrics.

    Args:
        metrics: a dict from label to metric.
        run: HELM's run.
        main_split: the split whose metrics have labels without a split.

    Returns:
        A dict from each applied family of perturbations to the names of its perturbations.
    """
    keys: dict[InstanceKey, InstanceKey] = {}
    # (name, split, perturbation) of a metric -> its label; saves making a label for each instance
    labels: dict[tuple[str, str | None, output.Perturbation | None], str] = {}
    metric_names = {metric.name for metric in metrics.values()}
    applied: dict[str, set[str]] = {}
    for entry in run.per_instance_stats():
        perturbation = None
        if entry.perturbation is not None:
            perturbation = entry.perturbation.name
            for family in entry.perturbation.families:
                applied.setdefault(family, set()).add(perturbation)
        key = (entry.instance_id, entry.train_trial_index, perturbation)
        key = keys.setdefault(key, key)  # equal keys share one object, which saves memory
        for stat in entry.stats:
            name = stat["name"]
            mean = stat.get("mean")
            if mean is None or name["name"] not in metric_names:
                continue
            context = (name["name"], name.get("split"), name.get("perturbation"))
            if context not in labels:
                labels[context] = output.score_label(output.MetricName(**name), main_split)
            metric = metrics.get(labels[context])
            if metric is not None:
                metric.values[key] = mean
                if stat["count"] != 1:
                    metric.counts[key] = stat["count"]
    return applied


def helm_mean(values: Mapping[InstanceKey, float]) -> float:
    """Return the mean as HELM computes it, to the last digit.

    HELM divides a running sum by the count: first for each trial, then over the trials' means.
    """
    return _running_mean(trial_means(values))


def trial_means(values: Mapping[InstanceKey, float]) -> list[float]:
    """Return the mean of each trial, in the order of the trials."""
    trials: dict[int, list[float]] = defaultdict(list)
    for (_, trial, _), value in values.items():
        trials[trial].append(value)
    return [_running_mean(trial) for _, trial in sorted(trials.items())]


def _running_mean(values: Sequence[float]) -> float:
    """Return the running sum divided by the count, as HELM computes a mean.

    The sum is rounded after each value. sum() and fsum() would round in another way than HELM.
    """
    total: float = 0
    for value in values:
        total += value
    return total / len(values)


def score_of(
    metric: MetricValues, missing: set[InstanceKey], *, failed_as_zero: bool
) -> Score | None:
    """Return the score of a metric; None if it cannot be computed without the missing instances.

    With missing instances, two conditions must be met: the metric is a mean of the instances'
    values, and an instance with a value is left.

    Args:
        metric: the metric.
        missing: the instances without a usable value.
        failed_as_zero: count missing instances as 0 instead of leaving them out.
    """
    if missing and not metric.values:
        return None  # HELM computed the metric over all instances, including the missing ones
    missing_in_metric = missing & metric.values.keys()
    # Without a mean of HELM, the score is the mean of the values.
    is_mean = bool(metric.values) and metric.helm_mean in (None, helm_mean(metric.values))
    if not missing_in_metric:
        value = metric.helm_mean
        if value is None:
            value = helm_mean(metric.values)
        if is_mean:
            return metric.make_score(value, _stats(metric, metric.values, value))
        return metric.make_score(value, _stats_of_a_ratio(metric, value))
    if not is_mean:
        return None
    counted = with_missing_counted(metric.values, missing_in_metric, failed_as_zero=failed_as_zero)
    if not counted:
        return None
    return mean_score(metric, counted)


def with_missing_counted(
    values: Mapping[InstanceKey, float], missing: set[InstanceKey], *, failed_as_zero: bool
) -> dict[InstanceKey, float]:
    """Return the values without the missing instances; if `failed_as_zero`, with 0 for each.

    Missing instances without an entry in `values` do not get an entry.
    """
    if failed_as_zero:
        return _with_missing_as(values, missing, replacement=0.0)
    return {key: value for key, value in values.items() if key not in missing}


def _with_missing_as(
    values: Mapping[InstanceKey, float], missing: Collection[InstanceKey], *, replacement: float
) -> dict[InstanceKey, float]:
    """Return the values, with the values of missing instances replaced."""
    counted = dict(values)
    for key in missing:
        if key in counted:
            counted[key] = replacement
    return counted


def mean_score(metric: MetricValues, values: Mapping[InstanceKey, float]) -> Score:
    """Return the score of a metric that is the mean of these values."""
    value = helm_mean(values)
    return metric.make_score(value, _stats(metric, values, value))


def sample_of(
    metric: MetricValues, values: Mapping[InstanceKey, float]
) -> tuple[list[float], list[str] | None]:
    """Return (the mean over the trials of each instance, the source of each instance).

    A perturbed form of an instance has its own mean. The second element is None if the task
    declares no sources.
    """
    values_of_trials: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for (instance, _, perturbation), value in values.items():
        values_of_trials[(instance, perturbation)].append(value)
    means = list(map(_running_mean, values_of_trials.values()))
    return means, sources_of(metric, [instance for instance, _ in values_of_trials])


def sources_of(metric: MetricValues, instances: Sequence[str]) -> list[str] | None:
    """Return the source of each instance; None if the task declares no sources.

    An instance without a known source is a source of its own.
    """
    if metric.clusters is None:
        return None
    return [metric.clusters.get(instance, instance) for instance in instances]


def _stats(metric: MetricValues, values: Mapping[InstanceKey, float], value: float) -> Stats:
    """Return the statistics of a score; `value` is the score, the mean of `values`."""
    sample, sources = sample_of(metric, values)
    lowest = None
    if metric.lowest is not None:
        # in the order of `sample`, which has one value for all trials of an instance
        lowest_by_instance = {}
        for key in values:
            instance, _, perturbation = key
            lowest_by_instance[instance, perturbation] = metric.lowest[key]
        lowest = list(lowest_by_instance.values())
    stats = describe(
        sample,
        mean=value,
        scale=metric.scale,
        clusters=sources,
        lowest=lowest,
        looks=metric.looks,
    )
    trials = trial_means(values)
    if len(trials) < 2:
        return stats
    return replace(stats, trials=len(trials), trial_stddev=statistics.stdev(trials))


def _stats_of_a_ratio(metric: MetricValues, value: float) -> Stats:
    """Return the statistics of a score that is not a mean of the instances' values.

    If HELM's value is a ratio of two sums over the instances, the statistics have a bootstrap
    interval. There is no interval if HELM computed the value over all instances at once, or if the
    run looks at its sample several times.
    """
    without_interval = Stats.without_interval(len(metric.values), value)
    counts = []
    sums = []
    for key, mean in metric.values.items():
        count = metric.counts.get(key, 1)
        counts.append(count)
        sums.append(mean * count)
    if metric.looks > 1 or not metric.counts or not sum(counts):  # no bootstrap of a ratio
        return without_interval
    is_ratio = math.isclose(sum(sums) / sum(counts), value, rel_tol=1e-9)
    if not is_ratio:
        return without_interval
    sources = sources_of(metric, [instance for instance, _, _ in metric.values])
    interval = bca_interval_of_ratio(sums, counts, sources)
    return replace(
        without_interval,
        ci_low=interval.low,
        ci_high=interval.high,
        ci_method=interval.method,
    )


def bounds_of(metric: MetricValues, missing: set[InstanceKey]) -> Bounds | None:
    """Return the lowest and the highest score that the missing instances allow.

    In the lowest score, every missing instance has the lowest possible value; in the highest score,
    the highest possible value. The two are equal if no instance is missing. An unknown scale is
    taken to be 0 to 1. Return None if there are no values, or if an instance that is not missing
    has a value outside the scale.
    """
    if not metric.values:
        return None
    low, high = metric.scale or PROPORTION
    for key, value in metric.values.items():
        if key not in missing and not low <= value <= high:
            return None
    if missing.isdisjoint(metric.values) and metric.helm_mean is not None:
        # HELM's mean may be something other than the mean of the values, such as a ratio.
        return metric.helm_mean, metric.helm_mean
    worst = _with_missing_as(metric.values, missing, replacement=low)
    best = _with_missing_as(metric.values, missing, replacement=high)
    return helm_mean(worst), helm_mean(best)
