"""The values that HELM's metrics gave to instances, by metric, split and perturbation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.results import Score, Stats
from eval_factory.helm import output
from eval_factory.helm.bookkeeping import is_score
from eval_factory.helm.metric_facts import facts_of

InstanceKey = tuple[str, int, str | None]
"""(instance id, trial, perturbation)."""
Scale = tuple[float, float]
WORST, ORIGINAL = ".worst", ".original"
"""End the label of a perturbation where HELM computed on the least value, and on the instances before it."""


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
    parts: Mapping[InstanceKey, Sequence[InstanceKey]] = field(default_factory=dict)
    """Of a worst case: the instances, as they are and perturbed, of which it has the least value."""
    clusters: Mapping[str, str] | None = None
    """Id of an instance -> the source that it shares with others; None where the task declares no such."""

    lowest: Mapping[InstanceKey, float] | None = None
    """The least value that an instance can have, where that is another for each: of a rubric's cases."""

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
    applied = _add_values(found, run, main_split)
    # HELM writes worst cases of a family that was not applied all the same; they repeat the plain scores
    metrics = [one for one in found.values() if one.perturbation is None or _family_of(one) in applied]
    for metric in metrics:
        _add_worst_cases(metric, metrics, applied)
    return metrics


def _family_of(metric: MetricValues) -> str:
    """Of perturbations; a single one is a family too."""
    return str(metric.perturbation).removesuffix(WORST).removesuffix(ORIGINAL)


def _add_worst_cases(metric: MetricValues, metrics: Sequence[MetricValues], applied: Mapping[str, set[str]]) -> None:
    """The values of a worst case, or of the instances before they were perturbed, which HELM keeps of no instance.

    As `compute_worst_case_metrics` in helm/benchmark/metrics/metric.py makes them: an instance's least value as it is
    and perturbed; of robustness and fairness also of instances that no perturbation changed.
    """
    if metric.perturbation is None or not metric.perturbation.endswith((WORST, ORIGINAL)):
        return
    family, before = _family_of(metric), metric.perturbation.endswith(ORIGINAL)
    of_family = {None, *applied[family]}
    same = (one for one in metrics if (one.name, one.split) == (metric.name, metric.split))
    sides = [one for one in same if one.perturbation in of_family]
    if any(one.counts for one in sides):
        return  # HELM takes the least of what it counted, and no file has that
    values = {key: value for one in sides for key, value in one.values.items()}
    changed = {key[:2] for key in values if key[2]} if family in of_family else {key[:2] for key in values}
    parts: dict[InstanceKey, list[InstanceKey]] = {}
    for key in values:
        if key[:2] in changed and not (before and key[2]):
            parts.setdefault((*key[:2], metric.perturbation), []).append(key)
    metric.parts = parts
    metric.values = {key: min(values[one] for one in keys) for key, keys in parts.items()}


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


def _add_values(found: Mapping[str, MetricValues], run: output.HelmRun, main_split: str | None) -> dict[str, set[str]]:
    """Returns the families of perturbations that were applied, each with its perturbations."""
    keys: dict[InstanceKey, InstanceKey] = {}
    labels: dict[tuple[str, str | None, output.Perturbation | None], str] = {}
    known = {metric.name for metric in found.values()}
    applied: dict[str, set[str]] = {}
    for entry in run.per_instance_stats():
        if entry.perturbation is not None:
            for family in entry.perturbation.families:
                applied.setdefault(family, set()).add(entry.perturbation.name)
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
    return applied
