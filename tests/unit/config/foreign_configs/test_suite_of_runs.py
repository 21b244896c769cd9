"""Run configs as one suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.foreign_configs.stand_ins import check_suite
from eval_factory.config.foreign_configs.suite_of_runs import Run, suite_of

FILE = Path("x.yml")


def run(name: str, params: dict[str, Any] | None = None, model: str = "org/Model A", **endpoint: Any) -> Run:
    config: dict[str, Any] = {"type": name, "output_dir": "x"}
    if params is not None:
        config["params"] = params
    return Run(name, {"config": config, "target": {"api_endpoint": {"model_id": model, **endpoint}}})


def test_one_target_is_written_once_and_what_all_share_above() -> None:
    runs = [
        run("medec", {"parallelism": 2, "top_p": 1, "extra": {"num_output_tokens": 5, "subject": "a"}}),
        run("pubmed_qa", {"parallelism": 2, "top_p": 1.0, "extra": {"num_output_tokens": 5, "subject": "b"}}),
    ]
    assert suite_of(runs, "out") == {
        "suite": {
            "output_dir": "out",
            "params": {"parallelism": 2, "extra": {"num_output_tokens": 5}},
            "evaluations": [
                {"type": "medec", "params": {"top_p": 1, "extra": {"subject": "a"}}},
                {"type": "pubmed_qa", "params": {"top_p": 1.0, "extra": {"subject": "b"}}},
            ],
            "targets": [{"name": "Model-A", "api_endpoint": {"model_id": "org/Model A"}}],
        }
    }


def test_evaluations_that_say_nothing_are_names() -> None:
    suite = suite_of([run("medec", {"top_p": 1}), run("pubmed_qa", {"top_p": 1})], "out")["suite"]
    assert suite["params"] == {"top_p": 1}
    assert suite["evaluations"] == ["medec", "pubmed_qa"]
    assert "params" not in suite_of([run("medec"), run("pubmed_qa", {"top_p": 1})], "out")["suite"]


def test_an_evaluation_that_comes_twice_has_names_that_differ() -> None:
    suite = suite_of([run("medec"), run("medec"), run("helm:mmlu:subject=x"), run("medec")], "out")["suite"]
    assert suite["evaluations"] == [
        "medec",
        {"type": "medec", "name": "medec-2"},
        {"type": "helm:mmlu:subject=x", "name": "helm-mmlu-subject-x"},
        {"type": "medec", "name": "medec-3"},
    ]


def test_a_run_is_run_on_its_own_target_alone() -> None:
    suite = suite_of([run("medec"), run("pubmed_qa", type="chat"), run("head_qa")], "out")["suite"]
    assert [target["name"] for target in suite["targets"]] == ["Model-A", "Model-A-2"]
    assert suite["targets"][1]["api_endpoint"]["type"] == "chat"
    assert suite["exclude"] == [
        {"evaluation": "medec", "target": "Model-A-2"},
        {"evaluation": "pubmed_qa", "target": "Model-A"},
        {"evaluation": "head_qa", "target": "Model-A-2"},
    ]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("${MODEL_ID}", "MODEL_ID"),
        ("org/a b:c", "a-b-c"),
        ("a/..", "model"),
        ("a/", "model"),
        ("org/suite_results", "model-suite_results"),
        ("org/Suite_x", "model-Suite_x"),
        ("org/.suite", "suite"),
        ("Abcdefgh1Abcdefgh2Abcdefgh3", "model"),
        ("x" * 59 + "-y", "x" * 59),
    ],
)
def test_a_target_is_called_as_its_model_where_a_folder_may_be(model: str, name: str) -> None:
    suite = suite_of([run("medec", model=model), run("head_qa", model=model)], "out")["suite"]
    assert [target["name"] for target in suite["targets"]] == [name]
    check_suite(
        {"suite": {**suite, "targets": [{"name": name, "api_endpoint": {"url": "http://h", "model_id": "m"}}]}}, FILE
    )
