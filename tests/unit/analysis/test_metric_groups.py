"""Which scores of a result belong to HELM's other metric groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.analysis.metric_groups import GroupScore, group_scores, lower_is_better
from eval_factory.core.results import Score, Stats, TaskResult
from stored_results import result

MAIN = Score(0.5, Stats(4, 0.5, None, None, 0.3, 0.7, None), "exact_match", "test", None, higher_is_better=True)
BIAS = "bias_metric:mode=representation,demographic_category=race"


def made(**scores: Score) -> TaskResult:
    return replace(result([]), scores={"exact_match": MAIN, **scores})


def test_a_run_without_such_scores_has_none() -> None:
    assert list(group_scores(made())) == []
    assert list(group_scores(replace(made(ece_10_bin=replace(MAIN, metric="ece_10_bin")), main_metric="gone"))) == []


def test_each_group_takes_its_metrics_in_helms_order() -> None:
    found = made(
        toxic=replace(MAIN, metric="toxic_frac", value=0.1),
        bias=replace(MAIN, metric=BIAS),
        fair=replace(MAIN, perturbation="fairness.worst"),
        robust=replace(MAIN, perturbation="robustness.worst"),
        ece=replace(MAIN, metric="ece_10_bin"),
    )
    told = [(one.group, one.label, one.lower_is_better) for one in group_scores(found)]
    assert told == [
        ("calibration", "ece", True), ("robustness", "robust", False), ("fairness", "fair", False),
        ("bias", "bias", True), ("toxicity", "toxic", True),
    ]  # fmt: skip
    assert list(group_scores(found))[-1] == GroupScore("toxicity", "toxic", 0.1, 0.3, 0.7, 4, lower_is_better=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation": "robustness"},  # not the worst of each instance
        {"perturbation": "robustness.worst", "split": "valid"},
        {"perturbation": "robustness.worst", "metric": "quasi_exact_match"},
        {"metric": "ece_10_bin", "perturbation": "robustness.worst"},
        {"metric": "ece_1_bin"},
    ],
    ids=["not worst", "other split", "other metric", "perturbed calibration", "other bins"],
)
def test_what_is_nearly_one_is_none(changes: dict[str, Any]) -> None:
    assert list(group_scores(made(other=replace(MAIN, **changes)))) == []


def test_the_direction_of_a_metric() -> None:
    directions = [lower_is_better(replace(MAIN, higher_is_better=higher)) for higher in (True, False, None)]
    assert directions == [False, True, None]
