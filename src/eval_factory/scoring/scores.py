"""Values of instances -> scores: HELM's means to the last digit, intervals, bounds, groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.results import Score, Stats
from eval_factory.scoring.statistics import PROPORTION, describe

MOST_GROUPS = 60

InstanceKey = tuple[str, int, str | None]
"""(instance id, trial, perturbation)."""
Scale = tuple[float, float]


@dataclass
class Context:
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

    def score(self, value: float, stats: Stats) -> Score:
        """A score of this metric in this split and perturbation."""
        return Score(value, stats, self.name, self.split, self.perturbation)


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


def score_of(context: Context, missing: set[InstanceKey], *, zero: bool) -> Score | None:
    """None where the metric is no mean of instances' values and some instance is missing, or none is left."""
    if missing and not context.values:
        return None  # computed over all instances at once, the missing ones among them
    touched = missing & context.values.keys()
    is_mean = bool(context.values) and (context.merged or helm_mean(context.values) == context.helm_mean)
    if not touched:
        value = context.helm_mean if context.helm_mean is not None else helm_mean(context.values)
        if not is_mean:
            return context.score(value, Stats(len(context.values), value, None, None, None, None, None))
        return context.score(value, describe(_by_instance(context.values), value, context.scale))
    if not is_mean:
        return None
    kept = _counted(context.values, touched, zero=zero)
    return _mean_score(context, kept) if kept else None


def _counted(values: Mapping[InstanceKey, float], missing: set[InstanceKey], *, zero: bool) -> dict[InstanceKey, float]:
    """Without the missing instances, or with 0 for each."""
    if zero:
        return {key: 0.0 if key in missing else value for key, value in values.items()}
    return {key: value for key, value in values.items() if key not in missing}


def _mean_score(context: Context, values: Mapping[InstanceKey, float]) -> Score:
    value = helm_mean(values)
    return context.score(value, describe(_by_instance(values), value, context.scale))


def _by_instance(values: Mapping[InstanceKey, float]) -> list[float]:
    """One value per instance: the mean over its trials."""
    grouped: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for (instance, _, perturbation), value in values.items():
        grouped[(instance, perturbation)].append(value)
    return [_running_mean(group) for group in grouped.values()]


def bounds_of(context: Context, missing: set[InstanceKey]) -> tuple[float, float] | None:
    """The value if every missing instance were wrong, and if every one were right.

    Only for values of a known scale, or that all lie from 0 to 1.
    """
    if not context.values:
        return None
    low, high = context.scale or PROPORTION
    known = [value for key, value in context.values.items() if key not in missing]
    if any(not low <= value <= high for value in known):
        return None
    worst = {key: low if key in missing else value for key, value in context.values.items()}
    best = {key: high if key in missing else value for key, value in context.values.items()}
    if not missing & context.values.keys() and context.helm_mean is not None:
        return context.helm_mean, context.helm_mean
    return helm_mean(worst), helm_mean(best)


def scores_by_group(
    context: Context,
    members: Mapping[str, Mapping[str, Sequence[InstanceKey]]],
    missing: set[InstanceKey],
    *,
    zero: bool,
) -> dict[str, dict[str, dict[str, Score]]]:
    """The score of `context` for each value of each field that sorts the instances into a few groups.

    Args:
        members: field -> value -> instances.
        missing: instances without a value that counts.
        zero: whether they count as 0, as in the score of the whole.
    """
    counted = _counted(context.values, missing & context.values.keys(), zero=zero)
    groups: dict[str, dict[str, dict[str, Score]]] = {}
    for name, by_value in sorted(members.items()):
        values = {
            value: {key: counted[key] for key in keys if key in counted} for value, keys in sorted(by_value.items())
        }
        values = {value: kept for value, kept in values.items() if kept}
        if 2 <= len(values) <= min(MOST_GROUPS, len(context.values) // 2):
            groups[name] = {value: {context.label: _mean_score(context, kept)} for value, kept in values.items()}
    return groups
