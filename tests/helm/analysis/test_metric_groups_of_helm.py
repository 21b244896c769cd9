"""The metric groups are those of HELM's classic leaderboard."""

from __future__ import annotations

from importlib import resources
from typing import Any

from helm.benchmark.augmentations.perturbation_description import PERTURBATION_WORST

from eval_factory.analysis.win_rates import _MAIN, _WORST, ACCURACY, EFFICIENCY, GROUPS
from eval_factory.core.plain_yaml import parse_own


def schema(name: str) -> dict[str, Any]:
    read: dict[str, Any] = parse_own((resources.files("helm.benchmark") / "static" / name).read_text("utf-8"))
    return read


def test_the_rows_are_helms_with_their_metrics_and_directions() -> None:
    classic = schema("schema_classic.yaml")
    groups = {group["name"]: group["metrics"] for group in classic["metric_groups"]}
    rows = next(group["metric_groups"] for group in classic["run_groups"] if group["name"] == "boolq")
    assert rows[:-1] == [ACCURACY, *GROUPS, EFFICIENCY]  # the last one is general information
    for name, metrics in GROUPS.items():
        helms = [(metric["name"], metric.get("perturbation_name")) for metric in groups[name]]
        assert [(metric.metric or "${main_name}", metric.perturbation) for metric in metrics] == helms
    directions = {metric["name"]: metric.get("lower_is_better") for metric in classic["metrics"]}
    known = [metric for metrics in GROUPS.values() for metric in metrics if metric.metric != _MAIN]
    assert {metric.metric: metric.lower_is_better for metric in known} == {
        one.metric: directions[one.metric] for one in known
    }


def test_a_perturbed_score_is_the_worst_one_as_in_helms_tables() -> None:
    assert f".{PERTURBATION_WORST}" == _WORST


def test_medhelms_efficiency_is_the_time_of_an_answer() -> None:
    groups = {group["name"]: group["metrics"] for group in schema("schema_medhelm.yaml")["metric_groups"]}
    assert [metric["name"] for metric in groups[EFFICIENCY]] == ["inference_runtime"]
