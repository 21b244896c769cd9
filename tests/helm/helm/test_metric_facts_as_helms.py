"""The directions of metrics that we know against those that HELM's own schemas state."""

from __future__ import annotations

from importlib import resources

from eval_factory.core.plain_yaml import parse_own
from eval_factory.helm.metric_facts import _FACTS

OF_NO_DIRECTION = {"ehr_sql_total_predicted_answerable", "ehr_sql_total_ground_truth_answerable"}
"""Counts of questions; schema_medhelm.yaml holds more of them to be better."""


def test_the_directions_are_helms() -> None:
    folder = resources.files("helm.benchmark") / "static"
    files = [file for file in folder.iterdir() if file.name.startswith("schema_") and file.name.endswith(".yaml")]
    stated: dict[str, set[bool]] = {}
    for file in files:
        for metric in parse_own(file.read_text("utf-8")).get("metrics", []):
            if metric.get("lower_is_better") is not None:
                stated.setdefault(metric["name"], set()).add(not metric["lower_is_better"])
    assert len(stated) > 100
    compared = _FACTS.keys() & stated.keys() - OF_NO_DIRECTION
    assert {"exact_match", "rouge_l", "wer_score", "mimic_rrs_accuracy", "ehr_sql_execution_accuracy"} <= compared
    assert {name: {_FACTS[name].higher_is_better} for name in compared} == {name: stated[name] for name in compared}
