"""The values that HELM's metrics gave to instances -> scores: HELM's means to the last digit,
intervals, bounds.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.results import Score, Stats
from eval_factory.helm import output
from eval_factory.helm.metric_facts import facts_of, is_score
from eval_factory.scoring.intervals import PROPORTION, Bounds, bca_of_ratio, describe
from eval_factory.tasks.errata import CORRECTED

InstanceKey = tuple[str, int, str | None]  # (instance id, trial, perturbation)
_WORST = ".worst"
ORIGINAL = ".original"
"""End the label of a perturbation where HELM computed on the least value, and on the instances
before it.
"""


@dataclass
class MetricValues:
    """The values of one metric in one split and perturbation."""

    label: str
    name: str
    # None where HELM has no mean of all, and where these are not its own values
    helm_mean: float | None
    # the least and the greatest value that there can be, where that is known
    scale: Bounds | None = None
    values: dict[InstanceKey, float] = field(default_factory=dict)
    split: str | None = None
    perturbation: str | None = None
    # how much HELM counted of an instance, if not one
    counts: dict[InstanceKey, int] = field(default_factory=dict)
    parts: Mapping[InstanceKey, Sequence[InstanceKey]] = field(default_factory=dict)
    """Of a worst case: the instances, as they are and perturbed, of which it has the least
    value.
    """
    # id of an instance -> its source; None: the task declares none
    clusters: Mapping[str, str] | None = None
    looks: float = 1  # as `intervals.describe` has it
    # the least value of each, where they differ: of a rubric
    lowest: Mapping[InstanceKey, float] | None = None

    def score(self, value: float, stats: Stats) -> Score:
        known = facts_of(self.name, self.scale)
        return Score(
            value,
            stats,
            self.name,
            self.split,
            self.perturbation,
            higher_is_better=known.higher_is_better,
            scale=self.scale or known.scale,
            unit=known.unit,
        )


def is_judged(metric: MetricValues, jury_metric: str | None) -> bool:
    """Whether it is the jury's, or made of it."""
    return metric.name.removesuffix(CORRECTED) == jury_metric


def metric_values_of(run: output.HelmRun, main_split: str | None) -> list[MetricValues]:
    """Each metric with its values, in HELM's order."""
    found: dict[str, MetricValues] = {}
    for stat in run.stats:
        if stat.mean is None or not is_score(stat.name.name):
            continue
        label = output.score_label(stat.name, main_split)
        if label in found:
            found[label].helm_mean = None
        else:
            perturbation = output.perturbation_label(stat.name)
            split = stat.name.split
            name = stat.name.name
            found[label] = MetricValues(
                label, name, stat.mean, split=split, perturbation=perturbation
            )
    applied = _add_values(found, run, main_split)
    # HELM writes worst cases of a family that was not applied all the same; they repeat the plain
    # scores
    metrics = [
        one for one in found.values() if one.perturbation is None or _family_of(one) in applied
    ]
    for metric in metrics:
        _add_worst_cases(metric, metrics, applied)
    return metrics


def is_derived(metric: MetricValues) -> bool:
    """Whether it is of a worst case, or of the instances before they were perturbed."""
    return metric.perturbation is not None and metric.perturbation.endswith((_WORST, ORIGINAL))


def _family_of(metric: MetricValues) -> str:
    """Of perturbations; a single one is a family too."""
    return str(metric.perturbation).removesuffix(_WORST).removesuffix(ORIGINAL)


def _add_worst_cases(
    metric: MetricValues, metrics: Sequence[MetricValues], applied: Mapping[str, set[str]]
) -> None:
    """The values of a worst case, or of the instances before they were perturbed, which HELM keeps
    of no instance.

    As `compute_worst_case_metrics` in helm/benchmark/metrics/metric.py makes them: an instance's
    least value as it is and perturbed; of robustness and fairness also of instances that no
    perturbation changed.
    """
    if not is_derived(metric):
        return
    family = _family_of(metric)
    before = str(metric.perturbation).endswith(ORIGINAL)
    of_family = {None, *applied[family]}
    same = (metric.name, metric.split)
    sides = [
        one for one in metrics if (one.name, one.split) == same and one.perturbation in of_family
    ]
    # HELM takes the least of what it counted then: no file has that
    if any(one.counts for one in sides):
        sides = []
    values: dict[InstanceKey, float] = {}
    for side in sides:
        values |= side.values
    changed = (
        {key[:2] for key in values if key[2]}
        if family in of_family
        else {key[:2] for key in values}
    )
    parts: dict[InstanceKey, list[InstanceKey]] = {}
    for key in values:
        if key[:2] in changed and not (before and key[2]):
            parts.setdefault((*key[:2], metric.perturbation), []).append(key)
    metric.parts = parts
    metric.values = {key: min(values[one] for one in keys) for key, keys in parts.items()}


