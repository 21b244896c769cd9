"""The values that HELM's metrics gave to instances, by metric, split and perturbation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eval_factory.core.results import Score, Stats
from eval_factory.helm import output
from eval_factory.helm.bookkeeping import is_score
from eval_factory.helm.metric_facts import facts_of

InstanceKey = tuple[str, int, str | None]
"""(instance id, trial, perturbation)."""
Scale = tuple[float, float]


@dataclass
class MetricValues:
    """The values of one metric in one split and perturbation."""

    label: str
    name: str
    helm_mean: float | None
    merged: bool
    """Whether HELM has no mean of the whole: it kept sub-splits apart, or these are not its own values."""
    scale: Scale | None = None
    """The least and the greatest value that there can be, where that is known."""
    values: dict[InstanceKey, float] = field(default_factory=dict)
    split: str | None = None
    perturbation: str | None = None
    counts: dict[InstanceKey, int] = field(default_factory=dict)
    """How much HELM counted of an instance, where that is not one: the metric has a denominator of its own then."""
    clusters: Mapping[str, str] | None = None
    """Id of an instance -> the source that it shares with others; None where the task declares no such."""

    def score(self, value: float, stats: Stats) -> Score:
        """A score of this metric in this split and perturbation."""
        known = facts_of(self.name, self.scale)
        return Score(
            value, stats, self.name, self.split, self.perturbation,
            higher_is_better=known.higher_is_better, scale=self.scale or known.scale, unit=known.unit,
        )  # fmt: skip


def metric_values_of(run: output.HelmRun, main_split: str | None) -> list[MetricValues]:
    """Each metric with its values, HELM's order kept."""
    found = _metrics_of(run, main_split)
    is_perturbed = _add_values(found, run, main_split)
    if is_perturbed:
        return list(found.values())
    # HELM writes 'worst case' statistics all the same; they repeat the plain ones.
    perturbed = {output.score_label(stat.name, main_split) for stat in run.stats if stat.name.perturbation is not None}
    return [metric for label, metric in found.items() if label not in perturbed]


def _metrics_of(run: output.HelmRun, main_split: str | None) -> dict[str, MetricValues]:
    """By label, without their values."""
    found: dict[str, MetricValues] = {}
    for stat in run.stats:
        if stat.mean is None or not is_score(stat.name.name):
            continue
        label = output.score_label(stat.name, main_split)
        if label in found:
            found[label].merged, found[label].helm_mean = True, None
        else:
            perturbation = output.perturbation_label(stat.name)
            found[label] = MetricValues(
                label, stat.name.name, stat.mean, merged=False, split=stat.name.split, perturbation=perturbation
            )
    return found


def _add_values(found: Mapping[str, MetricValues], run: output.HelmRun, main_split: str | None) -> bool:
    """Returns whether an instance was perturbed."""
    keys: dict[InstanceKey, InstanceKey] = {}
    labels: dict[tuple[str, str | None, output.Perturbation | None], str] = {}
    known = {metric.name for metric in found.values()}
    is_perturbed = False
    for entry in run.per_instance_stats():
        is_perturbed = is_perturbed or entry.perturbation is not None
        key = (entry.instance_id, entry.train_trial_index, entry.perturbation.name if entry.perturbation else None)
        key = keys.setdefault(key, key)
        for stat in entry.stats:
            of, mean = stat["name"], stat.get("mean")
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
    return is_perturbed
