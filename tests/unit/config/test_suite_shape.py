from __future__ import annotations

from typing import Any

import pytest
import yaml

from eval_factory.config.model import LIST_FORMS, NO_SHARDS
from eval_factory.config.suite_layers import problems_of_shape, problems_of_values
from eval_factory.tasks.framework import load_framework
from suites import ENDPOINT, section


def of_shape(**changes: Any) -> list[str]:
    return list(problems_of_shape(section(**changes)))


def of_values(**changes: Any) -> list[str]:
    return list(problems_of_values(section(**changes), load_framework()))


def of_endpoint(**changes: Any) -> list[str]:
    return of_values(targets=[{"name": "a", "api_endpoint": {**ENDPOINT, **changes}}])


def test_unknown_keys_have_a_hint_at_every_depth() -> None:
    wrong = {
        "evaluations": [{"type": "medec", "parms": {}}], "exclude": [{"evaluation": "x", "targt": "y"}], "jugdes": [],
    }  # fmt: skip
    assert of_shape(**wrong, variants=[{"name": "a", "zzz": 1}]) == [
        "unknown key suite.evaluations[0].parms, did you mean 'params'?",
        "unknown key suite.variants[0].zzz; known here: name, params",
        "unknown key suite.exclude[0].targt, did you mean 'target'?",
        "unknown key suite.jugdes, did you mean 'judges'?",
    ]
    assert of_values(judges=[{"name": "gpt", "model": "x"}]) == [
        "suite.judges[0].model_id: is missing",
        "unknown key suite.judges[0].model, did you mean 'model_id'?",
    ]
    assert of_endpoint(adapter_config={"use_nvfc": True}) == [
        "unknown key suite.targets[0].api_endpoint.adapter_config.use_nvfc, did you mean 'use_nvcf'?"
    ]


def test_wrong_values_say_what_is_expected() -> None:
    assert of_shape(targets=[{"api_endpoint": {}}]) == ["suite.targets[0].name: is missing"]
    assert of_shape(max_processes="two", params=[1]) == [
        "suite.params: must be a valid dictionary, got a list", "suite.max_processes: must be a whole number, got 'two'",
    ]  # fmt: skip
    assert of_shape(include=[{}]) == ["suite.include[0]: needs `evaluation`, `target` or `variant`"]


@pytest.mark.parametrize("name", LIST_FORMS)
def test_of_a_list_of_mappings_it_is_said_what_one_looks_like(name: str) -> None:
    """And what is shown is of the right shape itself, once its words in capitals are filled in."""
    (problem,) = of_shape(**{name: {"model_id": "m"}})
    assert problem == f"suite.{name}: must be a list such as {LIST_FORMS[name]}, got a mapping"
    filled = LIST_FORMS[name].replace("DOLLARS", "1.5").replace("URL", '"http://x/v1"').replace("{...}", "{}")
    example = {name: yaml.safe_load(filled.replace("NAME", "name"))}
    assert of_shape(**example) == of_values(**example) == []


def test_parameters_are_checked_wherever_they_stand() -> None:
    wrong = {"paralelism": 1}
    found = of_values(
        params=wrong,
        evaluations=["medec", {"type": "medec", "params": wrong}],
        variants=[{"name": "v", "params": {"extra": {"on_failure": "stop"}}}],
        targets=[{"name": "a", "params": {"temperature": -1}}],
    )
    assert found == [
        "unknown key suite.params.paralelism, did you mean 'parallelism'?",
        "unknown key suite.evaluations[1].params.paralelism, did you mean 'parallelism'?",
        "suite.targets[0].params.temperature: must be greater than or equal to 0, got -1",
        "suite.variants[0].params.extra.on_failure: must be 'exclude' or 'zero', got 'stop'",
    ]


def test_a_null_is_a_default_and_no_mistake() -> None:
    """And what another file may say is not missing."""
    assert of_shape() == of_values() == []
    assert of_values(params={"parallelism": None, "extra": None}) == []
    assert of_endpoint(adapter_config=None, api_key=None) == []
    assert of_values(targets=[{"name": "a"}, {"name": "b", "api_endpoint": {"url": None, "type": None}}]) == []


def test_who_says_shards_in_a_suite_is_told_so_too() -> None:
    assert of_values(params={"extra": {"shards": 4}}) == [f"suite.params.extra: {NO_SHARDS}"]
    assert of_values(params={"extra": {"shards": None}}) == []
