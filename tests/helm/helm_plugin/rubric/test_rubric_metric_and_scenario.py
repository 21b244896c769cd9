"""Cases as HELM's instances, the run specs that ask them, and the score of a case."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from helm.common import general
from helm.common.object_spec import create_object

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm_plugin.rubric import rubric_scenario
from eval_factory.helm_plugin.rubric.rubric_metric import RubricMetric
from eval_factory.helm_plugin.rubric.rubric_scenario import healthbench, rubric_benchmark
from facts import naming

CASE: dict[str, Any] = {
    "id": "a",
    "cluster": "n",
    "reference": "So.",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}],
    "rubrics": [{"criterion": "c", "points": 1, "tags": ["axis:x"]}],
}
JUDGES = [{"name": "gpt", "model": "endpoint/j", "model_deployment": "endpoint/j"}]


def yaml_file(folder: Path, document: Any) -> str:
    file = folder / "given.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return str(file)


def own(folder: Path, *cases: dict[str, Any], **more: Any) -> str:
    data = folder / "cases.jsonl"
    data.write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    shape = {
        "name": "mine",
        "description": "d",
        "dataset_file": str(data),
        "metric": "rubric_score",
        "judges": JUDGES,
    }
    return yaml_file(folder, {**shape, **more})


def test_a_case_becomes_an_instance_with_its_turns(tmp_path: Path) -> None:
    spec = rubric_benchmark(own(tmp_path, CASE, {**CASE, "id": "b", "reference": None}))
    one, two = create_object(spec.scenario_spec).get_instances(str(tmp_path))
    assert (one.id, one.split, one.input.messages) == ("a", "test", CASE["messages"])
    assert one.input.text == "system: Be brief.\n\nuser: Q?"
    assert [reference.output.text for reference in one.references] == ["So."]
    assert two.references == []
    assert one.extra_data == {"rubrics": CASE["rubrics"], "tags": [], "cluster": "n"}


def test_the_run_spec_of_a_custom_benchmark(tmp_path: Path) -> None:
    spec = rubric_benchmark(own(tmp_path, CASE, max_tokens=77), criteria_per_request=3)
    assert (spec.name, spec.adapter_spec.method, spec.adapter_spec.max_tokens) == (
        "mine",
        "chat",
        77,
    )
    (annotator,) = spec.annotators
    (metric,) = spec.metric_specs
    assert annotator.args == {"judges": {"gpt": "endpoint/j"}, "criteria_per_request": 3}
    assert metric.args == {"metric_name": "rubric_score", "judges": {"gpt": "endpoint/j"}}
    assert (
        rubric_benchmark(own(tmp_path, CASE)).adapter_spec.max_tokens == rubric_scenario._MAX_TOKENS
    )


def test_a_file_that_changed_since_it_was_checked_stops_the_run(tmp_path: Path) -> None:
    spec = rubric_benchmark(own(tmp_path, {**CASE, "id": None}))
    with pytest.raises(PrerequisiteError, match=naming("cases.jsonl: line 1", "id: is missing")):
        create_object(spec.scenario_spec).get_instances(str(tmp_path))


def test_healthbench_is_downloaded_unless_a_file_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "prompt_id": "p",
        "prompt": CASE["messages"],
        "rubrics": CASE["rubrics"],
        "example_tags": ["theme:x"],
    }
    asked = []

    def download(source_url: str, target_path: str) -> None:
        asked.append(source_url)
        Path(target_path).write_text(json.dumps(row) + "\n", "utf-8")

    monkeypatch.setattr(general, "ensure_file_downloaded", download)
    judges = yaml_file(tmp_path, {"judges": JUDGES})
    spec = healthbench(judges, subset="hard")
    (case,) = create_object(spec.scenario_spec).get_instances(
        str(tmp_path / "scenarios" / "healthbench")
    )
    assert (case.id, case.extra_data["tags"]) == ("p", ["theme:x"])
    (url,) = asked
    file = tmp_path / "scenarios" / "healthbench" / url.rpartition("/")[2]
    again = healthbench(judges, subset="hard", data_path=str(file))
    assert len(create_object(again.scenario_spec).get_instances(str(tmp_path))) == 1
    assert len(asked) == 1
    assert spec.metric_specs[0].args["metric_name"] == "healthbench_score"
    assert spec.name == "healthbench:subset=hard"


RUBRICS = [
    {"criterion": "good", "points": 4, "tags": []},
    {"criterion": "bad", "points": -1, "tags": []},
]


def values(*said: dict[str, Any], error: str | None = None) -> dict[str, float | None]:
    state: Any = SimpleNamespace(
        instance=SimpleNamespace(extra_data={"rubrics": RUBRICS}),
        result=SimpleNamespace(success=error is None, error=error),
        annotations={"rubric": {"criteria": list(said)}},
    )
    nothing: Any = None
    stats = RubricMetric("m_score", {"a": "x", "b": "y"}).evaluate_generation(
        nothing, state, nothing, ""
    )
    return {stat.name.name: stat.mean for stat in stats}


def met(a: bool, b: bool | None = None) -> dict[str, Any]:
    return {"a": {"criteria_met": a}, **({} if b is None else {"b": {"criteria_met": b}})}


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ((met(True), met(False)), 1.0),
        ((met(True), met(True)), 0.75),
        ((met(False), met(True)), -0.25),
        ((met(True, False), met(False, False)), 0.5),
        ((met(True), {"a": {"error": "x"}}), None),
        ((), None),
    ],
)
def test_points_met_of_the_positive_points(
    said: tuple[dict[str, Any], ...], score: float | None
) -> None:
    """A case with an unjudged criterion has no score."""
    assert values(*said) == ({} if score is None else {"m_score": score})


def test_a_failed_request_keeps_its_place() -> None:
    assert values(error="HTTP 500") == {"m_score": 0.0}
