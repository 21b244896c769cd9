"""A benchmark of kind rubric, checked with its file of cases; HealthBench's published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation, plan
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import sha256_of
from eval_factory.data.run_data import task_sources
from eval_factory.data.sources import load_sources
from eval_factory.helm.command import benchmark_files, deployment_of
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.rubric_case import RUBRIC_RUN_SPEC
from facts import each_says, naming, says

CASE: dict[str, Any] = {
    "id": "a",
    "messages": [{"role": "user", "content": "?"}],
    "rubrics": [{"criterion": "c", "points": 1}],
}
SHAPE = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}


def written(folder: Path, *cases: Any, **changes: Any) -> Path:
    (folder / "cases.jsonl").write_text(
        "".join(json.dumps(case) + "\n" for case in cases or (CASE,)), "utf-8"
    )
    path = folder / "benchmark.yaml"
    shape = {name: value for name, value in {**SHAPE, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(shape), "utf-8")
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as found:
        load_benchmark(path)
    return [problem.replace(str(path.parent), "") for problem in found.value.problems]


def test_a_sound_one(tmp_path: Path) -> None:
    path = written(tmp_path, {**CASE, "cluster": "n"}, max_tokens=50)
    found = load_benchmark(path)
    cases = tmp_path / "cases.jsonl"
    assert (found.name, found.instances, found.max_tokens, found.main_metric) == (
        "mine",
        1,
        50,
        "rubric_score",
    )
    assert (found.is_rubric, found.has_jury, found.has_clusters) == (True, True, True)
    assert found.sha256 == {"benchmark.yaml": sha256_of(path), "cases.jsonl": sha256_of(cases)}
    assert found.dataset_file == cases


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"kind": "table"},
            "kind: must be rubric; a benchmark with a prompt and a table does not have this key",
        ),
        ({"name": None}, "name: is missing"),
        (
            {"name": "a b"},
            "name: must be letters, digits, - _ and . (it names folders), at most 80",
        ),
        ({"description": ""}, "description: must not be empty"),
        ({"max_tokens": 0}, "max_tokens: must be greater than or equal to 1"),
        ({"metrics": []}, "unknown key metrics; a benchmark of kind rubric has"),
        ({"dataset_fil": "x"}, "unknown key dataset_fil, did you mean 'dataset_file'?"),
    ],
)
def test_mistakes_in_the_yaml(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    (found,) = problems(written(tmp_path, **changes))
    assert found.startswith(f"/benchmark.yaml: {said}")


def test_mistakes_in_the_cases_are_said_at_once(tmp_path: Path) -> None:
    assert problems(written(tmp_path, CASE, description=None)) == [
        "/benchmark.yaml: description: is missing"
    ]
    path = written(tmp_path, {**CASE, "id": None}, CASE, CASE)
    each_says(
        problems(path),
        ["/cases.jsonl: line 1: id:", "is missing"],
        ["/cases.jsonl: line 3: id:", "in line 2"],
    )
    (tmp_path / "cases.jsonl").unlink()
    says(problems(path)[0], "no such file")


def flags(path: Path, **more: Any) -> dict[str, Any]:
    return {"config.type": "custom", "config.params.extra.benchmark": str(path), **more}


def test_the_task_that_it_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = evaluation(flags(path)).task
    assert (found.name, found.helm.run_spec, found.helm.rubric) == (
        "custom.mine",
        RUBRIC_RUN_SPEC,
        True,
    )
    assert (found.helm.judges, found.helm.cluster, found.endpoint_types) == (
        ("gpt", "llama", "claude"),
        None,
        ("chat",),
    )
    with pytest.raises(ConfigError, match=naming("custom.mine", "chat", "not on completions")):
        evaluation(flags(path, **{"target.api_endpoint.type": "completions"}))


def test_the_file_that_helm_run_is_given(tmp_path: Path) -> None:
    made = plan(flags(written(tmp_path, max_tokens=9)))
    assert made.evaluation.benchmark is not None
    document = yaml.safe_load(
        benchmark_files(made.evaluation.benchmark, made.judges, tmp_path)["benchmark.yaml"]
    )
    gpt = deployment_of(made.judges[0])
    assert document["judges"][0] == {"name": "gpt", "model": gpt, "model_deployment": gpt}
    assert document["dataset_file"] == str(tmp_path / "cases.jsonl")
    assert (document["metric"], document["max_tokens"], len(document["judges"])) == (
        "rubric_score",
        9,
        3,
    )


def test_criteria_in_one_request_are_for_rubrics_and_make_another_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    key = "config.params.extra.criteria_per_request"
    assert plan(flags(path)).identity != plan(flags(path, **{key: 3})).identity
    with pytest.raises(ConfigError, match=naming("pubmed_qa", "a rubric")):
        evaluation({key: 3})


def test_a_subset_of_healthbench_is_one_file(tmp_path: Path) -> None:
    sources = load_sources()
    for task in [
        task for task in load_framework().evaluations if task.helm.run_spec == "healthbench"
    ]:
        (file,) = sources.tasks[task.name].files
        assert str(task.about.revision) in file.path
        assert sources.tasks[task.name].scenario == task.helm.scenario
    healthbench = {"config.type": "healthbench"}
    own = {"config.params.extra.data_path": str(tmp_path / "x.jsonl")}
    assert task_sources(plan({**healthbench, **own}), sources).files == (), (
        "the user's own file takes its place"
    )
    assert len(task_sources(plan(healthbench), sources).files) == 1
    assert evaluation(healthbench).task.helm.judges == ("gpt",)
