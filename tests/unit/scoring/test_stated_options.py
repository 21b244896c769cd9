"""The metric of the options that answers state, beside HELM's own."""

from __future__ import annotations

from typing import Any

from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.stated_options import lenient_metrics


def metric(label: str, name: str = "exact_match", **more: Any) -> MetricValues:
    values: dict[InstanceKey, float] = {("a", 0, None): 1.0, ("b", 0, None): 0.0}
    return MetricValues(label, name, 0.5, values=values, **more)


def test_the_metric_stands_beside_each_split_of_what_is_not_perturbed() -> None:
    metrics = [
        metric("exact_match", split="test"),
        metric("exact_match@valid", split="valid"),
        metric("exact_match@test+typos", split="test", perturbation="typos"),
        metric("quasi_exact_match", "quasi_exact_match"),
        MetricValues("exact_match@train", "exact_match", 0.5),
    ]
    found = lenient_metrics(metrics, {("b", 0, None): 1.0})
    name = "exact_match.lenient"
    values: dict[InstanceKey, float] = {("a", 0, None): 0.0, ("b", 0, None): 1.0}
    assert found == [
        MetricValues(label, name, None, scale=found[0].scale, values=values, split=split)
        for label, split in ((name, "test"), (f"{name}@valid", "valid"))
    ]