def _add_values(
    found: Mapping[str, MetricValues], run: output.HelmRun, main_split: str | None
) -> dict[str, set[str]]:
    """Returns the families of perturbations that were applied, each with its perturbations."""
    keys: dict[InstanceKey, InstanceKey] = {}
    labels: dict[tuple[str, str | None, output.Perturbation | None], str] = {}
    known = {metric.name for metric in found.values()}
    applied: dict[str, set[str]] = {}
    for entry in run.per_instance_stats():
        if entry.perturbation is not None:
            for family in entry.perturbation.families:
                applied.setdefault(family, set()).add(entry.perturbation.name)
        key = (
            entry.instance_id,
            entry.train_trial_index,
            entry.perturbation.name if entry.perturbation else None,
        )
        key = keys.setdefault(key, key)
        for stat in entry.stats:
            of = stat["name"]
            mean = stat.get("mean")
            if mean is None or of["name"] not in known:
                continue
            context = (of["name"], of.get("split"), of.get("perturbation"))
            if context not in labels:
                labels[context] = output.score_label(output.MetricName(**of), main_split)
            metric = found.get(labels[context])
            if metric is not None:
                metric.values[key] = mean
                if stat["count"] != 1:
                    metric.counts[key] = stat["count"]
    return applied


def helm_mean(values: Mapping[InstanceKey, float]) -> float:
    """The mean as HELM computes it, to the last digit: per trial a running sum divided by its
    count, then the same over trials.
    """
    return _running_mean(trial_means(values))


def trial_means(values: Mapping[InstanceKey, float]) -> list[float]:
    trials: dict[int, list[float]] = defaultdict(list)
    for (_, trial, _), value in values.items():
        trials[trial].append(value)
    return [_running_mean(trial) for _, trial in sorted(trials.items())]


def _running_mean(values: Sequence[float]) -> float:
    total: float = 0
    for value in values:  # not sum() or fsum(): the order of rounding is HELM's
        total += value
    return total / len(values)


def score_of(
    metric: MetricValues, missing: set[InstanceKey], *, failed_as_zero: bool
) -> Score | None:
    """None where the metric is no mean of instances' values and some instance is missing, or
    none is left.
    """
    if missing and not metric.values:
        return None  # computed over all instances at once, the missing ones among them
    touched = missing & metric.values.keys()
    is_mean = bool(metric.values) and metric.helm_mean in (None, helm_mean(metric.values))
    if not touched:
        value = metric.helm_mean if metric.helm_mean is not None else helm_mean(metric.values)
        stats = (
            _stats(metric, metric.values, value) if is_mean else _stats_of_a_ratio(metric, value)
        )
        return metric.score(value, stats)
    if not is_mean:
        return None
    counted = with_missing_counted(metric.values, touched, failed_as_zero=failed_as_zero)
    return mean_score(metric, counted) if counted else None


def with_missing_counted(
    values: Mapping[InstanceKey, float], missing: set[InstanceKey], *, failed_as_zero: bool
) -> dict[InstanceKey, float]:
    """Without the missing instances, or with 0 for each."""
    if failed_as_zero:
        return {key: 0.0 if key in missing else value for key, value in values.items()}
    return {key: value for key, value in values.items() if key not in missing}


def mean_score(metric: MetricValues, values: Mapping[InstanceKey, float]) -> Score:
    value = helm_mean(values)
    return metric.score(value, _stats(metric, values, value))


def sample_of(
    metric: MetricValues, values: Mapping[InstanceKey, float]
) -> tuple[list[float], list[str] | None]:
    """One value per instance, the mean over its trials; and of each the source that it shares
    with others.
    """
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
    least = metric.lowest
    lowest = (
        None if least is None else list({(key[0], key[2]): least[key] for key in values}.values())
    )
    stats = describe(sample, value, metric.scale, sources, lowest, metric.looks)
    trials = trial_means(values)
    return (
        stats
        if len(trials) < 2
        else replace(stats, trials=len(trials), trial_stddev=statistics.stdev(trials))
    )


def _stats_of_a_ratio(metric: MetricValues, value: float) -> Stats:
    """Of what is no mean of instances' values: a bootstrap interval where HELM's value is a ratio
    of their sums.

    What HELM computes over all instances at once, and keeps nothing of, has none; nor is there one
    at several looks.
    """
    plain = Stats(len(metric.values), value, None, None, None, None, None)
    counts = [metric.counts.get(key, 1) for key in metric.values]
    sums = [one * count for one, count in zip(metric.values.values(), counts, strict=True)]
    known = metric.looks <= 1 and metric.counts and sum(counts)
    if not known or not math.isclose(sum(sums) / sum(counts), value, rel_tol=1e-9):
        return plain
    found = bca_of_ratio(
        sums, counts, sources_of(metric, [instance for instance, _, _ in metric.values])
    )
    return replace(plain, ci_low=found.low, ci_high=found.high, ci_method=found.method)


def bounds_of(metric: MetricValues, missing: set[InstanceKey]) -> Bounds | None:
    """The value if every missing instance were wrong, and if every one were right.

    Only for values of a known scale, or that all lie from 0 to 1.
    """
    if not metric.values:
        return None
    low, high = metric.scale or PROPORTION
    known = [value for key, value in metric.values.items() if key not in missing]
    if any(not low <= value <= high for value in known):
        return None
    if missing.isdisjoint(metric.values) and metric.helm_mean is not None:
        return metric.helm_mean, metric.helm_mean
    worst = {key: low if key in missing else value for key, value in metric.values.items()}
    best = {key: high if key in missing else value for key, value in metric.values.items()}
    return helm_mean(worst), helm_mean(best)
