"""Settings that do not go by batch are refused by name, before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.plan.prices import prices_of
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from facts import naming

URL = "https://api.openai.com/v1"


def document(endpoint: dict[str, Any], **more: Any) -> dict[str, Any]:
    target = {"url": URL, "model_id": "gpt-5", "batch": True, **endpoint}
    return {
        "config": {"type": "sample_medical_qa", "output_dir": "out", "params": more},
        "target": {"api_endpoint": target},
    }


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"url": [URL, "https://other.example/v1"]}, "target.api_endpoint.batch"),
    ({"url": "demo://baseline"}, "target.api_endpoint.batch"),
    ({"adapter_config": {"use_nvcf": True}}, "use_nvcf"),
    ({"batch": "yes"}, "target.api_endpoint.batch"),
]


@pytest.mark.parametrize(("endpoint", "named"), REFUSED)
def test_what_does_not_go_by_batch_is_refused(endpoint: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=naming(named)):
        build_evaluation(RunRequest(document=document(endpoint)), load_framework(), {})


def test_a_job_does_not_wait_for_batches() -> None:
    in_job = {**document({}), "executor": "slurm"}
    with pytest.raises(ConfigError, match=naming("executor", "batch")):
        build_evaluation(RunRequest(document=in_job), load_framework(), {})


def suite(executor: str) -> dict[str, Any]:
    target = {"name": "a", "api_endpoint": {"url": URL, "model_id": "gpt-5", "batch": True}}
    names = [f"e{number}" for number in range(20)]
    evaluations = [{"name": name, "type": "sample_medical_qa"} for name in names]
    section = {
        "output_dir": "out",
        "executor": executor,
        "targets": [target],
        "evaluations": evaluations,
    }
    return {"suite": section}


def test_runs_of_a_suite_wait_side_by_side() -> None:
    assert build_suite(None, document=suite("local"), env={}).max_processes == 20
    with pytest.raises(ConfigError, match=naming("executor", "batch")):
        build_suite(None, document=suite("slurm"), env={})


def test_a_batch_has_its_own_price_and_the_same_identity() -> None:
    plans = {}
    for batch in (False, True):
        request = RunRequest(document=document({"batch": batch}))
        plans[batch] = make_plan(build_evaluation(request, load_framework(), {}))
    usual = prices_of(plans[False]).known["model"]
    half = prices_of(plans[True]).known["model"]
    assert half.input_per_million == usual.input_per_million / 2
    assert half.output_per_million == usual.output_per_million / 2
    assert half.source != usual.source
    assert prices_of(plans[True], by_batch=False).known["model"] == usual
    assert plans[True].identity == plans[False].identity


def test_a_table_may_say_the_discount() -> None:
    row = {
        "model_id": "gpt-5",
        "input_per_million": 4,
        "output_per_million": 8,
        "cached_input_per_million": 2,
        "batch_discount": 0.25,
    }
    request = RunRequest(document=document({}, extra={"prices": [row]}))
    price = prices_of(make_plan(build_evaluation(request, load_framework(), {}))).known["model"]
    rates = (price.input_per_million, price.output_per_million, price.cached_input_per_million)
    assert rates == (3, 6, 1.5)
