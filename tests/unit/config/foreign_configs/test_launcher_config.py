"""A launcher's config, taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.launcher_config import LauncherConfig, read_launcher, unused_of_task

TASK = "nemo_evaluator_config"


def read(document: dict[str, Any]) -> tuple[LauncherConfig, list[str]]:
    findings: list[Finding] = []
    return read_launcher(document, findings), [finding.text for finding in findings]


def test_the_layers_of_a_task_are_the_weakest_first_with_their_places() -> None:
    document = {
        "target": {"a": 1},
        "config": {"b": 2},
        "evaluation": {
            TASK: {"config": {"c": 3}},
            "overrides": {"config.params.top_p": 1, "+config.params.extra.x": 2, "target": 5, "target.y": 6},
            "tasks": [{"name": "one"}, {"name": "two", TASK: {"target": {}}, "overrides": {"config.type": "z"}}],
        },
    }
    launcher, findings = read(document)
    first, second = launcher.tasks
    assert [(layer.prefix, layer.tree) for layer in first.layers] == [
        ("", {"config": {"b": 2}, "target": {"a": 1}}),
        ("evaluation.nemo_evaluator_config.", {"config": {"c": 3}}),
        ("evaluation.overrides.", {"config": {"params": {"top_p": 1, "extra": {"x": 2}}}, "target": {"y": 6}}),
    ]
    assert [layer.prefix for layer in second.layers[3:]] == [
        "evaluation.tasks[1].nemo_evaluator_config.",
        "evaluation.tasks[1].overrides.",
    ]
    assert second.layers[4].tree == {"config": {"type": "z"}}
    assert (first.name, first.path, second.path) == ("one", "evaluation.tasks[0]", "evaluation.tasks[1]")
    assert findings == []


@pytest.mark.parametrize("evaluation", [[{"name": "a"}, "b"], {"tasks": [{"name": "a"}, "b"]}])
def test_both_forms_of_the_list_of_tasks_are_read(evaluation: Any) -> None:
    launcher, _ = read({"evaluation": evaluation})
    assert [task.name for task in launcher.tasks] == ["a", "b"]


@pytest.mark.parametrize("evaluation", [None, "x", {}, {"tasks": "x"}, {"tasks": None}])
def test_an_evaluation_without_tasks_has_none(evaluation: Any) -> None:
    assert read({"evaluation": evaluation})[0].tasks == ()


def test_the_folder_and_the_deployed_model_are_read_with_their_variables() -> None:
    document = {
        "execution": {"output_dir": "${oc.env:OUT}/x"},
        "deployment": {"type": "none", "served_model_name": "org/${model}"},
        "model": "m",
    }
    launcher, findings = read(document)
    assert (launcher.output_dir, launcher.model_id) == ("${OUT}/x", "org/m")
    assert findings == ["model: has no counterpart; leave it out"]


def test_variables_are_filled_by_the_nearest_place() -> None:
    document = {
        "env_vars": {"A": "host:ONE", "B": "B", "C": "lit:a value", "D": "$TWO"},
        "evaluation": {
            "env_vars": {"A": "runtime:THREE", "E": "${oc.env:FOUR}"},
            "tasks": [{"name": "t", "env_vars": {"D": "FIVE"}}, {"name": "u"}],
        },
    }
    launcher, findings = read(document)
    first, second = launcher.tasks
    assert first.renamed == {"A": "THREE", "D": "FIVE", "E": "FOUR"}
    assert second.renamed == {"A": "THREE", "D": "TWO", "E": "FOUR"}
    told = [one.finding.text for one in first.variables]
    why = "variables are those that eval-factory is started with; set it before the run"
    assert told == [
        f'env_vars.A: {why} (export A="$ONE")',
        f"env_vars.B: {why} (export B=...)",
        f"env_vars.C: {why} (export C=...)",
        f'env_vars.D: {why} (export D="$TWO")',
        f'evaluation.env_vars.A: {why} (export A="$THREE")',
        f'evaluation.env_vars.E: {why} (export E="$FOUR")',
        f'evaluation.tasks[0].env_vars.D: {why} (export D="$FIVE")',
    ]
    assert findings == []


@pytest.mark.parametrize(
    ("document", "begins"),
    [
        (
            {"defaults": [{"execution": "slurm/default"}]},
            "defaults[0].execution: where a run is executed is written in another form",
        ),
        ({"defaults": [{"deployment": "vllm"}]}, "defaults[0].deployment: no model server is started"),
        ({"defaults": ["base", "_self_"]}, "defaults[0]: is another file, which is not read"),
        ({"defaults": [{"deployment/vllm@auxiliary_deployments.judge": None}]}, "defaults[0]: is another file"),
        (
            {"execution": {"walltime": "1"}},
            "execution.walltime: where a run is executed is written in another form here; on Slurm: --executor slurm",
        ),
        ({"execution": {"auto_export": {"a": 1}}}, "execution.auto_export: results are exported after a run"),
        ({"execution": {"mounts": {"a": 1}}}, "execution.mounts: no container is started"),
        ({"deployment": {"type": "vllm", "port": 1}}, "deployment (type, port): no model server is started"),
        (
            {"deployment": {"image": "x"}},
            "deployment (image): no model server is started by what is written: it asks an endpoint that is there; start it",
        ),
        ({"export": {"mlflow": {}}}, "export: results are exported after a run"),
        ({"auxiliary_deployments": {"j": {}}}, "auxiliary_deployments: no model server is started"),
        ({"metadata": {"a": 1}}, "metadata: has no counterpart; leave it out"),
        ({"evaluation": {"pre_cmd": "x"}}, "evaluation.pre_cmd: no command is run; run it yourself before"),
        ({"evaluation": {"post_cmd": "x"}}, "evaluation.post_cmd: no command is run; run it yourself after"),
    ],
)
def test_what_only_a_launcher_does_is_told(document: dict[str, Any], begins: str) -> None:
    (finding,) = read(document)[1]
    assert finding.startswith(begins)


@pytest.mark.parametrize(
    "document",
    [
        {"defaults": [{"execution": "local"}, {"deployment": "none"}, "_self_"]},
        {"execution": {"type": "local", "output_dir": "x", "extra_docker_args": "", "mounts": {}, "partition": None}},
        {"deployment": {"type": "none"}},
        {"export": {}, "auxiliary_deployments": {}, "name": ""},
        {"evaluation": {"pre_cmd": ""}},
    ],
)
def test_what_says_what_is_done_anyway_is_not_told(document: dict[str, Any]) -> None:
    assert read(document)[1] == []


def test_the_other_keys_of_a_task_are_told() -> None:
    entry = {
        "name": "t", TASK: {}, "overrides": {}, "env_vars": {}, "endpoint_type": "chat", "container": "x", "pre_cmd": "",
        "dataset_dir": "/d", "nmae": 1, "post_cmd": None,
    }  # fmt: skip
    launcher, _ = read({"evaluation": {"tasks": [entry]}})
    (task,) = launcher.tasks
    told = [finding.text for finding in unused_of_task(task, reads_data=False)]
    assert [line.partition(":")[0] for line in told] == [
        "evaluation.tasks[0].container",
        "evaluation.tasks[0].dataset_dir",
        "evaluation.tasks[0].nmae",
    ]
    assert [finding.path for finding in unused_of_task(task, reads_data=True)] == [
        "evaluation.tasks[0].container",
        "evaluation.tasks[0].nmae",
    ]
