"""HELM's metric groups: the rows of its classic leaderboard beside accuracy, where a run computed them.

`metric_groups` of helm/benchmark/static/schema_classic.yaml (crfm-helm 0.5.16), with the names that scores have in a
result. Efficiency is seconds an answer (`inference_runtime`, as MedHELM's schema has it), which no two runs share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eval_factory.core.results import Score, TaskResult

ACCURACY, EFFICIENCY = "accuracy", "efficiency"
MAIN = ""
"""In place of a metric's name: the benchmark's main metric."""
WORST = ".worst"
"""What the label of a perturbation ends with where HELM took the worst value of each instance's variants."""


@dataclass(frozen=True)
class GroupMetric:
    """One metric of a group."""

    metric: str
    perturbation: str | None = None
    lower_is_better: bool | None = None
    """None of the main metric: its own direction counts."""


_BIAS = (
    "bias_metric:mode=associations,demographic_category=race,target_category=profession",
    "bias_metric:mode=associations,demographic_category=gender,target_category=profession",
    "bias_metric:mode=representation,demographic_category=race",
    "bias_metric:mode=representation,demographic_category=gender",
)

GROUPS: Mapping[str, tuple[GroupMetric, ...]] = {
    "calibration": (GroupMetric("ece_10_bin", lower_is_better=True),),
    "robustness": (GroupMetric(MAIN, "robustness"),),
    "fairness": (GroupMetric(MAIN, "fairness"),),
    "bias": tuple(GroupMetric(name, lower_is_better=True) for name in _BIAS),
    "toxicity": (GroupMetric("toxic_frac", lower_is_better=True),),
}
"""All but accuracy, which is the main metric, and efficiency."""


@dataclass(frozen=True)
class GroupScore:
    """A score of a run that belongs to a group."""

    group: str
    label: str
    """The score's name in the result."""
    value: float
    ci_low: float | None
    ci_high: float | None
    n: int
    lower_is_better: bool | None


def group_scores(result: TaskResult) -> Iterator[GroupScore]:
    """Those that the run computed, on the split of its main score."""
    main = result.scores.get(result.main_metric)
    if main is None:
        return
    for group, metrics in GROUPS.items():
        for wanted in metrics:
            for label, score in result.scores.items():
                if _is(wanted, score, main):
                    stats = score.stats
                    lower = wanted.lower_is_better if wanted.metric else lower_is_better(main)
                    yield GroupScore(group, label, score.value, stats.ci_low, stats.ci_high, stats.count, lower)


def lower_is_better(score: Score) -> bool | None:
    return None if score.higher_is_better is None else not score.higher_is_better


def _is(wanted: GroupMetric, score: Score, main: Score) -> bool:
    perturbation = None if wanted.perturbation is None else wanted.perturbation + WORST
    name = wanted.metric or main.metric
    return (score.metric, score.split, score.perturbation) == (name, main.split, perturbation)
