from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.evaluation import Evaluation, Request, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from unit.builders import MINIMAL

FRAMEWORK = load_framework()
USUAL = FRAMEWORK.defaults.suite["slurm"]


def of(document: dict[str, Any], flags: dict[str, Any] | None = None, *overrides: str) -> Evaluation:
    request = Request(document=document, flags={**MINIMAL, **(flags or {})}, overrides=overrides)
    return build_evaluation(request, FRAMEWORK, {"LAB": "x1"})


def test_the_strongest_layer_counts_key_by_key() -> None:
    document = {"executor": "local", "slurm": {"account": "${LAB}", "cpus": 2, "mem": "1G", "qos": None}}
    found = of(document, {"executor": "slurm"}, "slurm.cpus=4,slurm.qos=long").executor
    assert found.is_slurm
    assert found.slurm == {**USUAL, "account": "x1", "cpus": 4, "mem": "1G", "qos": "long"}
    assert not of({"executor": "slurm"}, {}, "executor=local").executor.is_slurm
    assert of({"executor": "slurm"}, {}, "executor=null").executor.is_slurm


def test_it_is_no_part_of_what_is_evaluated() -> None:
    plain, there = of({}), of({"executor": "slurm", "slurm": {"cpus": 4}})
    assert there.as_dict() == plain.as_dict()
    assert there.as_given() == plain.as_given()
    assert there.sources == plain.sources
    assert make_plan(there).identity == make_plan(plain).identity


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"executor": "slrm"}, "run config: executor: must be 'local' or 'slurm', got 'slrm'"),
        ({"slurm": {"acount": "x"}}, "run config: unknown key slurm.acount, did you mean 'account'?"),
        ({"slurm": {"nodes": 2}}, "known here: account, container, cpus"),
        ({"slurm": {"prologue": ["export K=sk-proj-abcdefghijklmnopqrstuvwx0123"]}}, "slurm.prologue[0]: holds what"),
        ({"slurm": ["x"]}, "slurm: must be"),
        ({"exectuor": "slurm"}, "did you mean 'executor'?"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(document)
    assert problem in str(caught.value)
    assert len(caught.value.problems) == 1
    assert "abcdefgh" not in str(caught.value)


def test_a_mistake_of_an_override_says_so() -> None:
    with pytest.raises(ConfigError, match=r"--overrides: slurm\.cpus: must be"):
        of({}, {}, "slurm.cpus=0")


@pytest.mark.parametrize("place", ["serve", "target.serve", "target.api_endpoint.serve"])
def test_a_server_is_for_a_suite_to_start(place: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown key {place}: run_eval starts no server; .*, and start run_suite"):
        of({}, None, f"{place}.command=vllm serve m --port 1")
